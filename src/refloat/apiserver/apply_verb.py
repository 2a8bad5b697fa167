# SPDX-License-Identifier: Apache-2.0
"""The apply verb: a patch that states the desired fields, and creates a missing object."""

from collections.abc import Mapping
from typing import Any

from refloat.api import errors, fields, gojson, goyaml, unmarshal
from refloat.api.meta import Object
from refloat.apiserver import apply, storage_codec
from refloat.apiserver.apply import checks
from refloat.apiserver.identity import Call
from refloat.apiserver.patch import unstructured
from refloat.apiserver.registry import Registry, check_name, revision, set_namespace
from refloat.apiserver.routes import Target
from refloat.store.contract import Entry


async def patch(registry: Registry, call: Call, target: Target, body: bytes) -> tuple[Entry, bool]:
    """Apply a configuration; the second value is whether that created the object."""
    resource, namespace, name = target.resource, target.namespace, target.name
    config, repeated = await call.run(0, _parse, body)
    resource_version = _text(config, "resourceVersion")

    def produce(old: Object | None) -> Object:
        new = _applied(registry, call, target, old, config)
        if repeated and call.validation == "Strict":
            raise errors.bad_request(
                "error strict decoding YAML: error converting YAML to JSON: "
                "yaml: unmarshal errors:\n  " + "\n  ".join(repeated)
            )
        if call.validation == "Warn":
            for each in repeated:
                call.warn(each)
        if old is None and (uid := _text(config, "uid")):
            cause = f"uid mismatch: the provided object specified uid {uid}"
            cause += ", and no existing object was found"
            raise errors.conflict(resource.group, resource.plural, name, cause)
        set_namespace(resource, namespace, new)
        check_name(name, new)
        return new

    key = storage_codec.key(resource, namespace, name)
    if registry.store.get(key) is None and not target.subresource:
        new = await call.run(0, produce, None)
        if revision(resource_version) and not call.dry_run:
            del new["metadata"]["resourceVersion"]  # of something that was there before
        return await registry.create(call, resource, namespace, new, owners_final=True), True

    entry = await registry.modify(
        call, target, produce, resource_version=resource_version, owners_final=True
    )
    return entry, False


def _parse(body: bytes) -> tuple[Any, list[str]]:
    """The configuration, and a problem for each repeated key."""
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


def _text(config: Any, field: str) -> str:
    """A text field of the configuration's metadata, which is unchecked here."""
    metadata = config.get("metadata") if isinstance(config, dict) else None
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def _applied(
    registry: Registry, call: Call, target: Target, live: Object | None, config: Object
) -> Object:
    """The object that the configuration leads to, with defaults."""
    strategy = registry.strategies[target.resource]
    struct = strategy.struct(live)
    merged = apply.apply(
        live,
        config,
        manager=call.manager,
        force=call.force,
        struct=struct,
        api_version=target.resource.api_version,
        subresource=target.subresource,
        now=call.now,
    )
    try:
        new = unstructured.convert(merged, struct).obj
    except unmarshal.Mismatch as error:
        raise checks.unconvertible(config, str(error)) from error
    strategy.default(new)
    return new


def option_mistakes(query: Mapping[str, str], *, is_apply: bool) -> list[fields.FieldError]:
    """An apply without a manager, or a force without an apply."""
    if is_apply and not query.get("fieldManager"):
        return [fields.required("fieldManager", "is required for apply patch")]
    if "force" in query and not is_apply:
        return [fields.forbidden("force", "may not be specified for non-apply patch")]
    return []
