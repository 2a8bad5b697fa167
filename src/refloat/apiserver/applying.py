# SPDX-License-Identifier: Apache-2.0
"""The apply verb: a patch that states a wish, and creates what is not there."""

from collections.abc import Mapping
from typing import Any

from refloat.api import codec, errors, fields, gojson, goyaml, kinds, schema, unmarshal
from refloat.api.meta import Object
from refloat.apiserver import apply, stored
from refloat.apiserver.apply import checks
from refloat.apiserver.identity import Call
from refloat.apiserver.patch import unstructured
from refloat.apiserver.registry import Registry, check_name, place, revision
from refloat.store.contract import Entry


async def patch(
    registry: Registry,
    call: Call,
    resource: kinds.Resource,
    namespace: str,
    name: str,
    *,
    subresource: str,
    body: bytes,
) -> tuple[Entry, bool]:
    """Apply a configuration; was the object created?"""
    config, repeated = await call.run(0, _parse, body)
    given = _text(config, "resourceVersion")
    key = stored.key(resource, namespace, name)
    if registry.store.get(key) is None and not subresource:
        new = await call.run(0, _applied, registry, call, resource, None, config, subresource)
        _tell_repeated(call, repeated)
        _check_nothing_asked(resource, name, config)
        place(resource, namespace, new)
        check_name(name, new)
        if revision(given) and not call.dry_run:
            del new["metadata"]["resourceVersion"]  # of something that was there before
        return await registry.create(call, resource, namespace, new, settled=True), True

    def produce(old: Object) -> Object:
        new = _applied(registry, call, resource, old, config, subresource)
        _tell_repeated(call, repeated)
        place(resource, namespace, new)
        check_name(name, new)
        return new

    entry = await registry.modify(
        call,
        resource,
        namespace,
        name,
        produce,
        subresource=subresource,
        given=given,
        settled=True,
    )
    return entry, False


def _parse(body: bytes) -> tuple[Any, list[str]]:
    """The configuration, and what is wrong with keys that stand twice in it."""
    try:
        value, repeated = goyaml.parse(body)
    except goyaml.YamlProblem as problem:
        message = f"error decoding YAML: error converting YAML to JSON: {problem}"
        raise errors.bad_request(message) from problem
    if value is None:
        return {}, repeated
    if gojson.kind(value) != "object":
        raise errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: "
            f"cannot unmarshal {gojson.kind(value)} into Go value of type map[string]interface {{}}"
        )
    return gojson.plain(value), repeated


def _tell_repeated(call: Call, repeated: list[str]) -> None:
    if repeated and call.validation == "Strict":
        told = "yaml: unmarshal errors:\n  " + "\n  ".join(repeated)
        raise errors.bad_request(
            f"error strict decoding YAML: error converting YAML to JSON: {told}"
        )
    if call.validation == "Warn":
        for each in repeated:
            call.warn(each)


def _text(config: Any, field: str) -> str:
    """A text field of the configuration's metadata, before anything was checked."""
    metadata = config.get("metadata") if isinstance(config, dict) else None
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def _check_nothing_asked(resource: kinds.Resource, name: str, config: Any) -> None:
    """A configuration that means a certain object does not create another."""
    if uid := _text(config, "uid"):
        raise errors.conflict(
            resource.group,
            resource.plural,
            name,
            f"uid mismatch: the provided object specified uid {uid}, "
            "and no existing object was found",
        )


def _applied(
    registry: Registry,
    call: Call,
    resource: kinds.Resource,
    live: Object | None,
    config: Object,
    subresource: str,
) -> Object:
    """The object that the configuration leads to, with defaults."""
    struct = registry.strategies[resource].struct(live)
    merged = apply.apply(
        live,
        config,
        manager=call.manager,
        force=call.force,
        struct=struct,
        api_version=resource.api_version,
        subresource=subresource,
        now=call.now,
    )
    try:
        new = _converted(merged, struct)
    except unmarshal.Mismatch as error:
        raise checks.unconvertible(config, str(error)) from error
    registry.strategies[resource].default(new)
    return new


def _converted(merged: Object, struct: schema.Struct) -> Object:
    try:
        return codec.convert(merged, struct).obj
    except unmarshal.Mismatch:  # of numbers, those that Go would keep in part
        pass
    if text := unstructured.mismatch(merged, struct):
        raise unmarshal.Mismatch(text)
    try:
        return codec.convert(unstructured.restored(merged, struct), struct).obj
    except unmarshal.Mismatch as error:
        raise unmarshal.Mismatch(unstructured.without_place(str(error))) from None


def option_mistakes(query: Mapping[str, str], *, is_apply: bool) -> list[fields.FieldError]:
    """An apply without a manager, or a force without an apply."""
    if is_apply and not query.get("fieldManager"):
        return [fields.required("fieldManager", "is required for apply patch")]
    if "force" in query and not is_apply:
        return [fields.forbidden("force", "may not be specified for non-apply patch")]
    return []
