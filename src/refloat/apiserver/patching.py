# SPDX-License-Identifier: Apache-2.0
"""The patch verb: which format, applied to what is there, checked as an update."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from refloat.api import codec, errors, gojson, kinds, schema, unmarshal
from refloat.api.meta import Object
from refloat.apiserver.identity import Call
from refloat.apiserver.patch import (
    go_values,
    json_patch,
    merge_patch,
    rejected,
    strategic,
    unstructured,
)
from refloat.apiserver.registry import Registry, check_name, dedup_owners, revision
from refloat.store.contract import Entry

Format: TypeAlias = Literal["json", "merge", "strategic"]

APPLY = "application/apply-patch+yaml"

MEDIA_TYPES: dict[str, Format] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}


async def patch(
    registry: Registry,
    call: Call,
    resource: kinds.Resource,
    namespace: str,
    name: str,
    *,
    subresource: str,
    patch_format: Format,
    body: bytes,
) -> Entry:
    """Apply a patch to an object, again when another write came first."""
    registry.get(resource, namespace, name)  # nothing is told of a patch to nothing
    parsed = _parse(body, patch_format)
    struct = schema.struct(resource.api_version, resource.kind)
    change = _changer(patch_format, parsed, struct)

    def produce(old: Object) -> Object:
        patched = change(old)
        new = _checked(
            registry,
            call,
            resource,
            patched,
            _shown(patch_format, parsed, patched),
            in_go_values=patch_format == "strategic",
        )
        check_name(name, new)
        asked = revision(new["metadata"].get("resourceVersion") or "")
        if asked not in (0, revision(old["metadata"]["resourceVersion"])):
            raise errors.modified(resource.group, resource.plural, name)
        return new

    if patch_format == "json":
        json_patch.check_shape(parsed)
        _note_unknown(call, parsed)
    return await registry.modify(call, resource, namespace, name, produce, subresource=subresource)


def _parse(body: bytes, patch_format: Format) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _parse_slowly(body, patch_format)


def _parse_slowly(body: bytes, patch_format: Format) -> Any:
    """What Go makes of a body that is not quite JSON, or Go's words for it."""
    try:
        return gojson.plain(gojson.parse(body))
    except gojson.SyntaxProblem as problem:
        prefix = "" if patch_format == "strategic" else "error decoding patch: "
        raise errors.bad_request(f"{prefix}{problem}") from problem


def _changer(patch_format: Format, parsed: Any, struct: schema.Struct) -> Callable[[Object], Any]:
    if patch_format == "json":
        return lambda old: json_patch.apply(old, parsed)
    if patch_format == "merge":
        return lambda old: merge_patch.apply(old, parsed)
    return lambda old: strategic.apply(old, parsed, struct)


def _shown(patch_format: Format, parsed: Any, patched: Any) -> Callable[[], str]:
    """How a message shows the patch that led to no valid object."""
    if patch_format == "strategic":
        return lambda: go_values.show(parsed)
    return lambda: msgspec.json.encode(patched).decode()


def _checked(
    registry: Registry,
    call: Call,
    resource: kinds.Resource,
    patched: Any,
    shown: Callable[[], str],
    *,
    in_go_values: bool,
) -> Object:
    """The patched document as an object of its kind, with defaults."""
    struct = schema.struct(resource.api_version, resource.kind)
    try:
        converted = _restored(patched, struct) if in_go_values else _converted(patched, struct)
    except (codec.Unreadable, unmarshal.Mismatch) as error:
        raise rejected.undecodable(shown(), str(error)) from error
    if converted.problems and call.validation == "Strict":
        raise rejected.undecodable(shown(), f"strict decoding error: {converted.strict}")
    if call.validation == "Warn":
        for problem in converted.problems:
            call.warn(problem)
    registry.strategies[resource].default(converted.obj)
    dedup_owners(call, converted.obj, " after mutating admission happens")
    return converted.obj


def _converted(patched: Any, struct: schema.Struct) -> codec.Decoded:
    if codec.identify(patched, struct):
        return codec.convert(patched, struct)
    # Without a version Kubernetes takes it for a type of its own, without such fields.
    unknown = sorted(set(patched) - {"apiVersion", "kind"})
    problems = [f"unknown field {gojson.quoted(key)}" for key in unknown]
    return codec.Decoded(codec.convert({}, struct).obj, problems, ", ".join(problems))


def _restored(patched: Object, struct: schema.Struct) -> codec.Decoded:
    """The result of a strategic merge, whose kind and version nobody looks at."""
    try:
        return codec.convert(patched, struct)
    except unmarshal.Mismatch:
        if text := unstructured.mismatch(patched, struct):
            raise unmarshal.Mismatch(text) from None
    try:
        return codec.convert(unstructured.restored(patched, struct), struct)
    except unmarshal.Mismatch as error:
        raise unmarshal.Mismatch(unstructured.without_place(str(error))) from None


def _note_unknown(call: Call, operations: Any) -> None:
    problems = json_patch.unknown_fields(operations or [])
    if problems and call.validation == "Strict":
        raise errors.bad_request(f"strict decoding error: {', '.join(problems)}")
    if call.validation == "Warn":
        for problem in problems:
            call.warn(problem)
