# SPDX-License-Identifier: Apache-2.0
"""Builds protobuf by hand, byte by byte, well-formed or not."""

import pytest

from refloat.api import codec, errors, protobuf, schema
from refloat.api.meta import Object

VARINT, FIXED64, DELIMITED, GROUP, END_GROUP, FIXED32 = range(6)

CONFIG_MAP = schema.struct("v1", "ConfigMap")


def varint(number: int) -> bytes:
    number %= 1 << 64
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def put(number: int, value: int) -> bytes:
    return tag(number, VARINT) + varint(value)


def take(number: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return tag(number, DELIMITED) + varint(len(raw)) + raw


def entry(number: int, key: str, value: bytes | str) -> bytes:
    return take(number, take(1, key) + take(2, value))


def wrapped(raw: bytes, api_version: str = "v1", kind: str = "ConfigMap") -> bytes:
    return protobuf.MAGIC + take(1, take(1, api_version) + take(2, kind)) + take(2, raw)


NAMED = take(1, take(1, "x"))


def read(raw: bytes, struct: schema.Struct = CONFIG_MAP) -> Object:
    body = wrapped(raw, struct.api_version, struct.kind)
    return codec.decode(body, struct, media="protobuf").obj


def refusal(body: bytes, struct: schema.Struct = CONFIG_MAP) -> str:
    with pytest.raises(errors.StatusError) as error:
        codec.decode(body, struct, media="protobuf")
    assert (error.value.code, error.value.reason) == (400, "BadRequest")
    return error.value.message
