# SPDX-License-Identifier: Apache-2.0
"""The patch verb: apply a patch of any format, and check the result as an update."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from refloat.api import codec, errors, fields, gojson, schema, unmarshal
from refloat.api.meta import Object
from refloat.apiserver.identity import Call
from refloat.apiserver.owner_references import dedup_owners
from refloat.apiserver.patch import (
    go_values,
    json_patch,
    merge_patch,
    rejections,
    strategic,
    strict,
    unstructured,
)
from refloat.apiserver.registry import Registry, check_name, revision, set_namespace
from refloat.apiserver.routes import Target
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
    registry: Registry, call: Call, target: Target, patch_format: Format, body: bytes
) -> Entry:
    """Apply a patch to an object; after a conflict, apply it again."""
    resource, namespace, name = target.resource, target.namespace, target.name
    strategy = registry.strategies[resource]
    registry.get(resource, namespace, name)  # a missing object is 404, whatever the patch
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
        set_namespace(resource, namespace, new)
        check_name(name, new)
        version = revision(new["metadata"].get("resourceVersion") or "")
        if version not in (0, revision(old["metadata"]["resourceVersion"])):
            raise errors.modified(resource.group, resource.plural, name)
        return new

    return await registry.modify(call, target, produce)


def _read(call: Call, body: bytes, patch_format: Format) -> tuple[Any, list[str]]:
    """The patch, and the problems that validation may ignore."""
    parsed = _parse(body, patch_format)
    if patch_format == "json":
        json_patch.check_shape(parsed, decodes_twice=call.validation != "Ignore")
    return parsed, _problems(call, body, parsed, patch_format)


def _parse(body: bytes, patch_format: Format) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:  # Go accepts some bodies that are not quite JSON, and has its own words for the others
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
    """Makes the text of the patch or its result for an error message."""
    if patch_format == "strategic":
        return lambda: go_values.show(parsed)
    return lambda: msgspec.json.encode(patched).decode()


def _checked(
    strategy: Strategy,
    call: Call,
    struct: schema.Struct,
    patched: Any,
    describe: Callable[[], str],
    *,
    in_go_values: bool,
    problems: list[str],
) -> Object:
    """The patched document as an object of its kind, with defaults."""
    try:
        converted = (
            unstructured.convert(patched, struct) if in_go_values else _converted(patched, struct)
        )
    except (codec.Unreadable, unmarshal.Mismatch) as error:
        raise rejections.undecodable(describe(), str(error)) from error
    if call.validation == "Strict" and (problems or converted.problems):
        text = ", ".join([*problems, converted.strict] if converted.problems else problems)
        raise rejections.undecodable(describe(), f"strict decoding error: {text}")
    if call.validation == "Warn":
        for problem in (*problems, *converted.problems):
            call.warn(problem)
    strategy.default(converted.obj)
    dedup_owners(call, converted.obj, " after mutating admission happens")
    return converted.obj


def _converted(patched: Any, struct: schema.Struct) -> codec.Decoded:
    if codec.identify(patched, struct):
        return codec.convert(patched, struct)
    # Without a version, Kubernetes decodes into a type without fields.
    unknown = sorted(set(patched) - {"apiVersion", "kind"})
    problems = [f"unknown field {fields.quote(key)}" for key in unknown]
    return codec.Decoded(codec.convert({}, struct).obj, problems, ", ".join(problems))


def _problems(call: Call, body: bytes, parsed: Any, patch_format: Format) -> list[str]:
    """The problems of the patch itself; the answer lists them before those of the result."""
    if call.validation == "Ignore":
        return []
    try:
        repeats = codec.may_repeat_keys(body, parsed)
    except (msgspec.MsgspecError, UnicodeError):  # half a surrogate pair, which Go accepts
        repeats = True
    if patch_format == "json":
        return strict.operations(gojson.parse(body) if repeats else parsed)
    return strict.repeated(gojson.parse(body)) if repeats else []
