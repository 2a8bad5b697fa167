# SPDX-License-Identifier: Apache-2.0
"""The values that protobuf writes in ways of their own: maps, lists, times, quantities."""

from typing import Any

import pytest

from refloat.api import schema
from refloat.api.meta import Object
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


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(take(2, take(1, "k")), {"data": {"k": ""}}, id="no value"),
        pytest.param(take(2, take(2, "v")), {"data": {"": "v"}}, id="no key"),
        pytest.param(take(3, take(1, "k")), {"binaryData": {"k": ""}}, id="no bytes"),
        pytest.param(entry(3, "k", b"\x00\xff"), {"binaryData": {"k": "AP8="}}, id="bytes"),
        pytest.param(entry(2, "k", "a") + entry(2, "k", "b"), {"data": {"k": "b"}}, id="twice"),
        pytest.param(
            take(2, tag(1, VARINT) + varint(1) + b"k" + tag(2, FIXED32) + varint(1) + b"v"),
            {"data": {"k": "v"}},
            id="wire types that are wrong",
        ),
        pytest.param(
            tag(2, DELIMITED) + varint(4) + tag(1, DELIMITED) + varint(4) + b"abcd",
            {"data": {"abcd": ""}},
            id="a key beyond the entry",
        ),
    ],
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
    made = read(entry(2, "k", b"a\xff\xfe\xe2\x82b\xed\xa0\x80"))
    assert made["data"]["k"] == "a" + "\ufffd" * 4 + "b" + "\ufffd" * 3


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(put(1, 1) + take(3, "50%"), "50%", id="text"),
        pytest.param(put(1, 1), "", id="empty text"),
        pytest.param(put(2, 1 << 33 | 7), 7, id="32 bits count"),
        pytest.param(put(2, -5), -5, id="negative"),
        pytest.param(take(3, "x") + put(2, 4), 4, id="number unless said otherwise"),
    ],
)
def test_a_number_or_text_is_what_its_type_says(raw: bytes, want: int | str) -> None:
    assert read(take(2, take(1, raw)), PDB)["spec"] == {"minAvailable": want}


def test_a_number_or_text_of_neither_type_is_refused() -> None:
    body = wrapped(take(2, take(1, put(1, 2))), "policy/v1", "PodDisruptionBudget")
    assert refusal(body, PDB).endswith(": impossible IntOrString.Type")


def amount(raw: bytes) -> bytes:
    return take(3, entry(1, "cpu", raw))


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(b"", "0", id="nothing"),
        pytest.param(take(1, "0.5"), "500m", id="made canonical"),
        pytest.param(take(1, "3") + take(1, "4"), "4", id="twice"),
        pytest.param(put(9, 1) + take(1, "2"), "2", id="after an unknown field"),
    ],
)
def test_a_quantity_is_a_message(raw: bytes, want: str) -> None:
    assert read(amount(raw), NODE)["status"]["capacity"] == {"cpu": want}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(take(1, ""), QUANTITY, id="empty"),
        pytest.param(take(1, " 1 "), QUANTITY, id="spaces, which JSON allows"),
        pytest.param(take(1, b"\xff"), QUANTITY, id="no text"),
        pytest.param(take(1, "1" * 5000), QUANTITY, id="too many digits"),
        pytest.param(put(1, 1), "proto: wrong wireType = 0 for field String_", id="a number"),
        pytest.param(b"\0\0", "proto: Quantity: illegal tag 0 (wire type 0)", id="tag 0"),
    ],
)
def test_what_is_no_quantity_is_refused(raw: bytes, want: str) -> None:
    body = wrapped(amount(raw), "v1", "Node")
    assert refusal(body, NODE) == f'Node in version "v1" cannot be handled as a Node: {want}'


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(b"", None, id="nothing is the zero time"),
        pytest.param(put(1, -62_135_596_800), None, id="the zero time"),
        pytest.param(put(1, 100) + put(2, 5), "1970-01-01T00:01:40Z", id="whole seconds"),
        pytest.param(put(1, -100), "1969-12-31T23:58:20Z", id="before 1970"),
        pytest.param(put(2, 5), "1970-01-01T00:00:00Z", id="no seconds"),
        pytest.param(put(3, 5), "1970-01-01T00:00:00Z", id="nothing known"),
        pytest.param(put(1, -62_135_596_801), "0000-12-31T23:59:59Z", id="the end of year 0"),
        pytest.param(put(1, -62_167_219_200), "0000-01-01T00:00:00Z", id="the start of year 0"),
        pytest.param(put(1, 253_402_300_799), "9999-12-31T23:59:59Z", id="the last one"),
    ],
)
def test_a_time_is_a_message(raw: bytes, want: str | None) -> None:
    assert read(take(6, raw), EVENT)["firstTimestamp"] == want


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(b"", None, id="nothing is the zero time"),
        pytest.param(put(1, -62_135_596_800) + put(2, 999), None, id="almost the zero time"),
        pytest.param(put(1, 100) + put(2, 123_456_789), "00:01:40.123456Z", id="cut off"),
        pytest.param(put(1, 100) + put(2, -1), "00:01:40.000000Z", id="cut off towards zero"),
        pytest.param(put(1, 100) + put(2, -1500), "00:01:39.999999Z", id="negative"),
        pytest.param(put(1, 100) + put(2, 2_147_483_647), "00:01:42.147483Z", id="over a second"),
        pytest.param(put(1, 100) + put(2, 1 << 40 | 1000), "00:01:40.000001Z", id="32 bits count"),
    ],
)
def test_a_micro_time_is_a_message(raw: bytes, want: str | None) -> None:
    made = read(take(10, raw), EVENT)["eventTime"]
    assert made == (want and f"1970-01-01T{want}")


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_167_219_201, (1 << 63) - 1, -(1 << 63)])
def test_a_time_that_nobody_could_read_again_is_refused(seconds: int) -> None:
    body = wrapped(take(6, put(1, seconds)), "v1", "Event")
    assert refusal(body, EVENT).endswith(f"time out of range: {seconds} seconds since 1970")


def groups(raw: bytes) -> list[int]:
    found: list[int] = read(take(2, take(14, raw)), POD)["spec"]["securityContext"][
        "supplementalGroups"
    ]
    return found


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(put(4, 1) + put(4, -1), [1, -1], id="one by one"),
        pytest.param(take(4, varint(1) + varint(300)), [1, 300], id="packed"),
        pytest.param(put(4, 1) + take(4, varint(2)) + put(4, 3), [1, 2, 3], id="both"),
        pytest.param(take(4, b"\x01\x80") + b"\x02", [1, 256], id="beyond the packed length"),
    ],
)
def test_lists_of_numbers_may_be_packed(raw: bytes, want: list[int]) -> None:
    assert groups(raw) == want


def test_a_list_of_numbers_is_not_of_another_wire_type() -> None:
    body = wrapped(take(2, take(14, tag(4, FIXED32))), "v1", "Pod")
    want = "proto: wrong wireType = 5 for field SupplementalGroups"
    assert refusal(body, POD).endswith(want)


def managed(raw: str) -> Any:
    made = read(take(1, take(17, take(7, take(1, raw)))))
    return made["metadata"]["managedFields"][0].get("fieldsV1")


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param('{"f:data":{}}', {"f:data": {}}, id="JSON"),
        pytest.param("null", None, id="null"),
        pytest.param('{"f:da', '{"f:da', id="no JSON"),
        pytest.param("[" * 5000, "[" * 5000, id="too deep"),
    ],
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
