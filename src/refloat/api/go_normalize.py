# SPDX-License-Identifier: Apache-2.0
"""The normal form of an object: Go's output for Go's input.

Fields have their declared types, null and empty ones are absent, those that
Go always writes are there, and quantities, times and bytes are written in one
way only. Every request uses this module, so each type has one function, made once.
An object with any problem raises `NeedsSlowPath` without a reason; then `unmarshal.py`
reads the object again, slowly and with error messages.
"""

import base64
import binascii
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from refloat.api import quantity, schema, times
from refloat.api.meta import Object

Convert: TypeAlias = Callable[[Any], Any]
Make: TypeAlias = Callable[[], Any]


class NeedsSlowPath(Exception):
    """Something is unknown or of a wrong type."""


def convert(value: Any, struct: schema.Struct) -> Object:
    """A new object in normal form; `NeedsSlowPath` unless every field is known and fits."""
    obj: Object = _struct_converter(struct)(value)
    return obj


def _exact(kind: type) -> Convert:
    def convert_exact(value: Any) -> Any:
        if type(value) is not kind:
            raise NeedsSlowPath
        return value

    return convert_exact


def _within(limit: int) -> Convert:
    def convert_integer(value: Any) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise NeedsSlowPath
        return value

    return convert_integer


_int32 = _within(1 << 31)


def _quantity(value: Any) -> Any:
    if type(value) is int:
        value = str(value)
    elif type(value) is not str:
        raise NeedsSlowPath
    try:
        return quantity.canonical(value)
    except quantity.QuantityError:
        raise NeedsSlowPath from None


def _moment(normalize: Callable[[str], str | None]) -> Convert:
    def convert_moment(value: Any) -> Any:
        if type(value) is not str:
            raise NeedsSlowPath
        try:
            return normalize(value)
        except times.TimeError:
            raise NeedsSlowPath from None

    return convert_moment


def _bytes(value: Any) -> Any:
    if type(value) is not str:
        raise NeedsSlowPath
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise NeedsSlowPath from None
    # Python lets pass what Go does not, such as too much padding.
    if base64.b64encode(decoded).decode() != value:
        raise NeedsSlowPath
    return value


def _int_or_string(value: Any) -> Any:
    return value if type(value) is str else _int32(value)


_SCALARS: dict[str, tuple[Convert, Any]] = {
    "string": (_exact(str), ""),
    "bool": (_exact(bool), False),
    "int32": (_int32, 0),
    "int64": (_within(1 << 63), 0),
    "quantity": (_quantity, "0"),
    "time": (_moment(times.normalize), None),
    "microtime": (_moment(times.normalize_micro), None),
    "bytes": (_bytes, ""),
    "intorstring": (_int_or_string, 0),
    "fieldsv1": (lambda value: value, None),
}


@cache
def _converter(of: schema.Type) -> Convert:
    if isinstance(of, schema.Struct):
        return _struct_converter(of)
    if isinstance(of, schema.Scalar):
        return _SCALARS[of.kind][0]
    element, zero = _converter(of.element), _zero(of.element)

    def convert_list(value: Any) -> Any:
        if type(value) is not list:
            raise NeedsSlowPath
        return [zero() if item is None else element(item) for item in value]

    def convert_map(value: Any) -> Any:
        if type(value) is not dict:
            raise NeedsSlowPath
        return {key: zero() if item is None else element(item) for key, item in value.items()}

    return convert_list if isinstance(of, schema.ListOf) else convert_map


def _zero(of: schema.Type) -> Make:
    """Makes what stands for null among the elements of a list or map."""
    if isinstance(of, schema.Struct):
        return lambda: _struct_converter(of)({})
    if isinstance(of, schema.Scalar):
        value = _SCALARS[of.kind][1]
        return lambda: value
    return lambda: None


def _absent(field: schema.Field) -> Make:
    """Makes what Go writes for a field that is empty and not left out."""
    if field.pointer or isinstance(field.type, schema.ListOf | schema.MapOf):
        return lambda: None
    return _zero(field.type)


@cache
def _struct_converter(struct: schema.Struct) -> Convert:
    fields = struct.fields.values()
    always = [(each.name, _absent(each)) for each in fields if not each.omit]
    converters = {}
    for each in fields:
        is_int_or_string = isinstance(each.type, schema.Scalar) and each.type.kind == "intorstring"
        keeps_empty = each.pointer or is_int_or_string or isinstance(each.type, schema.Struct)
        converters[each.name] = _converter(each.type), keeps_empty

    def convert_struct(value: Any) -> Any:
        if type(value) is not dict:
            raise NeedsSlowPath
        obj = {}
        for key, item in value.items():
            converter = converters.get(key)
            if converter is None:
                raise NeedsSlowPath
            if item is not None:
                item = converter[0](item)
                if item or (converter[1] and item is not None):
                    obj[key] = item
        for key, make in always:
            if key not in obj:
                obj[key] = make()
        return obj

    return convert_struct
