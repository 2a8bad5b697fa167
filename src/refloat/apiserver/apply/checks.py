# SPDX-License-Identifier: Apache-2.0
"""Configurations that cannot be applied, in Kubernetes' words.

The server first checks an applied configuration against the schema. Unknown and
repeated fields and wrong types are errors here, although other writes may accept
them.
"""

import json
from collections.abc import Iterator
from typing import Any

from refloat.api import errors, schema
from refloat.api.meta import Object
from refloat.apiserver.apply import elements, shapes, structure
from refloat.apiserver.apply.shapes import ShapeKind
from refloat.apiserver.patch import go_values, rejections

_NUMBERS = ("int32", "int64", "uint8", "float64")
_NAMELESS = "associative list"
_ANY_SCALAR = ("quantity", "time", "microtime")


def check(config: Any, struct: schema.Struct) -> None:
    """Raise unless this is a configuration of this kind."""
    obj = config if isinstance(config, dict) else {}
    if (obj.get("apiVersion"), obj.get("kind")) != (struct.api_version, struct.kind):
        raise errors.bad_request(f"invalid object type: {_kind(obj)}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    if problems := list(_problems(config, struct, None, "")):
        text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        raise rejections.plain(f"failed to create typed patch object ({_named(config)}): {text}")


def check_live(live: Object, struct: schema.Struct) -> None:
    """Refuse to apply to an object with list items that no manager can own."""
    if structure.has_nameless_items(live, shapes.of(struct)):
        problems = (each for each in _problems(live, struct, None, "") if _NAMELESS in each)
        raise rejections.plain(
            "failed to create manager for existing fields: "
            f"failed to convert new object ({_named(live)}) to smd typed: {next(problems)}"
        )


def unconvertible(config: Object, cause: str) -> errors.StatusError:
    """The merged object is not one of its kind after all: a quantity, a time, a fraction."""
    subject = _named(config)
    kind = subject.partition("; ")[2]
    return rejections.plain(
        f"failed to convert new object ({subject}) to proper version: "
        f"unable to convert unstructured object to {kind}: {cause}"
    )


def _kind(config: Object) -> str:
    """Group, version and kind as Go prints them."""
    version, kind = _text(config.get("apiVersion")), _text(config.get("kind"))
    if version.count("/") > 1:
        version = kind = ""  # Go prints nothing for a malformed version
    full = version if "/" in version else f"/{version}"
    return f"{full}, Kind={kind}"


def _named(config: Object) -> str:
    metadata = config.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    return f"{_text(metadata.get('namespace'))}/{_text(metadata.get('name'))}; {_kind(config)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _problems(
    value: Any, type_: schema.Type, field: schema.Field | None, path: str
) -> Iterator[str]:
    if value is None:
        return
    if isinstance(type_, schema.Scalar):
        if text := _scalar_problem(value, type_):
            yield f"{path}: {text}"
    elif isinstance(type_, schema.ListOf):
        yield from _list_problems(value, type_, field, path)
    elif not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{go_values.show(value)}}}"
    elif isinstance(type_, schema.MapOf):
        for name, each in value.items():
            yield from _problems(each, type_.element, None, f"{path}.{name}")
    else:
        for name, each in value.items():
            if member := type_.fields.get(name):
                yield from _problems(each, member.type, member, f"{path}.{name}")
        unknown = [name for name in value if name not in type_.fields]
        yield from (f"{path}.{name}: field not declared in schema" for name in unknown[:1])


def _list_problems(
    value: Any, list_type: schema.ListOf, field: schema.Field | None, path: str
) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{go_values.show(value)}}}"
        return
    shape = shapes.LEAF if field is None else shapes.of_field(field)
    keys: set[str] = set()
    for index, item in enumerate(value):
        step = f"[{index}]"
        if shape.kind is not ShapeKind.LEAF:
            try:
                element = shape.item_element(item)
            except shapes.BadItem as error:
                yield f"{path}: element {index}: {error}"
                return
            step = elements.show(element)
            if element in keys:
                yield f"{path}: duplicate entries for key {step}"
            keys.add(element)
        yield from _problems(item, list_type.element, None, path + step)


def _scalar_problem(value: Any, scalar: schema.Scalar) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar.kind in ("any", "fieldsv1", "intorstring"):
        return ""
    if scalar.kind in _NUMBERS:
        name = go_values.type_name(value)
        return "" if is_number else f"expected numeric (int or float), got {name}"
    if scalar.kind == "bool":
        fits = isinstance(value, bool)
        return "" if fits else f"expected boolean, got &{{{go_values.show(value)}}}"
    if scalar.kind in _ANY_SCALAR:
        fits = not isinstance(value, dict | list)
        return "" if fits else f"expected any scalar, got &{{{go_values.show(value)}}}"
    if isinstance(value, str):
        return ""
    return f"expected string, got &value.valueUnstructured{{Value:{_source(value)}}}"


def _source(value: Any) -> str:
    """The value as Go source, as `%#v` prints it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)}:{_source(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_source, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return (
        json.dumps(value, ensure_ascii=False) if isinstance(value, str) else go_values.show(value)
    )
