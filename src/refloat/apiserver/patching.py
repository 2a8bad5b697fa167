# SPDX-License-Identifier: Apache-2.0
"""The patch verb: which format, applied to what is there, checked as an update."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from refloat.api import codec, errors, gojson, kinds, schema, unmarshal
from refloat.api.meta import Object
from refloat.apiserver.identity import Call
from refloat.apiserver.owner_references import dedup_owners
from refloat.apiserver.patch import (
    go_values,
    json_patch,
    merge_patch,
    rejected,
    strategic,
    strict,
    unstructured,
)
from refloat.apiserver.registry import Registry, check_name, place, revision
from refloat.apiserver.strategies.base import Strategy
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
    strategy = registry.strategies[resource]
    registry.get(resource, namespace, name)  # nothing is told of a patch to nothing
    parsed, problems = await call.run(0, _read, call, body, patch_format)

    def produce(old: Object) -> Object:
        struct = strategy.struct(old)
        patched = _changed(patch_format, parsed, struct, old)
        new = _checked(
            strategy,
            call,
            struct,
            patched,
            _shown(patch_format, parsed, patched),
            in_go_values=patch_format == "strategic",
            problems=problems,
        )
        place(resource, namespace, new)
        check_name(name, new)
        asked = revision(new["metadata"].get("resourceVersion") or "")
        if asked not in (0, revision(old["metadata"]["resourceVersion"])):
            raise errors.modified(resource.group, resource.plural, name)
        return new

    return await registry.modify(call, resource, namespace, name, produce, subresource=subresource)


def _read(call: Call, body: bytes, patch_format: Format) -> tuple[Any, list[str]]:
    """The patch, and what is wrong with it but can be passed over."""
    parsed = _parse(body, patch_format)
    if patch_format == "json":
        json_patch.check_shape(parsed, decodes_twice=call.validation != "Ignore")
    return parsed, _problems(call, body, parsed, patch_format)


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


def _changed(patch_format: Format, parsed: Any, struct: schema.Struct, old: Object) -> Any:
    if patch_format == "json":
        return json_patch.apply(old, parsed)
    if patch_format == "merge":
        return merge_patch.apply(old, parsed)
    return strategic.apply(old, parsed, struct)


def _shown(patch_format: Format, parsed: Any, patched: Any) -> Callable[[], str]:
    """How a message shows the patch that led to no valid object."""
    if patch_format == "strategic":
        return lambda: go_values.show(parsed)
    return lambda: msgspec.json.encode(patched).decode()


def _checked(
    strategy: Strategy,
    call: Call,
    struct: schema.Struct,
    patched: Any,
    shown: Callable[[], str],
    *,
    in_go_values: bool,
    problems: list[str],
) -> Object:
    """The patched document as an object of its kind, with defaults."""
    try:
        converted = _restored(patched, struct) if in_go_values else _converted(patched, struct)
    except (codec.Unreadable, unmarshal.Mismatch) as error:
        raise rejected.undecodable(shown(), str(error)) from error
    if call.validation == "Strict" and (problems or converted.problems):
        told = ", ".join([*problems, converted.strict] if converted.problems else problems)
        raise rejected.undecodable(shown(), f"strict decoding error: {told}")
    if call.validation == "Warn":
        for problem in (*problems, *converted.problems):
            call.warn(problem)
    strategy.default(converted.obj)
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


def _problems(call: Call, body: bytes, parsed: Any, patch_format: Format) -> list[str]:
    """What is wrong with the patch itself; told with what is wrong with its result."""
    if call.validation == "Ignore":
        return []
    try:
        repeats = codec.may_repeat_keys(body, parsed)
    except (msgspec.MsgspecError, UnicodeError):  # half a character, which Go reads
        repeats = True
    if patch_format == "json":
        return strict.operations(gojson.parse(body) if repeats else parsed)
    return strict.repeated(gojson.parse(body)) if repeats else []
