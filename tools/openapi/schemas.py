# SPDX-License-Identifier: Apache-2.0
"""The types of the API as OpenAPI schemas, under the names that Kubernetes gives them.

The schemas follow from the table in `refloat.api.schema`. Only the types with a JSON
form of their own are here by hand. `paths` has the addresses.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

from tools.openapi import descriptions, enums

from refloat.api.schema import Field, ListOf, MapOf, Scalar, Struct, Type

Schema: TypeAlias = dict[str, Any]

_PACKAGES = {"meta": "io.k8s.apimachinery.pkg.apis.", "version": "io.k8s.apimachinery.pkg."}
_API_PACKAGE = "io.k8s.api."

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."

PATCH = f"{_META}Patch"

_INLINE: dict[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "uint8": {"type": "integer", "format": "byte"},
    "float64": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
"""Leaves that are written in place."""

_ZERO: dict[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "float64": 0,
}

_REFERRED = {
    "quantity": "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "time": f"{_META}Time",
    "microtime": f"{_META}MicroTime",
    "duration": f"{_META}Duration",
    "intorstring": "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    "fieldsv1": f"{_META}FieldsV1",
    "any": "io.k8s.apimachinery.pkg.runtime.RawExtension",
}
"""Leaves that are types of their own."""

_LEAVES: dict[str, Schema] = {
    _REFERRED["quantity"]: {"oneOf": [{"type": "string"}, {"type": "number"}]},
    _REFERRED["time"]: {"type": "string", "format": "date-time"},
    _REFERRED["microtime"]: {"type": "string", "format": "date-time"},
    _REFERRED["duration"]: {"type": "string"},
    _REFERRED["intorstring"]: {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    _REFERRED["fieldsv1"]: {"type": "object"},
    _REFERRED["any"]: {"type": "object"},
    PATCH: {"type": "object"},
}

# Fields that may be left out and yet declare their type's zero as default.
_ZERO_BY_DECLARATION = frozenset(
    {
        ("core.v1.AzureDiskVolumeSource", "readOnly"),
        ("core.v1.ConfigMapEnvSource", "name"),
        ("core.v1.ConfigMapKeySelector", "name"),
        ("core.v1.ConfigMapProjection", "name"),
        ("core.v1.ConfigMapVolumeSource", "name"),
        ("core.v1.FileKeySelector", "optional"),
        ("core.v1.GRPCAction", "service"),
        ("core.v1.LocalObjectReference", "name"),
        ("core.v1.SecretEnvSource", "name"),
        ("core.v1.SecretKeySelector", "name"),
        ("core.v1.SecretProjection", "name"),
    }
)

# The field that decides the meaning of the others, which is not in Go's tags.
_UNIONS: dict[str, Schema] = {
    "core.v1.AppArmorProfile": {
        "discriminator": "type",
        "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"},
    },
    "core.v1.PodSchedulingGroup": {
        "fields-to-discriminateBy": {"podGroupName": "PodGroupName"},
    },
    "core.v1.SeccompProfile": {
        "discriminator": "type",
        "fields-to-discriminateBy": {"localhostProfile": "LocalhostProfile"},
    },
}

# Every group takes these kinds under its own name, too.
_IN_EVERY_GROUP = frozenset({"DeleteOptions", "WatchEvent"})


def name_of(struct: Struct) -> str:
    """A struct's name in the document, for example `io.k8s.api.core.v1.Pod`."""
    package = struct.name.partition(".")[0]
    return _PACKAGES.get(package, _API_PACKAGE) + struct.name


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def components(roots: Iterable[Struct], group: str, version: str) -> dict[str, Schema]:
    """The schemas of these structs and of all that they are made of, by name."""
    schemas: dict[str, Schema] = {}
    waiting = list(roots)
    while waiting:
        struct = waiting.pop()
        name = name_of(struct)
        if name in schemas:
            continue
        schemas[name] = _struct(struct, group, version)
        for field in struct.fields.values():
            inner = _innermost(field.type)
            if isinstance(inner, Struct):
                waiting.append(inner)
            elif inner.kind in _REFERRED:
                schemas[_REFERRED[inner.kind]] = leaf(_REFERRED[inner.kind])
    return schemas


def leaf(name: str) -> Schema:
    """The schema of a type with a JSON form of its own."""
    return (
        _described(descriptions.named(name.removeprefix("io.k8s.apimachinery.pkg.")))
        | _LEAVES[name]
    )


def _innermost(of: Type) -> Scalar | Struct:
    while isinstance(of, ListOf | MapOf):
        of = of.element
    return of


def _described(text: str) -> Schema:
    return {"description": text} if text else {}


def _struct(struct: Struct, group: str, version: str) -> Schema:
    result = _described(descriptions.of(struct)) | {"type": "object"}
    required = [each.name for each in struct.fields.values() if each.required]
    if required:
        result["required"] = required
    if struct.fields:
        result["properties"] = {
            name: _property(struct, struct.fields[name]) for name in sorted(struct.fields)
        }
    if struct.kind:
        result["x-kubernetes-group-version-kind"] = _kinds(struct, group, version)
    if struct.atomic:
        result["x-kubernetes-map-type"] = "atomic"
    if struct.name in _UNIONS:
        result["x-kubernetes-unions"] = [_UNIONS[struct.name]]
    return result


def _kinds(struct: Struct, group: str, version: str) -> list[dict[str, str]]:
    own_group, _, own_version = struct.api_version.rpartition("/")
    group_kinds = [{"group": own_group, "kind": struct.kind, "version": own_version}]
    if struct.kind in _IN_EVERY_GROUP and group:
        group_kinds.append({"group": group, "kind": struct.kind, "version": version})
    return group_kinds


def _property(struct: Struct, field: Field) -> Schema:
    result = _described(descriptions.of_field(struct, field.name))
    if isinstance(field.type, Scalar):
        result |= _scalar(field.type, _default(struct, field))
    else:
        result |= _type(field.type, bare=not field.pointer)
    if "$ref" in result:
        result["allOf"] = [{"$ref": result.pop("$ref")}]
    return result | _extensions(field)


def _default(struct: Struct, field: Field) -> Any:
    """What an absent field stands for, where that is known; else None."""
    if field.default is not None:
        return field.default
    never_absent = not field.omit and not field.pointer
    if never_absent or (struct.name, field.name) in _ZERO_BY_DECLARATION:
        return _zero(field.type)
    return None


def _zero(of: Type) -> Any:
    return _ZERO.get(of.kind) if isinstance(of, Scalar) else None


def _extensions(field: Field) -> Schema:
    """How the field merges, for those who make patches and applies."""
    result: Schema = {
        "x-kubernetes-list-map-keys": list(field.list_map_keys),
        "x-kubernetes-list-type": field.list_type,
        "x-kubernetes-map-type": field.map_type,
        "x-kubernetes-patch-merge-key": field.patch_merge_key,
        "x-kubernetes-patch-strategy": ",".join(field.patch_strategies),
    }
    return {name: value for name, value in result.items() if value}


def _type(of: Type, *, bare: bool = True) -> Schema:
    """A type in its place; `bare` without a pointer."""
    if isinstance(of, Struct):
        whole = reference(name_of(of))
        return {"default": {}, "allOf": [whole]} if bare else whole
    if isinstance(of, ListOf):
        return {"type": "array", "items": _type(of.element)}
    if isinstance(of, MapOf):
        return {"type": "object", "additionalProperties": _type(of.element)}
    return _scalar(of, _zero(of))


def _scalar(of: Scalar, default: Any) -> Schema:
    if of.kind in _REFERRED:
        return reference(_REFERRED[of.kind])
    result = dict(_INLINE[of.kind])
    if default is not None:
        result["default"] = default
    if of.go in enums.VALUES:
        result["enum"] = enums.VALUES[of.go]
    return result
