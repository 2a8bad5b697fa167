# SPDX-License-Identifier: Apache-2.0
"""Objects in protobuf, in which kubectl and all Go clients write what they create.

The numbers of the fields stand in `protobuf.json`, which `tools/schema`
generates; their types in `schema.py`. From both, one function is made for
each message, once. What comes out is the object as its JSON would be, and the
codec goes on with it as it does with JSON. Only reading is done here: answers
are JSON, which every such client accepts.
"""

import base64
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import msgspec

from refloat.api import messages, quantity, schema, wire
from refloat.api.meta import Object

Malformed = wire.Malformed

MAGIC = b"k8s\x00"

_NO_MAGIC = (
    "provided data does not appear to be a protobuf message, "
    f"expected prefix [{' '.join(str(byte) for byte in MAGIC)}]"
)

# The number and the name in JSON; where it cannot be told from that, the name
# in Go; and for an inlined struct, which has no name in JSON, that struct's.
_Row: TypeAlias = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 # all is UTC; without a zone it is faster
_YEAR_0 = -62_167_219_200
_YEAR_1 = -62_135_596_800
_YEAR_10000 = 253_402_300_800

# Python knows no year 0; in the year 2000 the calendar is the same.
_2000_YEARS = 5 * 146_097 * 86_400

_NUMBERS: dict[str, messages.Number] = {
    "bool": bool,
    "int32": wire.int32,
    "int64": wire.int64,
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What stands around every object: its version and kind, and where its bytes are."""

    api_version: str
    kind: str
    _data: bytes
    _start: int
    _end: int

    def read(self, struct: schema.Struct) -> Object:
        """The object as JSON would have it, without version and kind; or `Malformed`."""
        made: Object = {}
        _struct_reader(struct, struct.name)(self._data, self._start, self._end, made)
        return made


def unwrap(body: bytes) -> Envelope:
    """Open the envelope; `Malformed` when the body is none."""
    if not body:
        raise Malformed("empty data")
    if not body.startswith(MAGIC):
        raise Malformed(_NO_MAGIC)
    if len(body) == len(MAGIC):
        raise Malformed("empty body")
    data = body + b"\x00"  # the byte after the end that `messages` asks for
    made: Object = {}
    _UNKNOWN(data, len(MAGIC), len(body), made)
    said = made.get("typeMeta", {})
    start, end = made.get("raw", (0, 0))
    return Envelope(said.get("apiVersion", ""), said.get("kind", ""), data, start, end)


def _bytes(data: bytes, pos: int, stop: int, _old: Any) -> str:
    return base64.b64encode(data[pos:stop]).decode()


def _span(_data: bytes, pos: int, stop: int, _old: Any) -> tuple[int, int]:
    return pos, stop


def _amount(data: bytes, pos: int, stop: int, _old: Any) -> str:
    written = messages.text(data, pos, stop, None)
    # JSON alone allows spaces around it.
    if written != written.strip():
        raise Malformed(quantity.BAD_FORM)
    try:
        return quantity.canonical(written)
    except quantity.QuantityError as error:
        raise Malformed(str(error)) from None


def _read_type_meta() -> messages.Read:
    made = messages.Fields("TypeMeta")
    made.take(1, "APIVersion", messages.text_field("apiVersion"))
    made.take(2, "Kind", messages.text_field("kind"))
    return messages.reader(made)


def _read_unknown() -> messages.Read:
    made = messages.Fields("Unknown")
    made.take(1, "TypeMeta", messages.message_field("typeMeta", _read_type_meta()))
    made.take(2, "Raw", messages.value_field("raw", _span))
    made.take(3, "ContentEncoding", messages.text_field("contentEncoding"))
    made.take(4, "ContentType", messages.text_field("contentType"))
    return messages.reader(made)


def _read_quantity() -> messages.Read:
    made = messages.Fields("Quantity")
    made.take(1, "String_", messages.value_field("string", _amount))
    return messages.reader(made)


def _read_timestamp() -> messages.Read:
    made = messages.Fields("Timestamp")
    made.put(1, "Seconds", messages.number_field("seconds", wire.int64))
    made.put(2, "Nanos", messages.number_field("nanos", wire.int32))
    return messages.reader(made)


def _read_int_or_string() -> messages.Read:
    made = messages.Fields("IntOrString")
    made.put(1, "Type", messages.number_field("type", wire.int64))
    made.put(2, "IntVal", messages.number_field("int", wire.int32))
    made.take(3, "StrVal", messages.text_field("string"))
    return messages.reader(made)


def _read_fields_v1() -> messages.Read:
    made = messages.Fields("FieldsV1")
    made.take(1, "Raw", messages.text_field("raw"))
    return messages.reader(made)


_UNKNOWN = _read_unknown()
_QUANTITY = _read_quantity()
_TIMESTAMP = _read_timestamp()
_INT_OR_STRING = _read_int_or_string()
_FIELDS_V1 = _read_fields_v1()


def _quantity(data: bytes, pos: int, stop: int, old: Any) -> Any:
    made: Object = {"string": "0" if old is None else old}
    _QUANTITY(data, pos, stop, made)
    return made["string"]


def _time(data: bytes, pos: int, stop: int, _old: Any) -> Any:
    """Whole seconds; nothing at all is the zero time."""
    if pos == stop:
        return None
    made: Object = {}
    _TIMESTAMP(data, pos, stop, made)
    return f"{_moment(made.get('seconds', 0))}Z"


def _micro_time(data: bytes, pos: int, stop: int, _old: Any) -> Any:
    if pos == stop:
        return None
    made: Object = {}
    _TIMESTAMP(data, pos, stop, made)
    nanos = made.get("nanos", 0)
    # Cut off towards zero, as Go divides.
    micros = nanos // 1000 if nanos >= 0 else -(-nanos // 1000)
    seconds, micros = divmod(made.get("seconds", 0) * 1_000_000 + micros, 1_000_000)
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
    made: Object = {"type": 0, "int": 0, "string": ""}
    if isinstance(old, str):
        made |= {"type": 1, "string": old}
    elif old is not None:
        made["int"] = old
    _INT_OR_STRING(data, pos, stop, made)
    if made["type"] not in (0, 1):
        raise Malformed("impossible IntOrString.Type")
    return made["string"] if made["type"] else made["int"]


def _fields_v1(data: bytes, pos: int, stop: int, old: Any) -> Any:
    """JSON within; a text where it is none, for Kubernetes does not look into it yet."""
    made: Object = {}
    _FIELDS_V1(data, pos, stop, made)
    raw = made.get("raw")
    if raw is None:
        return old
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return raw


# How a scalar is read, and what stands for one that is left out of a map's entry.
_SCALARS: dict[str, tuple[messages.Value, Any]] = {
    "string": (messages.text, ""),
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
def _struct_reader(struct: schema.Struct, name: str) -> messages.Read:
    """Of the struct itself, or of the one with that name that is inlined in it."""
    made = messages.Fields(name.rpartition(".")[2])
    for row in _rows()[name]:
        _add(made, struct, *row)
    return messages.reader(made)


def _add(
    made: messages.Fields,
    struct: schema.Struct,
    number: int,
    name: str,
    go: str = "",
    inlined: str = "",
) -> None:
    go = go or name[0].upper() + name[1:]
    if inlined:
        made.take(number, go, messages.inlined_field(_struct_reader(struct, inlined)))
        return
    of = struct.fields[name].type
    if isinstance(of, schema.ListOf):
        _add_list(made, number, name, go, of.element)
    elif isinstance(of, schema.MapOf):
        made.take(number, go, messages.map_field(name, *_element(of.element)))
    elif isinstance(of, schema.Struct):
        made.take(number, go, messages.message_field(name, _struct_reader(of, of.name)))
    else:
        _add_scalar(made, number, name, go, of.kind)


def _add_list(made: messages.Fields, number: int, name: str, go: str, of: schema.Type) -> None:
    if isinstance(of, schema.Struct):
        made.take(number, go, messages.messages_field(name, _struct_reader(of, of.name)))
    elif isinstance(of, schema.Scalar) and of.kind in _NUMBERS:
        made.put(number, go, messages.numbers_field(name, _NUMBERS[of.kind]))
        made.take(number, go, messages.packed_field(name, _NUMBERS[of.kind]))
    else:
        made.take(number, go, messages.list_field(name, _element(of)[0]))


def _add_scalar(made: messages.Fields, number: int, name: str, go: str, kind: str) -> None:
    if kind in _NUMBERS:
        made.put(number, go, messages.number_field(name, _NUMBERS[kind]))
    elif kind == "string":
        made.take(number, go, messages.text_field(name))
    else:
        made.take(number, go, messages.value_field(name, _SCALARS[kind][0]))


def _element(of: schema.Type) -> tuple[messages.Value, Any]:
    """How a value of a list or map is read, and what stands for it where it is left out."""
    if isinstance(of, schema.ListOf):
        return _items(of), []
    assert isinstance(of, schema.Scalar), "no map has structs or maps in it"
    return _SCALARS[of.kind]


def _items(of: schema.ListOf) -> messages.Value:
    """A list within a map, which is a message around the list's items."""
    fields = messages.Fields(of.go.rpartition(".")[2])
    fields.take(1, "Items", messages.list_field("items", _element(of.element)[0]))
    read = messages.reader(fields)

    def value(data: bytes, pos: int, stop: int, _old: Any) -> Any:
        made: Object = {"items": []}
        read(data, pos, stop, made)
        return made["items"]

    return value
