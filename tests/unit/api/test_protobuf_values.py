# SPDX-License-Identifier: Apache-2.0
"""The values that protobuf writes in ways of their own: maps, lists, times, quantities."""

from typing import Any

import pytest

from refloat.api import schema
from refloat.api.meta import Object
from tests.cases import cases
from tests.unit.api.protobuf_bytes import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    VARINT,
    entry,
    put,
    read,
    refusal,
    tag,
    take,
    varint,
    wrapped,
)

EVENT = schema.struct("v1", "Event")
NODE = schema.struct("v1", "Node")
PDB = schema.struct("policy/v1", "PodDisruptionBudget")
POD = schema.struct("v1", "Pod")

QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@cases(
    "raw want",
    {
        "no value": (take(2, take(1, "k")), {"data": {"k": ""}}),
        "no key": (take(2, take(2, "v")), {"data": {"": "v"}}),
        "no bytes": (take(3, take(1, "k")), {"binaryData": {"k": ""}}),
        "bytes": (entry(3, "k", b"\x00\xff"), {"binaryData": {"k": "AP8="}}),
        "twice": (entry(2, "k", "a") + entry(2, "k", "b"), {"data": {"k": "b"}}),
        "wire types that are wrong": (
            take(2, tag(1, VARINT) + varint(1) + b"k" + tag(2, FIXED32) + varint(1) + b"v"),
            {"data": {"k": "v"}},
        ),
        "a key beyond the entry": (
            tag(2, DELIMITED) + varint(4) + tag(1, DELIMITED) + varint(4) + b"abcd",
            {"data": {"abcd": ""}},
        ),
    },
)
def test_entries_of_maps_are_read_as_loosely_as_kubernetes_does(raw: bytes, want: Object) -> None:
    assert read(raw) == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}} | want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (put(4, 0), False),
        (put(4, 7), True),
        (tag(4, VARINT) + b"\x80" * 9 + b"\x02", False),  # bit 64 does not count
    ],
)
def test_a_bool_behind_a_pointer_is_kept(raw: bytes, want: bool) -> None:
    assert read(raw)["immutable"] is want


def test_each_byte_that_is_no_text_becomes_a_replacement_character() -> None:
    obj = read(entry(2, "k", b"a\xff\xfe\xe2\x82b\xed\xa0\x80"))
    assert obj["data"]["k"] == "a" + "\ufffd" * 4 + "b" + "\ufffd" * 3


@cases(
    "raw want",
    {
        "nothing": (b"", 0),
        "text": (put(1, 1) + take(3, "50%"), "50%"),
        "empty text": (put(1, 1), ""),
        "32 bits count": (put(2, 1 << 33 | 7), 7),
        "negative": (put(2, -5), -5),
        "number unless said otherwise": (take(3, "x") + put(2, 4), 4),
    },
)
def test_a_number_or_text_is_what_its_type_says(raw: bytes, want: int | str) -> None:
    assert read(take(2, take(1, raw)), PDB)["spec"] == {"minAvailable": want}


def test_a_number_or_text_of_neither_type_is_refused() -> None:
    body = wrapped(take(2, take(1, put(1, 2))), "policy/v1", "PodDisruptionBudget")
    assert refusal(body, PDB).endswith(": impossible IntOrString.Type")


def amount(raw: bytes) -> bytes:
    return take(3, entry(1, "cpu", raw))


@cases(
    "raw want",
    {
        "nothing": (b"", "0"),
        "made canonical": (take(1, "0.5"), "500m"),
        "twice": (take(1, "3") + take(1, "4"), "4"),
        "after an unknown field": (put(9, 1) + take(1, "2"), "2"),
    },
)
def test_a_quantity_is_a_message(raw: bytes, want: str) -> None:
    assert read(amount(raw), NODE)["status"]["capacity"] == {"cpu": want}


@cases(
    "raw want",
    {
        "empty": (take(1, ""), QUANTITY),
        "spaces, which JSON allows": (take(1, " 1 "), QUANTITY),
        "no text": (take(1, b"\xff"), QUANTITY),
        "too many digits": (take(1, "1" * 5000), QUANTITY),
        "a number": (put(1, 1), "proto: wrong wireType = 0 for field String_"),
        "tag 0": (b"\0\0", "proto: Quantity: illegal tag 0 (wire type 0)"),
    },
)
def test_what_is_no_quantity_is_refused(raw: bytes, want: str) -> None:
    body = wrapped(amount(raw), "v1", "Node")
    assert refusal(body, NODE) == f'Node in version "v1" cannot be handled as a Node: {want}'


@cases(
    "raw want",
    {
        "nothing is the zero time": (b"", None),
        "the zero time": (put(1, -62_135_596_800), None),
        "whole seconds": (put(1, 100) + put(2, 5), "1970-01-01T00:01:40Z"),
        "before 1970": (put(1, -100), "1969-12-31T23:58:20Z"),
        "no seconds": (put(2, 5), "1970-01-01T00:00:00Z"),
        "nothing known": (put(3, 5), "1970-01-01T00:00:00Z"),
        "the end of year 0": (put(1, -62_135_596_801), "0000-12-31T23:59:59Z"),
        "the start of year 0": (put(1, -62_167_219_200), "0000-01-01T00:00:00Z"),
        "the last one": (put(1, 253_402_300_799), "9999-12-31T23:59:59Z"),
    },
)
def test_a_time_is_a_message(raw: bytes, want: str | None) -> None:
    assert read(take(6, raw), EVENT)["firstTimestamp"] == want


@cases(
    "raw want",
    {
        "nothing is the zero time": (b"", None),
        "almost the zero time": (put(1, -62_135_596_800) + put(2, 999), None),
        "cut off": (put(1, 100) + put(2, 123_456_789), "00:01:40.123456Z"),
        "cut off towards zero": (put(1, 100) + put(2, -1), "00:01:40.000000Z"),
        "negative": (put(1, 100) + put(2, -1500), "00:01:39.999999Z"),
        "over a second": (put(1, 100) + put(2, 2_147_483_647), "00:01:42.147483Z"),
        "32 bits count": (put(1, 100) + put(2, 1 << 40 | 1000), "00:01:40.000001Z"),
    },
)
def test_a_micro_time_is_a_message(raw: bytes, want: str | None) -> None:
    event_time = read(take(10, raw), EVENT)["eventTime"]
    assert event_time == (want and f"1970-01-01T{want}")


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_167_219_201, (1 << 63) - 1, -(1 << 63)])
def test_a_time_that_nobody_could_read_again_is_refused(seconds: int) -> None:
    body = wrapped(take(6, put(1, seconds)), "v1", "Event")
    assert refusal(body, EVENT).endswith(f"time out of range: {seconds} seconds since 1970")


def groups(raw: bytes) -> list[int]:
    groups: list[int] = read(take(2, take(14, raw)), POD)["spec"]["securityContext"][
        "supplementalGroups"
    ]
    return groups


@cases(
    "raw want",
    {
        "one by one": (put(4, 1) + put(4, -1), [1, -1]),
        "packed": (take(4, varint(1) + varint(300)), [1, 300]),
        "both": (put(4, 1) + take(4, varint(2)) + put(4, 3), [1, 2, 3]),
        "beyond the packed length": (take(4, b"\x01\x80") + b"\x02", [1, 256]),
    },
)
def test_lists_of_numbers_may_be_packed(raw: bytes, want: list[int]) -> None:
    assert groups(raw) == want


def test_a_list_of_numbers_is_not_of_another_wire_type() -> None:
    body = wrapped(take(2, take(14, tag(4, FIXED32))), "v1", "Pod")
    want = "proto: wrong wireType = 5 for field SupplementalGroups"
    assert refusal(body, POD).endswith(want)


def managed(raw: str) -> Any:
    obj = read(take(1, take(17, take(7, take(1, raw)))))
    return obj["metadata"]["managedFields"][0].get("fieldsV1")


@cases(
    "raw want",
    {
        "JSON": ('{"f:data":{}}', {"f:data": {}}),
        "null": ("null", None),
        "no JSON": ('{"f:da', '{"f:da'),
        "too deep": ("[" * 5000, "[" * 5000),
    },
)
def test_managed_fields_are_json_within(raw: str, want: Any) -> None:
    assert managed(raw) == want


def test_an_inlined_struct_is_a_message_of_its_own() -> None:
    volume = take(1, "v") + take(2, take(2, take(1, "Memory")))
    assert read(take(2, take(1, volume)), POD)["spec"]["volumes"] == [
        {"name": "v", "emptyDir": {"medium": "Memory"}}
    ]


def test_errors_name_the_inlined_struct() -> None:
    body = wrapped(take(2, take(1, take(2, tag(1, END_GROUP)))), "v1", "Pod")
    want = "proto: VolumeSource: wiretype end group for non-group"
    assert refusal(body, POD).endswith(want)
