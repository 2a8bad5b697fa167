# SPDX-License-Identifier: Apache-2.0
"""How Go prints decoded JSON and names its types.

The error messages of the patch formats have both. Only error paths use this module.
"""

from decimal import Decimal
from typing import Any

# Where Go's %v changes from digits to an exponent.
_EXPONENT_BELOW, _EXPONENT_FROM = -4, 6


_JSON_TYPES: dict[type, str] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}

_GO_TYPES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def json_type(value: Any) -> str:
    """The type's name in an error of Go's JSON decoder."""
    return _JSON_TYPES.get(type(value), "null")


def type_name(value: Any) -> str:
    """The Go type of a decoded value, as `%s` prints it."""
    return _GO_TYPES.get(type(value), "%!s(<nil>)")


def show(value: Any) -> str:
    """The value as `%v` prints it: maps sorted by key, text without quotes."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{show(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(show(each) for each in value)}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    exact = Decimal(repr(value)).normalize()
    exponent = exact.adjusted()
    if _EXPONENT_BELOW <= exponent < _EXPONENT_FROM:
        return f"{exact:f}"
    return f"{exact.scaleb(-exponent).normalize():f}e{exponent:+03d}"


def show_string(value: Any) -> str:
    """The value as `%s` prints it, which complains about what is no text."""
    if isinstance(value, str | list | dict):
        return show(value)
    if value is None:
        return "%!s(<nil>)"
    return f"%!s({type_name(value)}={show(value)})"
