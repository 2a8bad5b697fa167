# SPDX-License-Identifier: Apache-2.0
"""Configurations that cannot be applied, in Kubernetes' words.

An applied configuration is checked against the schema before anything else:
what is unknown, repeated or of another type is refused here, although it
might pass in another write.
"""

import json
from collections.abc import Iterator
from typing import Any

from refloat.api import errors, schema
from refloat.api.meta import Object
from refloat.apiserver.apply import elements, shapes, structure
from refloat.apiserver.apply.shapes import Kind, Shape
from refloat.apiserver.patch import go_values, rejected

_NUMBERS = ("int32", "int64", "uint8", "float64")
_NAMELESS = "associative list"
_ANY_SCALAR = ("quantity", "time", "microtime")


def check(config: Any, struct: schema.Struct) -> None:
    """Refuse what is not a configuration of this kind."""
    _check_kind(config, struct)
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    if problems := list(_problems(config, struct, None, "")):
        text = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
        raise rejected.plain(f"failed to create typed patch object ({_named(config)}): {text}")


def check_live(live: Object, struct: schema.Struct) -> None:
    """Refuse to apply to an object with items that nobody could own."""
    if structure.has_nameless_items(live, shapes.of(struct)):
        problems = (each for each in _problems(live, struct, None, "") if _NAMELESS in each)
        raise rejected.plain(
            "failed to create manager for existing fields: "
            f"failed to convert new object ({_named(live)}) to smd typed: {next(problems)}"
        )


def unconvertible(config: Object, cause: str) -> errors.StatusError:
    """The merged object is not one of its kind after all: a quantity, a time, a fraction."""
    named = _named(config)
    kind = named.partition("; ")[2]
    return rejected.plain(
        f"failed to convert new object ({named}) to proper version: "
        f"unable to convert unstructured object to {kind}: {cause}"
    )


def _check_kind(config: Any, struct: schema.Struct) -> None:
    given = config if isinstance(config, dict) else {}
    if (given.get("apiVersion"), given.get("kind")) != (struct.api_version, struct.kind):
        raise errors.bad_request(f"invalid object type: {_kind(given)}")


def _kind(config: Object) -> str:
    """Group, version and kind as Go prints them."""
    version, kind = _text(config.get("apiVersion")), _text(config.get("kind"))
    if version.count("/") > 1:
        version = kind = ""  # nothing is known of an object whose version is none
    full = version if "/" in version else f"/{version}"
    return f"{full}, Kind={kind}"


def _named(config: Object) -> str:
    metadata = config.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    return f"{_text(given.get('namespace'))}/{_text(given.get('name'))}; {_kind(config)}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _problems(
    value: Any, known: schema.Type, field: schema.Field | None, path: str
) -> Iterator[str]:
    if value is None:
        return
    if isinstance(known, schema.Scalar):
        text = _scalar_problem(value, known)
        if text:
            yield f"{path}: {text}"
    elif isinstance(known, schema.ListOf):
        yield from _list_problems(value, known, field, path)
    elif not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{go_values.show(value)}}}"
    elif isinstance(known, schema.MapOf):
        for name, each in value.items():
            yield from _problems(each, known.element, None, f"{path}.{name}")
    else:
        yield from _struct_problems(value, known, path)


def _struct_problems(value: Object, known: schema.Struct, path: str) -> Iterator[str]:
    for name, each in value.items():
        field = known.fields.get(name)
        if field is not None:
            yield from _problems(each, field.type, field, f"{path}.{name}")
    unknown = next((name for name in value if name not in known.fields), None)
    if unknown is not None:
        yield f"{path}.{unknown}: field not declared in schema"


def _list_problems(
    value: Any, known: schema.ListOf, field: schema.Field | None, path: str
) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{go_values.show(value)}}}"
        return
    shape = shapes.LEAF if field is None else shapes.of_field(field)
    seen: set[str] = set()
    for index, item in enumerate(value):
        step = f"[{index}]"
        if shape.kind is not Kind.LEAF:
            try:
                element = _element(item, shape)
            except shapes.BadItem as error:
                yield f"{path}: element {index}: {error}"
                return
            step = elements.show(element)
            if element in seen:
                yield f"{path}: duplicate entries for key {step}"
            seen.add(element)
        yield from _problems(item, known.element, None, path + step)


def _element(item: Any, shape: Shape) -> str:
    return shape.item_element(item)


def _scalar_problem(value: Any, known: schema.Scalar) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if known.kind in ("any", "fieldsv1", "intorstring"):
        return ""
    if known.kind in _NUMBERS:
        name = go_values.type_name(value)
        return "" if is_number else f"expected numeric (int or float), got {name}"
    if known.kind == "bool":
        fits = isinstance(value, bool)
        return "" if fits else f"expected boolean, got &{{{go_values.show(value)}}}"
    if known.kind in _ANY_SCALAR:
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
