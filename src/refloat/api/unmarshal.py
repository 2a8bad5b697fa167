# SPDX-License-Identifier: Apache-2.0
"""Reading a value into a type as Go's decoder does, step by step.

The slow twin of `go_normalize.py`, for objects with problems. This module reports
errors in Go's words and order, lists unknown and duplicate fields, and merges
repeated fields as Go does. The result has only known fields of the right types;
`go_normalize.py` converts it to normal form.
"""

from dataclasses import dataclass
from typing import Any

from refloat.api import fields, gojson, quantity, schema, times
from refloat.api.meta import Object

# At most so many unknown and duplicate fields are in an answer, as in Kubernetes.
MAX_PROBLEMS = 100

# Null empties these; it leaves a struct and other scalars as they were before.
_EMPTIED = ("quantity", "time", "microtime", "bytes")

_LIMITS = {"int32": 1 << 31, "int64": 1 << 63}


class Mismatch(Exception):
    """The value is not of the type; the text is Go's."""


@dataclass(slots=True)
class _Place:
    """Where a value stands, for both kinds of messages."""

    struct: str  # the innermost struct's name
    fields: str  # names of fields alone, with those of inlined structs
    path: str  # also keys of maps and places in lists

    def field(self, struct: schema.Struct, field: schema.Field) -> "_Place":
        name = f"{field.inlined}{field.name}"
        fields = f"{self.fields}.{name}" if self.fields else name
        return _Place(struct.go.rpartition(".")[2], fields, self.key(field.name))

    def element(self, path: str) -> "_Place":
        return _Place(self.struct, self.fields, path)

    def key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def read(value: Any, struct: schema.Struct) -> tuple[Object, list[str]]:
    """The known fields, and what is unknown or repeated; `Mismatch` for wrong types."""
    reader = _Reader()
    obj: Object = reader.struct(value, struct, _Place("", "", ""), None)
    if reader.wrong is not None:
        raise Mismatch(reader.wrong)
    return obj, list(reader.problems)


class _Reader:
    def __init__(self) -> None:
        self.wrong: str | None = None  # the first wrong type; reading goes on
        self.problems: dict[str, None] = {}

    def value(self, value: Any, of: schema.Type, place: _Place, old: Any) -> Any:
        """The value as read; `old` is that of the same field, met before."""
        if isinstance(of, schema.Struct):
            return self.struct(value, of, place, old)
        if isinstance(of, schema.ListOf):
            return self._list(value, of, place, old)
        if isinstance(of, schema.MapOf):
            return self._map(value, of, place, old)
        return self._scalar(value, of, place, old)

    def struct(self, value: Any, of: schema.Struct, place: _Place, old: Any) -> Any:
        members = gojson.members(value)
        if members is None:
            return self._mistyped(value, of.go, place, old)
        obj = dict(old or {})
        keys = set()
        for key, item in members:
            field = of.fields.get(key)
            if field is None:
                self._problem("unknown", place.key(key))
                continue
            if key in keys:
                self._problem("duplicate", place.key(key))
            keys.add(key)
            self._field(item, field, place.field(of, field), obj)
        return obj

    def _field(self, value: Any, field: schema.Field, place: _Place, obj: Object) -> None:
        of = field.type
        if value is not None:
            obj[field.name] = self.value(value, of, place, obj.get(field.name))
        elif (
            field.pointer
            or isinstance(of, schema.ListOf | schema.MapOf)
            or (isinstance(of, schema.Scalar) and of.kind in _EMPTIED)
        ):
            obj[field.name] = None

    def _map(self, value: Any, of: schema.MapOf, place: _Place, old: Any) -> Any:
        members = gojson.members(value)
        if members is None:
            return self._mistyped(value, of.go, place, old)
        obj = dict(old or {})
        keys = set()
        for key, item in members:
            path = place.key(key)
            if key in keys:
                self._problem("duplicate", path)
            keys.add(key)
            if item is not None:
                item = self.value(item, of.element, place.element(path), None)
            obj[key] = item
        return obj

    def _list(self, value: Any, of: schema.ListOf, place: _Place, old: Any) -> Any:
        if not isinstance(value, list) or isinstance(value, gojson.Pairs):
            return self._mistyped(value, of.go, place, old)
        before = old or []
        items = []
        for index, item in enumerate(value):
            same = before[index] if index < len(before) else None
            if item is not None:
                there = place.element(f"{place.path}[{index}]")
                same = self.value(item, of.element, there, same)
            items.append(same)
        return items

    def _scalar(self, value: Any, of: schema.Scalar, place: _Place, old: Any) -> Any:
        match of.kind:
            case "string":
                return self._of_type(value, str, of, place, old)
            case "bool":
                return self._of_type(value, bool, of, place, old)
            case "int32" | "int64":
                return self._integer(value, of, place, old)
            case "bytes":
                return self._bytes(value, of, place, old)
            case "intorstring":
                return _int_or_string(value, place)
            case "quantity":
                return _quantity(value)
            case "time" | "microtime":
                return _time(value, of.kind, place)
        return gojson.plain(value)

    def _of_type(
        self, value: Any, python_type: type, of: schema.Scalar, place: _Place, old: Any
    ) -> Any:
        if type(value) is not python_type:
            return self._mistyped(value, of.go, place, old)
        return gojson.text(value) if isinstance(value, str) else value

    def _integer(self, value: Any, of: schema.Scalar, place: _Place, old: Any) -> Any:
        if gojson.kind(value) != "number":
            return self._mistyped(value, of.go, place, old)
        number = _integer(value, _LIMITS[of.kind])
        if number is None:
            return self._wrong(_mismatch(f"number {_literal(value)}", of.go, place), old)
        return number

    def _bytes(self, value: Any, of: schema.Scalar, place: _Place, old: Any) -> Any:
        """A text in base64, or a list of numbers."""
        kind = gojson.kind(value)
        if kind == "array":
            data = bytearray()
            for item in value:
                item = 0 if item is None else item
                if gojson.kind(item) != "number":
                    return self._mistyped(item, "uint8", place, old)
                number = _integer(item, 256)
                if number is None or number < 0:
                    return self._wrong(_mismatch(f"number {_literal(item)}", "uint8", place), old)
                data.append(number)
            return gojson.encode_base64(bytes(data))
        if kind != "string":
            return self._mistyped(value, of.go, place, old)
        try:
            return gojson.encode_base64(gojson.decode_base64(value))
        except ValueError as error:
            return self._wrong(str(error), old)

    def _mistyped(self, value: Any, go: str, place: _Place, old: Any) -> Any:
        return self._wrong(_mismatch(gojson.kind(value), go, place), old)

    def _wrong(self, text: str, old: Any) -> Any:
        if self.wrong is None:
            self.wrong = text
        return old

    def _problem(self, what: str, path: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems[f"{what} field {fields.quote(path)}"] = None


def _mismatch(value: str, go: str, place: _Place) -> str:
    if not place.fields:
        return f"json: cannot unmarshal {value} into Go value of type {go}"
    where = f"{place.struct}.{place.fields}"
    return f"json: cannot unmarshal {value} into Go struct field {where} of type {go}"


def _literal(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _integer(value: Any, limit: int) -> int | None:
    """The number, if the text is a whole number within the limit."""
    try:
        number = int(_literal(value))
    except ValueError:
        return None
    return number if -limit <= number < limit else None


def _int_or_string(value: Any, place: _Place) -> Any:
    kind = gojson.kind(value)
    if kind == "string":
        return gojson.text(value)
    number = _integer(value, _LIMITS["int32"]) if kind == "number" else None
    if number is None:
        text = f"number {_literal(value)}" if kind == "number" else kind
        raise Mismatch(_mismatch(text, "int32", place))
    return number


def _quantity(value: Any) -> Any:
    text = _literal(value) if gojson.kind(value) in ("number", "string") else "?"
    try:
        return quantity.canonical(text)
    except quantity.QuantityError as error:
        raise Mismatch(str(error)) from None


def _time(value: Any, kind: str, place: _Place) -> Any:
    if gojson.kind(value) != "string":
        raise Mismatch(_mismatch(gojson.kind(value), "string", place))
    try:
        normalize = times.normalize if kind == "time" else times.normalize_micro
        return normalize(gojson.text(value))
    except times.TimeError as error:
        raise Mismatch(str(error)) from None
