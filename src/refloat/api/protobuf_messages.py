# SPDX-License-Identifier: Apache-2.0
"""Reading protobuf messages into dictionaries, field by field.

Here is one function for each way in which a field is written. Which fields a
message has is in `protobuf.py`, and how bytes become numbers in
`protobuf_wire.py`. Kubernetes reads protobuf with generated code, and that code's ways
are kept: fields that it does not know are passed over, a message that comes
twice is merged, and entries of maps are not held to their length.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from refloat.api import gojson, protobuf_wire
from refloat.api.meta import Object

# A message is read into a dictionary: buffer, start, end, dictionary. The
# buffer must go on for one byte at least after the end, whatever that is: so a
# length that was cut off is found to be too long, without a look of its own.
Read: TypeAlias = Callable[[bytes, int, int, Object], None]

# A value is made of the bytes between two positions, and of the value that
# the field has already.
Value: TypeAlias = Callable[[bytes, int, int, Any], Any]

# What is done for a field of bytes: buffer, start and end of the bytes, end of
# the message, dictionary. It returns where reading goes on.
Take: TypeAlias = Callable[[bytes, int, int, int, Object], int]

# What is done for a field that is a number.
Put: TypeAlias = Callable[[int, Object], None]

Number: TypeAlias = Callable[[int], Any]


@dataclass(slots=True)
class Fields:
    """What is done for each tag of a message, and the fields' names in Go."""

    message: str
    takes: dict[int, Take] = field(default_factory=dict)
    puts: dict[int, Put] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def take(self, number: int, go: str, take: Take) -> None:
        self.takes[number << 3 | protobuf_wire.DELIMITED] = take
        self.names[number] = go

    def put(self, number: int, go: str, put: Put) -> None:
        self.puts[number << 3 | protobuf_wire.VARINT] = put
        self.names[number] = go


def reader(fields: Fields) -> Read:
    """The loop over the fields of a message; almost all tags and lengths are of one byte."""
    take_of, put_of = fields.takes.get, fields.puts.get

    def read(data: bytes, pos: int, end: int, obj: Object) -> None:
        while pos < end:
            start = pos
            tag = data[pos]
            pos += 1
            if tag > 0x7F:
                if data[pos] < 0x80 and pos < end:
                    tag, pos = tag & 0x7F | data[pos] << 7, pos + 1
                else:
                    tag, pos = protobuf_wire.varint(data, start, end)
                    tag = protobuf_wire.folded(tag)
            if (take := take_of(tag)) is not None:
                size = data[pos]
                pos += 1
                if size > 0x7F:
                    size, pos = protobuf_wire.varint(data, pos - 1, end)
                stop = pos + size
                if stop > end:
                    raise protobuf_wire.too_long(size, pos)
                pos = take(data, pos, stop, end, obj)
            elif (put := put_of(tag)) is not None:
                number, pos = protobuf_wire.varint(data, pos, end)
                put(number, obj)
            else:
                pos = _other(data, start, end, fields)

    return read


def _other(data: bytes, start: int, end: int, fields: Fields) -> int:
    """Skip an unknown field; a wrong tag is an error."""
    tag, _ = protobuf_wire.varint(data, start, end)
    kind, number = tag & 7, protobuf_wire.int32(tag >> 3)
    if kind == protobuf_wire.END_GROUP:
        raise protobuf_wire.Malformed(f"proto: {fields.message}: wiretype end group for non-group")
    if number <= 0:
        raise protobuf_wire.Malformed(
            f"proto: {fields.message}: illegal tag {number} (wire type {tag})"
        )
    if number in fields.names:
        raise protobuf_wire.Malformed(
            f"proto: wrong wireType = {kind} for field {fields.names[number]}"
        )
    pos = protobuf_wire.skip(data, start, end)
    if pos > end:
        raise protobuf_wire.truncated()
    return pos


def text(data: bytes, pos: int, stop: int, _old: Any) -> str:
    return str(data[pos:stop], "utf-8", gojson.ONE_FOR_EACH_BYTE)


def text_field(name: str) -> Take:
    """The same as `value_field(name, text)`, but faster: most fields are texts."""

    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        obj[name] = str(data[pos:stop], "utf-8", gojson.ONE_FOR_EACH_BYTE)
        return stop

    return take


def message_field(name: str, read_message: Read) -> Take:
    """A message within; one that comes again adds to what is there."""

    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        within = obj.get(name)
        if within is None:
            within = obj[name] = {}
        read_message(data, pos, stop, within)
        return stop

    return take


def messages_field(name: str, read_message: Read) -> Take:
    """One of many messages."""

    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        within: Object = {}
        read_message(data, pos, stop, within)
        items = obj.get(name)
        if items is None:
            obj[name] = [within]
        else:
            items.append(within)
        return stop

    return take


def value_field(name: str, value: Value) -> Take:
    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        obj[name] = value(data, pos, stop, obj.get(name))
        return stop

    return take


def list_field(name: str, value: Value) -> Take:
    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        obj.setdefault(name, []).append(value(data, pos, stop, None))
        return stop

    return take


def inlined_field(read_message: Read) -> Take:
    """A message whose fields in JSON are fields of the outer object."""

    def take(data: bytes, pos: int, stop: int, _end: int, obj: Object) -> int:
        read_message(data, pos, stop, obj)
        return stop

    return take


def map_field(name: str, value: Value, zero: Any) -> Take:
    """One entry. Its parts may go beyond its length, up to the message's end."""

    def take(data: bytes, pos: int, stop: int, end: int, obj: Object) -> int:
        key, item = "", zero
        while pos < stop:
            start = pos
            tag, pos = protobuf_wire.varint(data, pos, end)
            number = protobuf_wire.int32(tag >> 3)
            if number not in (1, 2):
                pos = protobuf_wire.skip(data, start, end)
                if pos > stop:
                    raise protobuf_wire.truncated()
                continue
            start, pos = protobuf_wire.span(data, pos, end)
            if number == 1:
                key = text(data, start, pos, None)
            else:
                item = value(data, start, pos, None)
        obj.setdefault(name, {})[key] = item
        return stop

    return take


def packed_field(name: str, number: Number) -> Take:
    """Many numbers at once. The last one may go beyond their common length."""

    def take(data: bytes, pos: int, stop: int, end: int, obj: Object) -> int:
        numbers = obj.setdefault(name, [])
        while pos < stop:
            value, pos = protobuf_wire.varint(data, pos, end)
            numbers.append(number(value))
        return pos

    return take


def number_field(name: str, number: Number) -> Put:
    def put(value: int, obj: Object) -> None:
        obj[name] = number(value)

    return put


def numbers_field(name: str, number: Number) -> Put:
    """One of many numbers, each in a field of its own."""

    def put(value: int, obj: Object) -> None:
        obj.setdefault(name, []).append(number(value))

    return put
