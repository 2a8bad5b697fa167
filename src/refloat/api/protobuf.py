# SPDX-License-Identifier: Apache-2.0
"""Objects in protobuf, in which kubectl and all Go clients write what they create.

`tools/schema` generates `protobuf.json` with the numbers of the fields; `schema.py` has
their types. From both this module makes one function for each message, once. The
result is the object as its JSON would be, and the codec treats the object like JSON.
This module only reads: answers are JSON, which every such client accepts.
"""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from refloat.api import protobuf_messages, protobuf_wire, quantity, schema
from refloat.api.meta import Object
from refloat.api.protobuf_messages import Put, Take, number_field, text_field, value_field

Malformed = protobuf_wire.Malformed

MAGIC = b"k8s\x00"

_NO_MAGIC = (
    "provided data does not appear to be a protobuf message, "
    f"expected prefix [{' '.join(str(byte) for byte in MAGIC)}]"
)

# The number; the name in JSON; the name in Go if it does not follow from the other;
# and for an inlined struct, which has no name in JSON, the struct's name.
_Row: TypeAlias = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 # all is UTC; without a zone it is faster
_YEAR_0 = -62_167_219_200
_YEAR_1 = -62_135_596_800
_YEAR_10000 = 253_402_300_800

# Python knows no year 0; in the year 2000 the calendar is the same.
_2000_YEARS = 5 * 146_097 * 86_400

_NUMBERS: dict[str, protobuf_messages.Number] = {
    "bool": bool,
    "int32": protobuf_wire.int32,
    "int64": protobuf_wire.int64,
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """The envelope of every object: version, kind, and the position of the bytes."""

    api_version: str
    kind: str
    _data: bytes
    _start: int
    _end: int

    def read(self, struct: schema.Struct) -> Object:
        """The object in the shape of JSON, without version and kind; or `Malformed`."""
        obj: Object = {}
        _struct_reader(struct, struct.name)(self._data, self._start, self._end, obj)
        return obj


def unwrap(body: bytes) -> Envelope:
    """Open the envelope; `Malformed` when the body is none."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        raise Malformed(_NO_MAGIC)
    if len(body) == len(MAGIC):
        raise Malformed("empty body")
    data = body + b"\x00"  # the byte after the end that `messages` asks for
    envelope: Object = {}
    _UNKNOWN(data, len(MAGIC), len(body), envelope)
    type_meta = envelope.get("typeMeta", {})
    start, end = envelope.get("raw", (0, 0))
    return Envelope(type_meta.get("apiVersion", ""), type_meta.get("kind", ""), data, start, end)


def _bytes(data: bytes, pos: int, stop: int, _old: Any) -> str:
    return base64.b64encode(data[pos:stop]).decode()


def _amount(data: bytes, pos: int, stop: int, _old: Any) -> str:
    amount = protobuf_messages.text(data, pos, stop, None)
    # Only JSON allows spaces around the amount.
    if amount != amount.strip():
        raise Malformed(quantity.BAD_FORM)
    try:
        return quantity.canonical(amount)
    except quantity.QuantityError as error:
        raise Malformed(str(error)) from None


def _reader(
    message: str, takes: dict[str, Take], puts: dict[str, Put] | None = None
) -> protobuf_messages.Read:
    """Reads a message; the fields have their names in Go and count from 1, numbers first."""
    fields = protobuf_messages.Fields(message)
    for number, (name, put) in enumerate((puts or {}).items(), 1):
        fields.put(number, name, put)
    for number, (name, take) in enumerate(takes.items(), 1 + len(puts or {})):
        fields.take(number, name, take)
    return protobuf_messages.reader(fields)


_TYPE_META = _reader(
    "TypeMeta", {"APIVersion": text_field("apiVersion"), "Kind": text_field("kind")}
)
_UNKNOWN = _reader(
    "Unknown",
    {
        "TypeMeta": protobuf_messages.message_field("typeMeta", _TYPE_META),
        "Raw": value_field("raw", lambda _data, pos, stop, _old: (pos, stop)),
        "ContentEncoding": text_field("contentEncoding"),
        "ContentType": text_field("contentType"),
    },
)
_QUANTITY = _reader("Quantity", {"String_": value_field("string", _amount)})
_TIMESTAMP = _reader(
    "Timestamp",
    {},
    {
        "Seconds": number_field("seconds", protobuf_wire.int64),
        "Nanos": number_field("nanos", protobuf_wire.int32),
    },
)
_INT_OR_STRING = _reader(
    "IntOrString",
    {"StrVal": text_field("string")},
    {
        "Type": number_field("type", protobuf_wire.int64),
        "IntVal": number_field("int", protobuf_wire.int32),
    },
)
_FIELDS_V1 = _reader("FieldsV1", {"Raw": text_field("raw")})


def _quantity(data: bytes, pos: int, stop: int, old: Any) -> Any:
    parts: Object = {"string": "0" if old is None else old}
    _QUANTITY(data, pos, stop, parts)
    return parts["string"]


def _time(data: bytes, pos: int, stop: int, _old: Any) -> Any:
    """Whole seconds; nothing at all is the zero time."""
    if pos == stop:
        return None
    parts: Object = {}
    _TIMESTAMP(data, pos, stop, parts)
    return f"{_moment(parts.get('seconds', 0))}Z"


def _micro_time(data: bytes, pos: int, stop: int, _old: Any) -> Any:
    if pos == stop:
        return None
    parts: Object = {}
    _TIMESTAMP(data, pos, stop, parts)
    nanos = parts.get("nanos", 0)
    # Cut off towards zero, as Go divides.
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    seconds, micros = divmod(parts.get("seconds", 0) * 1_000_000 + micros, 1_000_000)
    return f"{_moment(seconds)}.{micros:06d}Z"


def _moment(seconds: int) -> str:
    """Seconds since 1970 as a text.

    Kubernetes takes years of any length here, and then writes what neither it
    nor any client can read again; this does not.
    """
    if not _YEAR_0 <= seconds < _YEAR_10000:
        raise Malformed(f"time out of range: {seconds} seconds since 1970")
    if seconds < _YEAR_1:
        return f"0000{_moment(seconds + _2000_YEARS)[4:]}"
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def _int_or_string(data: bytes, pos: int, stop: int, old: Any) -> Any:
    parts: Object = {"type": 0, "int": 0, "string": ""}
    if isinstance(old, str):
        parts |= {"type": 1, "string": old}
    elif old is not None:
        parts["int"] = old
    _INT_OR_STRING(data, pos, stop, parts)
    if parts["type"] not in (0, 1):
        raise Malformed("impossible IntOrString.Type")
    return parts["string"] if parts["type"] else parts["int"]


def _fields_v1(data: bytes, pos: int, stop: int, old: Any) -> Any:
    """The JSON value; the text for invalid JSON, which Kubernetes does not parse here."""
    parts: Object = {}
    _FIELDS_V1(data, pos, stop, parts)
    raw = parts.get("raw")
    if raw is None:
        return old
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return raw


# How a scalar is read, and what stands for one that is left out of a map's entry.
_SCALARS: dict[str, tuple[protobuf_messages.Value, Any]] = {
    "string": (protobuf_messages.text, ""),
    "bytes": (_bytes, ""),
    "quantity": (_quantity, "0"),
    "time": (_time, None),
    "microtime": (_micro_time, None),
    "intorstring": (_int_or_string, 0),
    "fieldsv1": (_fields_v1, None),
}


@cache
def _rows() -> dict[str, list[_Row]]:
    text = resources.files("refloat.api").joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, list[_Row]])


@cache
def _struct_reader(struct: schema.Struct, name: str) -> protobuf_messages.Read:
    """The reader of the struct, or of the inlined struct with that name."""
    message = protobuf_messages.Fields(name.rpartition(".")[2])
    for row in _rows()[name]:
        _add(message, struct, *row)
    return protobuf_messages.reader(message)


def _add(
    message: protobuf_messages.Fields,
    struct: schema.Struct,
    number: int,
    name: str,
    go: str = "",
    inlined: str = "",
) -> None:
    go = go or name[0].upper() + name[1:]
    if inlined:
        message.take(number, go, protobuf_messages.inlined_field(_struct_reader(struct, inlined)))
        return
    of = struct.fields[name].type
    if isinstance(of, schema.ListOf):
        element = of.element
        if isinstance(element, schema.Struct):
            read_element = _struct_reader(element, element.name)
            message.take(number, go, protobuf_messages.messages_field(name, read_element))
        elif isinstance(element, schema.Scalar) and element.kind in _NUMBERS:
            convert = _NUMBERS[element.kind]
            message.put(number, go, protobuf_messages.numbers_field(name, convert))
            message.take(number, go, protobuf_messages.packed_field(name, convert))
        else:
            message.take(number, go, protobuf_messages.list_field(name, _element(element)[0]))
    elif isinstance(of, schema.MapOf):
        message.take(number, go, protobuf_messages.map_field(name, *_element(of.element)))
    elif isinstance(of, schema.Struct):
        message.take(number, go, protobuf_messages.message_field(name, _struct_reader(of, of.name)))
    elif of.kind in _NUMBERS:
        message.put(number, go, number_field(name, _NUMBERS[of.kind]))
    elif of.kind == "string":
        message.take(number, go, text_field(name))
    else:
        message.take(number, go, value_field(name, _SCALARS[of.kind][0]))


def _element(of: schema.Type) -> tuple[protobuf_messages.Value, Any]:
    """The reader for a value of a list or map, and the value for a missing one."""
    if isinstance(of, schema.ListOf):
        return _items(of), []
    assert isinstance(of, schema.Scalar), "no map has structs or maps in it"
    return _SCALARS[of.kind]


def _items(of: schema.ListOf) -> protobuf_messages.Value:
    """A list within a map, which is a message around the list's items."""
    fields = protobuf_messages.Fields(of.go.rpartition(".")[2])
    fields.take(1, "Items", protobuf_messages.list_field("items", _element(of.element)[0]))
    read_items = protobuf_messages.reader(fields)

    def value(data: bytes, pos: int, stop: int, _old: Any) -> Any:
        parts: Object = {"items": []}
        read_items(data, pos, stop, parts)
        return parts["items"]

    return value
