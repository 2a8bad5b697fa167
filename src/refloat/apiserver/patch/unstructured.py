# SPDX-License-Identifier: Apache-2.0
"""Why a strategically patched document does not fit its kind.

Kubernetes converts the result of a strategic merge straight into the kind's
Go type, with other words for a mismatch than its JSON decoder has. Only the
wording is here, for when the codec has refused the document; the values that
parse themselves (times, quantities) are the codec's to complain about.
"""

from typing import Any

from refloat.api import schema
from refloat.api.meta import Object

_KINDS: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "slice",
    dict: "map",
}
_INTEGERS = ("int32", "int64", "uint8")
_BYTE = schema.Scalar("uint8", "uint8")
_OWN_PARSERS = ("quantity", "time", "microtime", "duration", "intorstring", "fieldsv1", "any")


def mismatch(doc: Object, struct: schema.Struct) -> str | None:
    """The first mismatch in the order of the fields, or None when there is none."""
    return _mismatch(doc, struct)


def restored(value: Any, kind: schema.Type) -> Any:
    """A document without mismatches, with its numbers as Go keeps them: whole, and wrapped."""
    if isinstance(value, dict) and isinstance(kind, schema.Struct):
        fields = kind.fields
        return {
            name: restored(each, fields[name].type) if name in fields else each
            for name, each in value.items()
        }
    if isinstance(value, dict) and isinstance(kind, schema.MapOf):
        return {name: restored(each, kind.element) for name, each in value.items()}
    if isinstance(value, list) and isinstance(kind, schema.ListOf):
        return [restored(each, kind.element) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _wrapped(value, kind)
    return value


def _wrapped(value: float, kind: schema.Type) -> float:
    if not isinstance(kind, schema.Scalar) or kind.kind not in ("int32", "int64"):
        return value
    number = int(value)
    return (number + (1 << 31)) % (1 << 32) - (1 << 31) if kind.kind == "int32" else number


def without_place(text: str) -> str:
    """The complaint of a value that parses itself, which here does not know its field."""
    if text.startswith("illegal base64"):
        return f"error decoding from json: {text}"
    said, _, where = text.partition(" into Go struct field ")
    return f"{said} into Go value of type {where.partition(' of type ')[2]}" if where else text


def _mismatch(value: Any, kind: schema.Type) -> str | None:
    if value is None:
        return None
    if isinstance(kind, schema.Scalar):
        return _scalar(value, kind)
    found = _KINDS[type(value)]
    if isinstance(kind, schema.ListOf):
        if found != "slice":
            return f"cannot restore slice from {found}"
        return _first((each, kind.element) for each in value)
    if isinstance(kind, schema.MapOf):
        if found != "map":
            return f"cannot restore map from {found}"
        return _first((value[key], kind.element) for key in sorted(value))
    if found != "map":
        return f"cannot restore struct from: {found}"
    return _first((value.get(name), field.type) for name, field in kind.fields.items())


def _first(pairs: Any) -> str | None:
    for value, kind in pairs:
        if (text := _mismatch(value, kind)) is not None:
            return text
    return None


def _scalar(value: Any, kind: schema.Scalar) -> str | None:
    if kind.kind in _OWN_PARSERS:
        return None
    if kind.kind == "bytes":
        if isinstance(value, list):
            return _first((each, _BYTE) for each in value)
        return (
            None if isinstance(value, str) else f"cannot restore slice from {_KINDS[type(value)]}"
        )
    found = _KINDS[type(value)]
    if found == kind.kind or (found == "int64" and kind.kind in (*_INTEGERS, "float64")):
        return None
    if found == "float64" and kind.kind in _INTEGERS:
        return None if value.is_integer() else f"cannot convert float64 to {kind.go}"
    if found == "int64" and kind.kind == "string":
        return f"cannot convert int64 to {kind.go}"
    return f"unrecognized type: {kind.kind}"
