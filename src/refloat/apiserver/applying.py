# SPDX-License-Identifier: Apache-2.0
"""The apply verb: a patch that states a wish, and creates what is not there."""

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
    config = _parse(body, strict=call.validation == "Strict")
    _check_names(resource, namespace, name, config)
    given = _text(config, "resourceVersion")
    key = stored.key(resource, namespace, name)
    if registry.store.get(key) is None and not subresource:
        _check_nothing_asked(resource, name, config)
        new = _applied(registry, call, resource, None, config, subresource)
        check_name(name, new)
        if revision(given) and not call.dry_run:
            del new["metadata"]["resourceVersion"]  # of something that was there before
        return await registry.create(call, resource, namespace, new, settled=True), True

    def produce(old: Object) -> Object:
        return _applied(registry, call, resource, old, config, subresource)

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


def _parse(body: bytes, *, strict: bool) -> Any:
    try:
        value, repeated = goyaml.parse(body)
    except goyaml.YamlProblem as problem:
        message = f"error decoding YAML: error converting YAML to JSON: {problem}"
        raise errors.bad_request(message) from problem
    if repeated and strict:
        told = "yaml: unmarshal errors:\n  " + "\n  ".join(repeated)
        raise errors.bad_request(
            f"error strict decoding YAML: error converting YAML to JSON: {told}"
        )
    return gojson.plain(value) if value is not None else {}


def _text(config: Any, field: str) -> str:
    """A text field of the configuration's metadata, before anything was checked."""
    metadata = config.get("metadata") if isinstance(config, dict) else None
    value = metadata.get(field) if isinstance(metadata, dict) else None
    return value if isinstance(value, str) else ""


def _check_names(resource: kinds.Resource, namespace: str, name: str, config: Any) -> None:
    given = _text(config, "name")
    if given and given != name:
        raise errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )
    if asked := _text(config, "namespace"):
        place(resource, namespace, {"metadata": {"namespace": asked}})


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
    struct = schema.struct(resource.api_version, resource.kind)
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
    try:
        return codec.convert(unstructured.restored(merged, struct), struct).obj
    except unmarshal.Mismatch as error:
        raise unmarshal.Mismatch(unstructured.without_place(str(error))) from None


def check_options(*, is_apply: bool, manager: str, forced: bool) -> None:
    """Refuse an apply without a manager, and a force without an apply."""
    if is_apply and not manager:
        mistake = fields.required("fieldManager", "is required for apply patch")
    elif forced and not is_apply:
        mistake = fields.forbidden("force", "may not be specified for non-apply patch")
    else:
        return
    raise errors.invalid("meta.k8s.io", "PatchOptions", "", [mistake])
