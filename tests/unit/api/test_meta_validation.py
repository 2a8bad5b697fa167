# SPDX-License-Identifier: Apache-2.0
"""Metadata is held to the same rules in every kind."""

from typing import Any

import pytest

from refloat.api import fields, names
from refloat.api.meta import Object
from refloat.api.validation import meta

NAMED = {"name": "a", "namespace": "default"}


def _validate(**metadata: Any) -> list[str]:
    errors = meta.validate(NAMED | metadata, namespaced=True, name_check=names.dns_subdomain)
    return [str(each) for each in errors]


def test_plain_metadata_is_valid() -> None:
    assert _validate(labels={"a": "b"}, annotations={"A.B/c": "d"}, finalizers=["a/b"]) == []


def test_a_namespaced_kind_needs_a_namespace() -> None:
    errors = meta.validate({"name": "a"}, namespaced=True, name_check=names.dns_subdomain)
    assert [str(each) for each in errors] == ["metadata.namespace: Required value"]


def test_a_cluster_wide_kind_has_no_namespace() -> None:
    errors = meta.validate(NAMED, namespaced=False, name_check=names.dns_subdomain)
    assert [str(each) for each in errors] == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_a_name_is_needed() -> None:
    assert _validate(name="") == ["metadata.name: Required value: name or generateName is required"]


def test_a_negative_generation_is_refused() -> None:
    assert _validate(generation=-1) == [
        "metadata.generation: Invalid value: -1: must be greater than or equal to 0"
    ]


SIZES = [
    ("at the limit", "a", "x" * (256 * 1024 - 1), False),
    ("one byte more", "a", "x" * (256 * 1024), True),
    ("bytes count, not characters", "a", "é" * (128 * 1024), True),
    ("keys count too", "aa", "x" * (256 * 1024 - 1), True),
]


@pytest.mark.parametrize(
    ("key", "value", "is_too_long"), [each[1:] for each in SIZES], ids=[each[0] for each in SIZES]
)
def test_annotations_have_room_for_256_kib(key: str, value: str, is_too_long: bool) -> None:
    want = ["metadata.annotations: Too long: may not be more than 262144 bytes"]
    assert _validate(annotations={key: value}) == (want if is_too_long else [])


def test_two_controllers_are_refused_with_all_owners_shown() -> None:
    owner = {"apiVersion": "v1", "kind": "A", "name": "n", "uid": "u", "controller": True}
    [error] = meta.validate(
        NAMED | {"ownerReferences": [owner, {**owner, "name": "m"}]},
        namespaced=True,
        name_check=names.dns_subdomain,
    )
    assert error.detail == (
        "Only one reference can have Controller set to true. "
        'Found "true" in references for A/n and A/m'
    )
    assert fields.show(error.value) == (
        '[{"apiVersion":"v1","kind":"A","name":"n","uid":"u","controller":true},'
        '{"apiVersion":"v1","kind":"A","name":"m","uid":"u","controller":true}]'
    )


def test_an_event_owns_nothing() -> None:
    owner = {"apiVersion": "v1", "kind": "Event", "name": "n", "uid": "u"}
    [error] = _validate(ownerReferences=[owner])
    assert error.endswith("/v1, Kind=Event is disallowed from being an owner")


MANAGERS = [
    (
        "operation",
        {"operation": "x"},
        ['operation: Invalid value: "x": must be `Apply` or `Update`'],
    ),
    (
        "fields of another type",
        {"operation": "Update", "fieldsType": "x"},
        ['fieldsType: Invalid value: "x": must be `FieldsV1`'],
    ),
    (
        "long manager",
        {"operation": "Apply", "manager": "m" * 129},
        ["manager: Too long: may not be more than 128 bytes"],
    ),
    (
        "unprintable manager",
        {"operation": "Apply", "manager": "é\x01"},
        ['manager: Invalid value: "é\\x01": invalid character U+0001 (at position 2)'],
    ),
    (
        "long subresource",
        {"operation": "Apply", "subresource": "s" * 257},
        ["subresource: Too long: may not be more than 256 bytes"],
    ),
]


@pytest.mark.parametrize(
    ("entry", "want"), [each[1:] for each in MANAGERS], ids=[each[0] for each in MANAGERS]
)
def test_managed_fields_are_checked(entry: Object, want: list[str]) -> None:
    assert _validate(managedFields=[entry]) == [
        f"metadata.managedFields[0].{each}" for each in want
    ]


STORED = {
    **NAMED,
    "uid": "u",
    "resourceVersion": "1",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
CHANGES = [
    ("nothing", {}, []),
    ("name", {"name": "b"}, ['name: Invalid value: "b": field is immutable']),
    ("uid", {"uid": "v"}, ['uid: Invalid value: "v": field is immutable']),
    ("generation", {"generation": 1}, ["generation: Invalid value: 1: must not be decremented"]),
    (
        "no version",
        {"resourceVersion": ""},
        ['resourceVersion: Invalid value: "": must be specified for an update'],
    ),
    (
        "a grace period",
        {"deletionGracePeriodSeconds": 5},
        ["deletionGracePeriodSeconds: Invalid value: 5: field is immutable"],
    ),
]


@pytest.mark.parametrize(
    ("change", "want"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES]
)
def test_identity_does_not_change(change: Object, want: list[str]) -> None:
    errors = meta.validate_change(STORED | change, STORED)
    assert [str(each) for each in errors] == [f"metadata.{each}" for each in want]


def test_an_update_is_checked_for_all_kinds_and_then_for_the_kind() -> None:
    new = STORED | {"uid": "v"}
    once = [str(each) for each in meta.validate_change(new, STORED)]
    assert [str(each) for each in meta.validate_common_update(new, STORED)] == once
    assert [str(each) for each in meta.validate_update(new, STORED)] == once * 2


SELECTORS = [
    ("nothing", None, []),
    ("empty", {}, []),
    (
        "values missing",
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        [
            (
                "matchExpressions[0].values: Required value: "
                "must be specified when `operator` is 'In' or 'NotIn'"
            )
        ],
    ),
    (
        "values too many",
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        [
            (
                "matchExpressions[0].values: Forbidden: "
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
        ],
    ),
    (
        "unknown operator",
        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
        ['matchExpressions[0].operator: Invalid value: "Gt": not a valid selector operator'],
    ),
]


@pytest.mark.parametrize(
    ("selector", "want"), [each[1:] for each in SELECTORS], ids=[each[0] for each in SELECTORS]
)
def test_a_selector_is_checked(selector: Object | None, want: list[str]) -> None:
    errors = meta.validate_label_selector(selector, "s")
    assert [str(each) for each in errors] == [f"s.{each}" for each in want]


QUOTED = [
    ("plain", "a é", '"a é"'),
    ("quotes", 'a"b\\', '"a\\"b\\\\"'),
    ("controls", "\a\b\f\n\r\t\v\x01\x7f", '"\\a\\b\\f\\n\\r\\t\\v\\x01\\x7f"'),
    ("beyond ASCII", "\u200b\U000e0001", '"\\u200b\\U000e0001"'),
]


@pytest.mark.parametrize(
    ("text", "want"), [each[1:] for each in QUOTED], ids=[each[0] for each in QUOTED]
)
def test_text_is_quoted_as_go_does(text: str, want: str) -> None:
    assert fields.show(text) == want


def test_json_is_written_as_go_does() -> None:
    assert fields.show({"a": "<&>"}) == '{"a":"\\u003c\\u0026\\u003e"}'
