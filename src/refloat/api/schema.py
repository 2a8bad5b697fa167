# SPDX-License-Identifier: Apache-2.0
"""The fields of every kind: names, types, and how lists and maps merge.

The facts stand in `schema.json`, which `tools/schema` generates from the Go
types of Kubernetes; by hand stand here only the fields that Kubernetes does
not have. The codec, the patch engine and OpenAPI read it.
"""

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias

import msgspec

ScalarKind: TypeAlias = Literal[
    "string",
    "bool",
    "int32",
    "int64",
    "uint8",
    "float64",
    "bytes",
    "quantity",
    "time",
    "microtime",
    "duration",
    "intorstring",
    "fieldsv1",
    "any",
]


@dataclass(slots=True, eq=False)
class Scalar:
    """A leaf."""

    kind: ScalarKind
    go: str  # the Go type's name, which error messages carry


@dataclass(slots=True, eq=False)
class ListOf:
    element: "Type"
    go: str


@dataclass(slots=True, eq=False)
class MapOf:
    """A map from strings."""

    element: "Type"
    go: str


@dataclass(slots=True, eq=False)
class Struct:
    """A type with named fields, in the order of the JSON."""

    name: str  # unique in the table, for example `core.v1.PodSpec`
    go: str  # as error messages name it, for example `v1.PodSpec`
    fields: dict[str, "Field"] = field(default_factory=dict, repr=False)
    atomic: bool = False  # for server-side apply: owned as a whole
    kind: str = ""  # where the struct is a kind
    api_version: str = ""


Type: TypeAlias = Scalar | ListOf | MapOf | Struct


@dataclass(slots=True, eq=False)
class Field:
    """A field of a struct."""

    name: str
    type: Type
    pointer: bool = False  # a present zero value is kept
    omit: bool = True  # left out of the JSON when empty
    required: bool = False
    # strategic merge patch
    patch_strategies: tuple[str, ...] = ()  # of merge, replace, retainKeys
    patch_merge_key: str = ""
    # server-side apply
    list_type: Literal["", "atomic", "set", "map"] = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: Literal["", "atomic", "granular"] = ""
    default: Any = None  # stands in for an absent key of a list of type map
    inlined: str = ""  # the prefix of an inlined struct in error messages: `VolumeSource.`


# The bits of a field's flags in schema.json.
_POINTER, _OMIT, _REQUIRED = 1, 2, 4

# Every group has these kinds under the group's version.
_IN_EVERY_GROUP = frozenset({"DeleteOptions", "Status"})


class _Extras(msgspec.Struct):
    """What most fields do not have."""

    s: str = ""
    k: str = ""
    l: Literal["", "atomic", "set", "map"] = ""  # noqa: E741
    m: tuple[str, ...] = ()
    t: Literal["", "atomic", "granular"] = ""
    d: Any = None
    i: str = ""


class _Struct(msgspec.Struct):
    go: str
    fields: list[tuple[Any, ...]]
    atomic: bool = False


class _Document(msgspec.Struct):
    version: str
    kinds: dict[str, str]
    registered: dict[str, frozenset[str]]
    types: list[tuple[Any, ...]]
    structs: dict[str, _Struct]


class _Schema:
    """The table, with types linked to each other."""

    def __init__(self, document: _Document) -> None:
        self.version = document.version
        self.registered = document.registered
        self.structs = {
            name: Struct(name, each.go, atomic=each.atomic)
            for name, each in document.structs.items()
        }
        self.kinds = {key: self.structs[name] for key, name in document.kinds.items()}
        for key, kind in self.kinds.items():
            kind.api_version, kind.kind = key.split(" ")
        self._types: dict[int, Type] = {}
        self._document = document
        for name, each in document.structs.items():
            fields = (self._field(*row) for row in each.fields)
            self.structs[name].fields.update((field.name, field) for field in fields)

    def _field(
        self, name: str, place: int, flags: int, extras: dict[str, Any] | None = None
    ) -> Field:
        field = Field(
            name,
            self._type(place),
            pointer=bool(flags & _POINTER),
            omit=bool(flags & _OMIT),
            required=bool(flags & _REQUIRED),
        )
        if extras:
            _extend(field, msgspec.convert(extras, _Extras))
        return field

    def _type(self, place: int) -> Type:
        of = self._types.get(place)
        if of is None:
            kind, go, *element = self._document.types[place]
            if kind == "struct":
                of = self.structs[go]
            elif kind == "list":
                of = ListOf(self._type(element[0] if element else 0), go)
            elif kind == "map":
                of = MapOf(self._type(element[0] if element else 0), go)
            else:
                of = Scalar(kind, go)
            self._types[place] = of
        return of


def _extend(field: Field, extras: _Extras) -> None:
    field.patch_strategies = tuple(filter(None, extras.s.split(",")))
    field.patch_merge_key = extras.k
    field.list_type = extras.l
    field.list_map_keys = extras.m
    field.map_type = extras.t
    field.default = extras.d
    field.inlined = extras.i


@cache
def _schema() -> _Schema:
    text = resources.files("refloat.api").joinpath("schema.json").read_bytes()
    catalogue = _Schema(msgspec.json.decode(text, type=_Document))
    # Why a pod is deleted (KEP-3329, first design); Kubernetes has no such field.
    reason = Field("reason", Scalar("string", "string"), pointer=True)
    catalogue.structs["meta.v1.DeleteOptions"].fields["reason"] = reason
    return catalogue


def kubernetes_version() -> str:
    """The version of Kubernetes that the table is of."""
    return _schema().version


def kinds() -> dict[str, Struct]:
    """All kinds, under keys like `batch/v1 Job`; not to be changed."""
    return _schema().kinds


def is_registered(api_version: str, kind: str) -> bool:
    """Whether Kubernetes knows such a kind, in this table or not."""
    return kind in _schema().registered.get(api_version, ())


def named(name: str) -> Struct:
    """A struct by the name in the table, for example `core.v1.PodSpec`."""
    return _schema().structs[name]


@cache
def struct(api_version: str, kind: str) -> Struct:
    """The type of a kind, for example `struct("batch/v1", "Job")`."""
    if kind in _IN_EVERY_GROUP:
        api_version = "v1"
    return _schema().kinds[f"{api_version} {kind}"]
