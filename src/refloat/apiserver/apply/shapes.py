# SPDX-License-Identifier: Apache-2.0
"""The shape of a type for ownership: a leaf with one owner, or parts with owners.

Scalars are leaves, and so are lists and maps that the schema calls atomic; a list
without a type is atomic. All others have owners for each member or item.
"""

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

from refloat.api import schema
from refloat.apiserver.apply import elements


class ShapeKind(Enum):
    LEAF = "leaf"
    STRUCT = "struct"
    MAP = "map"
    SET = "set"  # a list of different scalars
    KEYED = "keyed"  # a list of structs with keys


class BadItem(Exception):
    """A list item without identity; the message has the reason."""


@dataclass(slots=True, eq=False)
class Shape:
    kind: ShapeKind
    type: schema.Type
    element: "Shape | None" = None  # of a map or list
    keys: tuple[str, ...] = ()
    defaults: dict[str, Any] = field(default_factory=dict)  # the values of absent keys
    _members: "dict[str, Shape]" = field(default_factory=dict, repr=False)

    def is_named(self, name: str) -> bool:
        """Whether this is a field of a struct, not a key of a map."""
        return isinstance(self.type, schema.Struct) and name in self.type.fields

    def member(self, name: str) -> "Shape":
        """The shape of a member; unknown fields are leaves."""
        if self.element is not None:
            return self.element
        shape = self._members.get(name)
        if shape is None:
            assert isinstance(self.type, schema.Struct)
            struct_field = self.type.fields.get(name)
            shape = self._members[name] = LEAF if struct_field is None else of_field(struct_field)
        return shape

    def part(self, path_element: str) -> "Shape":
        """The shape at a path element."""
        if self.kind is ShapeKind.LEAF:
            return self
        if self.kind in (ShapeKind.SET, ShapeKind.KEYED):
            return self.element or LEAF
        return self.member(path_element[2:])

    def item_element(self, item: Any) -> str:
        """The path element of a list's item."""
        if self.kind is ShapeKind.SET:
            if isinstance(item, dict):
                raise BadItem("associative list without keys has an element that's a map type")
            if isinstance(item, list):
                raise BadItem("not supported: associative list with lists as elements")
            if item is None:
                text = "associative list without keys has an element that's an explicit null"
                raise BadItem(text)
            return elements.item(item)
        if item is None:
            raise BadItem("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise BadItem("associative list with keys may not have non-map elements")
        keys = {}
        for name in self.keys:
            value = item.get(name, self.defaults.get(name))
            if value is not None or name in item:
                keys[name] = value
        if not keys:
            names = " ".join(f'"{name}"' for name in self.keys)
            raise BadItem(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return elements.keyed(keys)


LEAF = Shape(ShapeKind.LEAF, schema.Scalar("any", ""))


@cache
def of(struct: schema.Struct) -> Shape:
    """The shape of a kind."""
    return Shape(ShapeKind.STRUCT, struct)


def of_field(struct_field: schema.Field) -> Shape:
    type_ = struct_field.type
    if isinstance(type_, schema.ListOf):
        if struct_field.list_type == "set":
            return Shape(ShapeKind.SET, type_, element=_of_type(type_.element))
        if struct_field.list_type == "map":
            keys, element = struct_field.list_map_keys, _of_type(type_.element)
            members = element.type.fields if isinstance(element.type, schema.Struct) else {}
            defaults = {
                name: _blank(member)
                if member.default is None and not member.omit
                else member.default
                for name in keys
                if (member := members.get(name))
            }
            return Shape(ShapeKind.KEYED, type_, element, keys, defaults)
        return Shape(ShapeKind.LEAF, type_)
    if struct_field.map_type == "atomic":
        return Shape(ShapeKind.LEAF, type_)
    if isinstance(type_, schema.Struct) and struct_field.map_type == "granular":
        return of(type_)
    return _of_type(type_)


def _of_type(type_: schema.Type) -> Shape:
    if isinstance(type_, schema.Struct) and not type_.atomic:
        return of(type_)
    if isinstance(type_, schema.MapOf):
        return Shape(ShapeKind.MAP, type_, element=_of_type(type_.element))
    return Shape(ShapeKind.LEAF, type_)


# The zero values of Go.
_ZEROS: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "float64": 0,
    "quantity": "0",
    "intorstring": 0,
    "duration": "0s",
}


def blank(struct: schema.Struct) -> dict[str, Any]:
    """An empty object of this kind, with Go's zero values."""
    return {
        name: _blank(struct_field)
        for name, struct_field in struct.fields.items()
        if not struct_field.omit
    }


def _blank(struct_field: schema.Field) -> Any:
    if struct_field.pointer:
        return None
    if isinstance(struct_field.type, schema.Struct):
        return blank(struct_field.type)
    return (
        _ZEROS.get(struct_field.type.kind) if isinstance(struct_field.type, schema.Scalar) else None
    )
