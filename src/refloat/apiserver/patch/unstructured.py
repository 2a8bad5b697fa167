# SPDX-License-Identifier: Apache-2.0
"""Conversion of a patched document into its kind, with Kubernetes' error messages.

Kubernetes converts the result of a strategic merge or an apply straight into the
kind's Go type, and the messages differ from those of the JSON decoder. This module
words the error after the codec has refused the document. Values with a parser of
their own (times, quantities) keep the message of the codec.
"""

from typing import Any

from refloat.api import codec, schema, unmarshal
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


def convert(doc: Object, struct: schema.Struct) -> codec.Decoded:
    """The object of a document, whose kind and version do not matter; raises `Mismatch`."""
    try:
        return codec.convert(doc, struct)
    except unmarshal.Mismatch:  # of numbers, those that Go keeps in part
        if text := mismatch(doc, struct):
            raise unmarshal.Mismatch(text) from None
    try:
        return codec.convert(restored(doc, struct), struct)
    except unmarshal.Mismatch as error:
        raise unmarshal.Mismatch(without_place(str(error))) from None


def mismatch(doc: Object, struct: schema.Struct) -> str | None:
    """The first mismatch in the order of the fields, or None."""
    return _mismatch(doc, struct)


def restored(value: Any, kind: schema.Type) -> Any:
    """A document without mismatches, with its numbers as in Go: whole, and wrapped."""
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
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isinstance(kind, schema.Scalar) or kind.kind not in ("int32", "int64"):
        return value
    number = int(value)
    return (number + (1 << 31)) % (1 << 32) - (1 << 31) if kind.kind == "int32" else number


def without_place(text: str) -> str:
    """The message of a value with its own parser, which here does not know its field."""
    if text.startswith("illegal base64"):
        return f"error decoding from json: {text}"
    problem, _, where = text.partition(" into Go struct field ")
    return f"{problem} into Go value of type {where.partition(' of type ')[2]}" if where else text


def _mismatch(value: Any, kind: schema.Type) -> str | None:
    if value is None:
        return None
    if isinstance(kind, schema.Scalar):
        return _scalar(value, kind)
    go_kind = _KINDS[type(value)]
    if isinstance(kind, schema.ListOf):
        if go_kind != "slice":
            return f"cannot restore slice from {go_kind}"
        return _first((each, kind.element) for each in value)
    if isinstance(kind, schema.MapOf):
        if go_kind != "map":
            return f"cannot restore map from {go_kind}"
        return _first((value[key], kind.element) for key in sorted(value))
    if go_kind != "map":
        return f"cannot restore struct from: {go_kind}"
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
    go_kind = _KINDS[type(value)]
    if go_kind == kind.kind or (go_kind == "int64" and kind.kind in (*_INTEGERS, "float64")):
        return None
    if go_kind == "float64" and kind.kind in _INTEGERS:
        return None if value.is_integer() else f"cannot convert float64 to {kind.go}"
    if go_kind == "int64" and kind.kind == "string":
        return f"cannot convert int64 to {kind.go}"
    return f"unrecognized type: {kind.kind}"
