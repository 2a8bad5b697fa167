# SPDX-License-Identifier: Apache-2.0
"""The normal form of an object: what Go writes after it has read it.

Fields have their declared types, null and empty ones are absent, those that
Go always writes are there, and quantities, times and bytes are written in one
way only. This is on the path of every request: each type has one function,
made once, and an object that is in any way odd raises `Odd` without a word
why. `unmarshal.py` then reads it again, slowly and with words.
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

_INT32 = 1 << 31
_INT64 = 1 << 63


class Odd(Exception):
    """Something is unknown or of a wrong type."""


def convert(value: Any, struct: schema.Struct) -> Object:
    """A new object in normal form; `Odd` unless every field is known and fits."""
    made: Object = _struct_converter(struct)(value)
    return made


def _string(value: Any) -> Any:
    if type(value) is not str:
        raise Odd
    return value


def _bool(value: Any) -> Any:
    if type(value) is not bool:
        raise Odd
    return value


def _int32(value: Any) -> Any:
    if type(value) is not int or not -_INT32 <= value < _INT32:
        raise Odd
    return value


def _int64(value: Any) -> Any:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise Odd
    return value


def _quantity(value: Any) -> Any:
    if type(value) is int:
        value = str(value)
    elif type(value) is not str:
        raise Odd
    try:
        return quantity.canonical(value)
    except quantity.QuantityError:
        raise Odd from None


def _time(value: Any) -> Any:
    if type(value) is not str:
        raise Odd
    try:
        return times.normalize(value)
    except times.TimeError:
        raise Odd from None


def _micro_time(value: Any) -> Any:
    if type(value) is not str:
        raise Odd
    try:
        return times.normalize_micro(value)
    except times.TimeError:
        raise Odd from None


def _bytes(value: Any) -> Any:
    if type(value) is not str:
        raise Odd
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Odd from None
    # Python lets pass what Go does not, such as too much padding.
    if base64.b64encode(decoded).decode() != value:
        raise Odd
    return value


def _int_or_string(value: Any) -> Any:
    return value if type(value) is str else _int32(value)


def _as_is(value: Any) -> Any:
    return value


_SCALARS: dict[str, tuple[Convert, Any]] = {
    "string": (_string, ""),
    "bool": (_bool, False),
    "int32": (_int32, 0),
    "int64": (_int64, 0),
    "quantity": (_quantity, "0"),
    "time": (_time, None),
    "microtime": (_micro_time, None),
    "bytes": (_bytes, ""),
    "intorstring": (_int_or_string, 0),
    "fieldsv1": (_as_is, None),
}


@cache
def _converter(of: schema.Type) -> Convert:
    if isinstance(of, schema.Struct):
        return _struct_converter(of)
    if isinstance(of, schema.ListOf):
        return _list_converter(_converter(of.element), _zero(of.element))
    if isinstance(of, schema.MapOf):
        return _map_converter(_converter(of.element), _zero(of.element))
    return _SCALARS[of.kind][0]


def _zero(of: schema.Type) -> Make:
    """Makes what stands for null among the elements of a list or map."""
    if isinstance(of, schema.Struct):
        return lambda: _struct_converter(of)({})
    if isinstance(of, schema.Scalar):
        value = _SCALARS[of.kind][1]
        return lambda: value
    return lambda: None


def _list_converter(element: Convert, zero: Make) -> Convert:
    def convert_list(value: Any) -> Any:
        if type(value) is not list:
            raise Odd
        return [zero() if item is None else element(item) for item in value]

    return convert_list


def _map_converter(element: Convert, zero: Make) -> Convert:
    def convert_map(value: Any) -> Any:
        if type(value) is not dict:
            raise Odd
        return {key: zero() if item is None else element(item) for key, item in value.items()}

    return convert_map


def _absent(field: schema.Field) -> Make:
    """Makes what Go writes for a field that is empty and not left out."""
    if field.pointer or isinstance(field.type, schema.ListOf | schema.MapOf):
        return lambda: None
    return _zero(field.type)


def _keeps_empty(field: schema.Field) -> bool:
    """Whether an empty value, once given, stays: behind a pointer it does."""
    if isinstance(field.type, schema.Scalar):
        return field.pointer or field.type.kind == "intorstring"
    return field.pointer or isinstance(field.type, schema.Struct)


@cache
def _struct_converter(struct: schema.Struct) -> Convert:
    fields = struct.fields.values()
    converters = {each.name: (_converter(each.type), _keeps_empty(each)) for each in fields}
    always = [(each.name, _absent(each)) for each in fields if not each.omit]

    def convert_struct(value: Any) -> Any:
        if type(value) is not dict:
            raise Odd
        made = {}
        for key, item in value.items():
            found = converters.get(key)
            if found is None:
                raise Odd
            if item is not None:
                item = found[0](item)
                if item or (found[1] and item is not None):
                    made[key] = item
        for key, make in always:
            if key not in made:
                made[key] = make()
        return made

    return convert_struct
