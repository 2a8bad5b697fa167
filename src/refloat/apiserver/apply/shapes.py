# SPDX-License-Identifier: Apache-2.0
"""What ownership sees of a type: a leaf, owned as a whole, or its parts.

Scalars are leaves, and so are the lists and maps that the schema calls
atomic; a list without a type is one of them. The rest is owned member by
member and item by item.
"""

from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any

from refloat.api import schema
from refloat.apiserver.apply import elements


class Kind(Enum):
    LEAF = "leaf"
    STRUCT = "struct"
    MAP = "map"
    SET = "set"  # a list of different scalars
    KEYED = "keyed"  # a list of structs, told apart by their keys


class BadItem(Exception):
    """A list item that cannot be told apart from others; the text says why."""


@dataclass(slots=True, eq=False)
class Shape:
    kind: Kind
    type: schema.Type
    element: "Shape | None" = None  # of a map or list
    keys: tuple[str, ...] = ()
    _members: "dict[str, Shape]" = field(default_factory=dict, repr=False)

    def is_named(self, name: str) -> bool:
        """Whether this is a field of a struct, and no key of a map."""
        return isinstance(self.type, schema.Struct) and name in self.type.fields

    def member(self, name: str) -> "Shape":
        """The shape of a member; unknown fields are leaves."""
        if self.element is not None:
            return self.element
        found = self._members.get(name)
        if found is None:
            assert isinstance(self.type, schema.Struct)
            known = self.type.fields.get(name)
            found = self._members[name] = LEAF if known is None else of_field(known)
        return found

    def part(self, path_element: str) -> "Shape":
        """The shape at a path element."""
        if self.kind is Kind.LEAF:
            return self
        if self.kind in (Kind.SET, Kind.KEYED):
            return self.element or LEAF
        return self.member(path_element[2:])

    def item_element(self, item: Any) -> str:
        """The path element of a list's item."""
        if self.kind is Kind.SET:
            return _set_element(item)
        if item is None:
            raise BadItem("associative list with keys may not have a null element")
        if not isinstance(item, dict):
            raise BadItem("associative list with keys may not have non-map elements")
        found = {}
        for name in self.keys:
            value = item.get(name, self._default(name))
            if value is not None or name in item:
                found[name] = value
        if not found:
            named = " ".join(f'"{name}"' for name in self.keys)
            raise BadItem(
                f"associative list with keys has an element that omits all key fields [{named}] "
                "(and doesn't have default values for any key fields)"
            )
        return elements.keyed(found)

    def _default(self, name: str) -> Any:
        """What stands in for a key that is absent."""
        assert self.element is not None
        if not isinstance(self.element.type, schema.Struct):
            return None
        known = self.element.type.fields.get(name)
        if known is None or known.default is not None:
            return known and known.default
        return None if known.omit else _blank(known)


LEAF = Shape(Kind.LEAF, schema.Scalar("any", ""))


def _set_element(item: Any) -> str:
    if isinstance(item, dict):
        raise BadItem("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise BadItem("not supported: associative list with lists as elements")
    if item is None:
        raise BadItem("associative list without keys has an element that's an explicit null")
    return elements.item(item)


@cache
def of(struct: schema.Struct) -> Shape:
    """The shape of a kind."""
    return Shape(Kind.STRUCT, struct)


def of_field(known: schema.Field) -> Shape:
    if isinstance(known.type, schema.ListOf):
        return _of_list(known, known.type)
    if known.map_type == "atomic":
        return Shape(Kind.LEAF, known.type)
    if isinstance(known.type, schema.Struct) and known.map_type == "granular":
        return of(known.type)
    return _of_type(known.type)


def _of_list(known: schema.Field, listed: schema.ListOf) -> Shape:
    if known.list_type == "set":
        return Shape(Kind.SET, listed, element=_of_type(listed.element))
    if known.list_type == "map":
        return Shape(Kind.KEYED, listed, _of_type(listed.element), known.list_map_keys)
    return Shape(Kind.LEAF, listed)


def _of_type(known: schema.Type) -> Shape:
    if isinstance(known, schema.Struct) and not known.atomic:
        return of(known)
    if isinstance(known, schema.MapOf):
        return Shape(Kind.MAP, known, element=_of_type(known.element))
    return Shape(Kind.LEAF, known)


# What a field of a Go struct holds before anything is put into it.
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
    """An object of this kind before anything was written to it."""
    return {name: _blank(known) for name, known in struct.fields.items() if not known.omit}


def _blank(known: schema.Field) -> Any:
    if known.pointer:
        return None
    if isinstance(known.type, schema.Struct):
        return blank(known.type)
    return _ZEROS.get(known.type.kind) if isinstance(known.type, schema.Scalar) else None
