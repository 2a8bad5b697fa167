# SPDX-License-Identifier: Apache-2.0
"""The codec reads protobuf as Kubernetes does; errors have Kubernetes' words.

`data/protobuf.json` holds one object of each kind with all its fields set, as
the Go types write it in protobuf and in JSON.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import codec, errors, protobuf, schema
from tests.cases import cases
from tests.unit.api.protobuf_bytes import (
    CONFIG_MAP,
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    NAMED,
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

VECTORS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("data").joinpath("protobuf.json").read_text()
)

EVENT = schema.struct("v1", "Event")
OPTIONS = schema.struct("v1", "DeleteOptions")

UNRECOGNIZED = "the object provided is unrecognized (must be of type ConfigMap): "
HANDLED = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: '
SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'
EOF = "unexpected EOF"
NEGATIVE = "proto: negative length found during unmarshaling"
OVERFLOW = "proto: integer overflow"
PREFIX = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"


@pytest.mark.parametrize("key", VECTORS)
def test_an_object_of_any_kind_reads_as_its_json_does(key: str) -> None:
    struct = schema.struct(*key.split(" "))
    body = base64.b64decode(VECTORS[key]["protobuf"])
    text = json.dumps(VECTORS[key]["json"]).encode()
    decoded = codec.decode(body, struct, media="protobuf")
    assert decoded.obj == codec.decode(text, struct).obj
    assert decoded.problems == []
    assert decoded.strict == ""


def test_every_kind_that_is_served_has_an_example() -> None:
    lists = {key for key in schema.kinds() if key.endswith("List")}
    assert set(VECTORS) == set(schema.kinds()) - lists


def test_every_field_of_the_schema_has_a_number_except_kind_and_our_own() -> None:
    for key, struct in schema.kinds().items():
        left_out = set(struct.fields) - set(numbered(struct.name))
        own = {"reason"} if struct.kind == "DeleteOptions" else set()
        assert left_out == {"kind", "apiVersion"} | own, key


def numbered(name: str) -> list[str]:
    return [each for row in protobuf._rows()[name] for each in _names(*row)]


def _names(_number: int, name: str, _go: str = "", inlined: str = "") -> list[str]:
    return [name] if name else numbered(inlined)


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "ConfigMap"),
        ("/v1", "ConfigMap"),
        ("", ""),
        ("v1", ""),
        ("", "ConfigMap"),
        ("a/b/c", "ConfigMap"),
        ("a/", "ConfigMap"),
        ("/", "ConfigMap"),
    ],
)
def test_what_the_envelope_leaves_open_is_taken_from_the_address(
    api_version: str, kind: str
) -> None:
    body = wrapped(NAMED, api_version, kind)
    obj = codec.decode(body, CONFIG_MAP, media="protobuf").obj
    assert obj == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}}


def test_an_envelope_without_kind_or_object_is_enough() -> None:
    obj = codec.decode(protobuf.MAGIC + take(3, "gzip"), CONFIG_MAP, media="protobuf").obj
    assert obj["kind"] == "ConfigMap"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", "empty data (<empty>)"),
        (b'{"metadata":{}}', f'{PREFIX} ({{"metadata":{{}}}})'),
        (b"k8", f"{PREFIX} (6b38)"),
        (protobuf.MAGIC, "empty body (6b387300)"),
        (wrapped(NAMED)[:-1], f"{EOF} (6b3873000a0f0a0276311209436f6e6669674d617012050a030a01)"),
        (protobuf.MAGIC + put(1, 3), "proto: wrong wireType = 0 for field TypeMeta (6b3873000803)"),
        (
            protobuf.MAGIC + tag(1, END_GROUP),
            "proto: Unknown: wiretype end group for non-group (6b3873000c)",
        ),
        (protobuf.MAGIC + b"\0\0", "proto: Unknown: illegal tag 0 (wire type 0) (6b3873000000)"),
        (
            protobuf.MAGIC + varint(1 << 35 | 2) + b"\0",
            "proto: Unknown: illegal tag 0 (wire type 34359738370) (6b38730082808080800100)",
        ),
        (
            protobuf.MAGIC + take(1, put(1, 1)),
            "proto: wrong wireType = 0 for field APIVersion (6b3873000a020801)",
        ),
    ],
)
def test_a_body_that_is_no_envelope_is_refused_with_its_beginning(body: bytes, want: str) -> None:
    assert refusal(body) == UNRECOGNIZED + want


@cases(
    "raw want",
    {
        "a number": (put(1, 1), "proto: wrong wireType = 0 for field ObjectMeta"),
        "no type": (tag(1, 7), "proto: wrong wireType = 7 for field ObjectMeta"),
        "a text": (take(4, "x"), "proto: wrong wireType = 2 for field Immutable"),
        "unknown, no type": (tag(100, 6), "proto: illegal wireType 6"),
        "a group that has not begun": (
            tag(100, END_GROUP),
            "proto: ConfigMap: wiretype end group for non-group",
        ),
        "a group that has not begun, in a map": (
            take(2, tag(3, END_GROUP)),
            "proto: unexpected end of group",
        ),
        "a group that does not end": (tag(100, GROUP) + put(1, 1), EOF),
        "tag 0": (b"\x02\x00", "proto: ConfigMap: illegal tag 0 (wire type 2)"),
        "a negative tag": (
            varint(0x80000001 << 3 | 2),
            "proto: ConfigMap: illegal tag -2147483647 (wire type 17179869194)",
        ),
        "a tag too long": (b"\xff" * 11, OVERFLOW),
        "a length too long": (b"\x0a" + b"\xff" * 11, OVERFLOW),
        "a number too long": (tag(4, VARINT) + b"\xff" * 11, OVERFLOW),
        "a negative length": (b"\x0a" + varint(-1), NEGATIVE),
        "a length that overflows": (b"\x0a" + varint((1 << 63) - 1), NEGATIVE),
        "a huge length": (b"\x0a" + varint(1 << 62), EOF),
        "no length": (b"\x0a", EOF),
        "half a tag": (b"\x8a", EOF),
        "no number": (tag(4, VARINT), EOF),
        "half a number": (tag(4, VARINT) + b"\x80", EOF),
        "a length beyond the message": (take(1, b"\x0a\x05abc"), EOF),
        "a length in the next message": (take(1, b"\x0a") + b"\x00", EOF),
        "a number in the next message": (take(1, tag(7, VARINT)) + b"\x00", EOF),
        "unknown, too long": (tag(100, DELIMITED) + varint(10), EOF),
        "unknown, negative": (tag(100, DELIMITED) + varint(-1), NEGATIVE),
        "unknown, cut off": (tag(100, FIXED32) + b"abc", EOF),
        "unknown, beyond a map's entry": (take(2, tag(3, FIXED32) + b"ab") + b"cd", EOF),
    },
)
def test_malformed_bytes_are_refused_in_the_words_of_kubernetes(raw: bytes, want: str) -> None:
    assert refusal(wrapped(raw)) == HANDLED + want


@pytest.mark.parametrize(
    ("api_version", "kind", "want"),
    [
        ("v1", "Foo", f'no kind "Foo" is registered for version "v1" {SCHEME}'),
        ("v1", "F\0o", f'no kind "F\\x00o" is registered for version "v1" {SCHEME}'),
        ("v1", "Secret", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (
            "apps/v1",
            "Deployment",
            "converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
    ],
)
def test_another_kind_is_refused(api_version: str, kind: str, want: str) -> None:
    message = f'{kind} in version "v1" cannot be handled as a ConfigMap: {want}'
    assert refusal(wrapped(NAMED, api_version, kind)) == message


def test_an_object_of_another_kind_is_read_before_it_is_refused() -> None:
    body = wrapped(b"\x0a\xff", "v1", "Secret")
    want = f'Secret in version "v1" cannot be handled as a ConfigMap: {EOF}'
    assert refusal(body) == want


def test_an_event_of_the_other_version_is_refused() -> None:
    body = wrapped(NAMED, "events.k8s.io/v1", "Event")
    assert refusal(body, EVENT) == (
        "the API version in the data (events.k8s.io/v1) does not match "
        "the expected API version (v1)"
    )


def test_the_older_eviction_is_taken() -> None:
    struct = schema.struct("policy/v1", "Eviction")
    body = wrapped(NAMED + take(2, put(1, 5)), "policy/v1beta1", "Eviction")
    obj = codec.decode(body, struct, media="protobuf").obj
    assert obj["deleteOptions"] == {"gracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("v1", "DeleteOptions"),
        ("policy/v1", "DeleteOptions"),
        ("meta.k8s.io/v1", "DeleteOptions"),
        ("foo/v1", "DeleteOptions"),
        ("", "DeleteOptions"),
        ("a/b/c", "DeleteOptions"),
        ("v1", ""),
        ("", ""),
    ],
)
def test_options_are_taken_in_every_version(api_version: str, kind: str) -> None:
    body = wrapped(put(1, 0) + take(2, take(1, "u")), api_version, kind)
    obj = codec.decode_options(body, OPTIONS, media="protobuf").obj
    assert obj["gracePeriodSeconds"] == 0
    assert obj["preconditions"] == {"uid": "u"}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"garbage", PREFIX),
        (protobuf.MAGIC, "empty body"),
        (wrapped(put(1, 0), kind="DeleteOptions")[:-1], EOF),
        (
            wrapped(take(1, "x"), kind="DeleteOptions"),
            "proto: wrong wireType = 2 for field GracePeriodSeconds",
        ),
        (wrapped(put(1, 0)), f'no kind "ConfigMap" is registered for version "v1" {SCHEME}'),
    ],
)
def test_options_are_refused_without_their_kind(body: bytes, want: str) -> None:
    with pytest.raises(errors.StatusError) as error:
        codec.decode_options(body, OPTIONS, media="protobuf")
    assert error.value.message == want


def test_unknown_fields_are_passed_over_without_a_word() -> None:
    unknown = (
        put(100, 1)
        + take(101, "abc")
        + tag(102, FIXED32)
        + b"1234"
        + tag(103, FIXED64)
        + b"12345678"
        + tag(104, GROUP)
        + put(0, 3)
        + tag(104, GROUP)
        + tag(1, END_GROUP)
        + tag(9, END_GROUP)
    )
    decoded = codec.decode(wrapped(unknown + NAMED), CONFIG_MAP, media="protobuf")
    assert decoded.obj["metadata"] == {"name": "x"}
    assert decoded.strict == ""


def test_a_tag_may_have_more_bits_than_count() -> None:
    assert read(varint((1 << 32 | 1) << 3 | DELIMITED) + varint(3) + take(1, "q"))["metadata"] == {
        "name": "q"
    }


def test_a_message_that_comes_twice_is_merged() -> None:
    obj = read(NAMED + take(1, entry(11, "l", "v")))
    assert obj["metadata"] == {"name": "x", "labels": {"l": "v"}}


def test_a_text_that_comes_twice_is_replaced() -> None:
    assert read(take(1, take(1, "a") + take(1, "b")))["metadata"] == {"name": "b"}


@given(
    key=st.sampled_from(sorted(set(VECTORS) - {"v1 Pod", "batch/v1 Job"})),
    cuts=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_bytes_are_read_or_refused_but_never_break(
    key: str, cuts: list[tuple[int, int]]
) -> None:
    body = bytearray(base64.b64decode(VECTORS[key]["protobuf"]))
    for place, byte in cuts:
        body[place % len(body)] = byte
    try:
        codec.decode(bytes(body), schema.struct(*key.split(" ")), media="protobuf")
    except errors.StatusError as error:
        assert error.code == 400  # noqa: PT017 # both ends are good
