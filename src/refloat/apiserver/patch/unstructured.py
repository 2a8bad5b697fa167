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
_OWN_PARSERS = ("quantity", "time", "microtime", "duration", "intorstring", "fieldsv1", "any")


def mismatch(doc: Object, struct: schema.Struct) -> str | None:
    """The first mismatch in the order of the fields, or None when there is none."""
    return _mismatch(doc, struct)


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
        fits = isinstance(value, str | list)
        return None if fits else f"cannot restore slice from {_KINDS[type(value)]}"
    found = _KINDS[type(value)]
    if found == kind.kind or (found == "int64" and kind.kind in (*_INTEGERS, "float64")):
        return None
    if found == "float64" and kind.kind in _INTEGERS:
        return None if value.is_integer() else f"cannot convert float64 to {kind.go}"
    if found == "int64" and kind.kind == "string":
        return f"cannot convert int64 to {kind.go}"
    return f"unrecognized type: {kind.kind}"
