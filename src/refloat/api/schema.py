# SPDX-License-Identifier: Apache-2.0
"""The fields of every kind: names, types, and how lists and maps merge.

The facts stand in `schema.json`, which `tools/schema` generates from the Go
types of Kubernetes; nothing here is written by hand. The codec, the patch
engine and OpenAPI read it.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeAlias

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
    """A type with named fields, in the order of its JSON."""

    name: str  # unique in the table, for example `core.v1.PodSpec`
    go: str  # as error messages name it, for example `v1.PodSpec`
    fields: dict[str, "Field"] = field(default_factory=dict)
    atomic: bool = False  # for server-side apply: owned as a whole


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


@cache
def struct(api_version: str, kind: str) -> Struct:
    """The type of a kind, for example `struct("batch/v1", "Job")`."""
    raise KeyError(f"{api_version} {kind}")
