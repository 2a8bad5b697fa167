# SPDX-License-Identifier: Apache-2.0
"""The grammar of protobuf, as the code that Kubernetes generates reads it.

Numbers, tags, lengths, and how to skip an unknown field.
`protobuf.py` has the messages. All functions read one buffer between two positions
without a copy, so that the time is linear in the length for all bytes.
"""

# A number has at most so many bytes: seven bits each, 64 in all.
_LONGEST_VARINT = 10

_64_BITS = (1 << 64) - 1
_INT64_MAX = (1 << 63) - 1
_32_BITS = (1 << 32) - 1
_INT32_MAX = (1 << 31) - 1

VARINT, FIXED64, DELIMITED, GROUP, END_GROUP, FIXED32 = range(6)
"""The wire types, which are the last three bits of a tag."""

_FIXED = {FIXED64: 8, FIXED32: 4}


class Malformed(Exception):
    """Bytes that are not what they should be; worded as in Kubernetes."""


def truncated() -> Malformed:
    return Malformed("unexpected EOF")


def varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """An unsigned number, and the position after the number."""
    if pos < end and data[pos] < 0x80:
        return data[pos], pos + 1
    value = shift = 0
    for at in range(pos, min(end, pos + _LONGEST_VARINT)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _64_BITS, at + 1
        shift += 7
    if end - pos < _LONGEST_VARINT:
        raise truncated()
    raise Malformed("proto: integer overflow")


def int64(value: int) -> int:
    """A signed number."""
    return value if value <= _INT64_MAX else value - _64_BITS - 1


def int32(value: int) -> int:
    """The same of the lower 32 bits; the rest is dropped without a word."""
    value &= _32_BITS
    return value if value <= _INT32_MAX else value - _32_BITS - 1


def span(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Where the bytes begin and end whose length stands at the position."""
    size, pos = varint(data, pos, end)
    if pos + size > end:
        raise too_long(size, pos)
    return pos, pos + size


def too_long(size: int, pos: int) -> Malformed:
    """What is wrong with a length that goes beyond the end."""
    if pos + size > _INT64_MAX:
        return Malformed("proto: negative length found during unmarshaling")
    return truncated()


def folded(tag: int) -> int:
    """The same field's tag of 35 bits; higher ones are dropped without a word."""
    return (tag >> 3 & _32_BITS) << 3 | tag & 7


def skip(data: bytes, pos: int, end: int) -> int:
    """The position after the field whose tag stands here; may be beyond the end."""
    depth = 0
    while pos < end:
        tag, pos = varint(data, pos, end)
        kind = tag & 7
        if kind == GROUP:
            depth += 1
        elif kind == END_GROUP:
            if depth == 0:
                raise Malformed("proto: unexpected end of group")
            depth -= 1
        elif kind == VARINT:
            _, pos = varint(data, pos, end)
        elif kind in _FIXED:
            pos += _FIXED[kind]
        elif kind == DELIMITED:
            size, pos = varint(data, pos, end)
            if pos + size > _INT64_MAX:
                raise too_long(size, pos)
            pos += size
        else:
            raise Malformed(f"proto: illegal wireType {kind}")
        if depth == 0:
            return pos
    raise truncated()
