# SPDX-License-Identifier: Apache-2.0
"""The verbs, below HTTP: reading and writing objects by Kubernetes' rules.

The HTTP server and the in-process client both call them. An object goes in as a
decoded dictionary and comes out as an `Entry`; `storage_codec` turns an entry into
bytes or into a new dictionary.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from refloat.api import codec, errors, fields, integers, kinds, meta, names, schema, times
from refloat.api.meta import Object
from refloat.apiserver import (
    admission,
    apply,
    deletion,
    full_disk,
    node_restriction,
    storage_codec,
    strategies,
)
from refloat.apiserver.identity import Call, LazyArgument
from refloat.apiserver.owner_references import dedup_owners
from refloat.apiserver.routes import Target
from refloat.apiserver.strategies.base import Strategy
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store import errors as store_errors
from refloat.store.contract import Entry, Store

_NODES = kinds.of("nodes")

Produce: TypeAlias = Callable[[Object], Object]
"""Makes the new object from the stored one."""

# Kubernetes tries to generate a name this often.
MAX_NAME_TRIES = 8

# After so many conflicts in a row, the write fails.
MAX_RACES = 20

MAX_PREFIX = 58  # a generated name is at most 63 long, with its suffix


class Registry:
    """Objects of all kinds, on a store."""

    def __init__(
        self,
        store: Store,
        *,
        rand: Rand,
        gates: Gates,
        toleration_seconds: int = admission.TOLERATION_SECONDS,
    ) -> None:
        """`toleration_seconds` is how long pods by default stay on a lost node."""
        self.store = store
        self.strategies = strategies.build(gates)
        self._rand = rand
        self._admission = admission.Admission(store, toleration_seconds)

    # -- reading ---------------------------------------------------------

    def get(self, resource: kinds.Resource, namespace: str, name: str) -> Entry:
        entry = self.store.get(storage_codec.key(resource, namespace, name))
        if entry is None:
            raise _absent(resource, name)
        return entry

    # -- decoding --------------------------------------------------------

    def decode(
        self,
        call: Call,
        resource: kinds.Resource,
        body: bytes,
        media: codec.Media,
        live: Object | None = None,
    ) -> Object:
        """Read an object of this kind from a body, with defaults.

        `live` is the object that the body replaces.
        """
        strategy = self.strategies[resource]
        obj = decode(call, body, strategy.struct(live), media)
        strategy.default(obj)
        return obj

    # -- creating --------------------------------------------------------

    async def create(
        self,
        call: Call,
        resource: kinds.Resource,
        namespace: str,
        obj: Object,
        *,
        owners_final: bool = False,
    ) -> Entry:
        """Create an object; `owners_final`: the managed fields in the object stay as they are."""
        strategy = self.strategies[resource]
        if not owners_final:
            obj["metadata"].pop("managedFields", None)
        self._prepare_create(call, strategy, namespace, obj)

        def encoded() -> bytes:
            """The bytes of the valid object; may run in a thread."""
            if mistakes := strategy.validate_create(obj):
                name = obj["metadata"].get("name", "")
                raise errors.invalid(strategy.error_group, resource.kind, name, mistakes)
            for text in strategy.warnings(obj, None):
                call.warn(text)
            strategy.complete_create(obj)
            return storage_codec.pack(resource, obj)

        value = await call.run(0, encoded)
        # The namespace may have become terminating while a thread checked the object.
        self._admission.recheck(resource, obj)
        self._admission.validate(resource, obj, "")
        if _number(obj["metadata"].get("resourceVersion")) and not call.dry_run:
            message = "resourceVersion should not be set on objects to be created"
            raise errors.StatusError(500, "", message)
        return await self._insert(call, resource, obj["metadata"], value)

    def _prepare_create(self, call: Call, strategy: Strategy, namespace: str, obj: Object) -> None:
        resource = strategy.resource
        set_namespace(resource, namespace, obj)
        dedup_owners(call, obj)
        self._admission.on_create(call, resource, obj)
        node_restriction.on_create(call, resource, obj, self.get)
        metadata = obj["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(name, None)
        if not metadata.get("name") and metadata.get("generateName"):
            # This comes before other values depend on the name, such as a Job's labels.
            prefix = metadata["generateName"][:MAX_PREFIX]
            for _ in range(MAX_NAME_TRIES):
                metadata["name"] = prefix + self._rand.suffix()
                key = storage_codec.key(resource, metadata.get("namespace", ""), metadata["name"])
                if self.store.get(key) is None:
                    break
            if "labels" in metadata:
                # Kubernetes tries names on copies, so that a Job whose name it
                # generates no longer shares its labels with its template.
                metadata["labels"] = dict(metadata["labels"])
        metadata["uid"] = self._rand.uid()
        metadata["creationTimestamp"] = times.format_time(call.now)
        strategy.prepare_create(obj, call)

    async def _insert(
        self, call: Call, resource: kinds.Resource, metadata: Object, value: bytes
    ) -> Entry:
        key = storage_codec.key(resource, metadata.get("namespace", ""), metadata["name"])
        try:
            if not call.dry_run:
                full_disk.check(self.store, resource, value)
                return await self.store.create(key, value)
            if self.store.get(key) is None:
                # A dry run echoes the version that it was sent.
                return Entry(key, value, 0, _number(metadata.get("resourceVersion")))
        except store_errors.Exists:
            pass
        raise self._taken(resource, key, metadata)

    def _taken(self, resource: kinds.Resource, key: str, metadata: Object) -> errors.StatusError:
        error = errors.already_exists(resource.group, resource.plural, metadata["name"])
        message, details = error.message, error.details or {}
        if metadata.get("generateName"):
            message += ", the server was not able to generate a unique name for the object"
            details["retryAfterSeconds"] = 1
        holder = self.store.get(key)
        if holder is not None and meta.is_terminating(storage_codec.unpack(resource, holder)):
            message = f"object is being deleted: {message}"
        return errors.StatusError(error.code, error.reason, message, details=details)

    # -- updating --------------------------------------------------------

    async def replace(
        self, call: Call, target: Target, decode: Callable[[Object | None], Object]
    ) -> tuple[Entry, bool]:
        """Write a whole object; the second value is whether that created the object.

        `decode` makes a new copy each time, from the stored object.
        """
        resource, namespace = target.resource, target.namespace
        there = self.store.get(storage_codec.key(resource, namespace, target.name))

        def decode_once() -> Object:
            return decode(None if there is None else storage_codec.unpack(resource, there))

        obj = await call.run(_size(there), decode_once)
        set_namespace(resource, namespace, obj)
        check_name(target.name, obj)
        dedup_owners(call, obj)
        creates = self.strategies[resource].create_on_update and not target.subresource
        if there is None and creates:
            check_uid(call, resource, obj["metadata"], {})
            revision(obj["metadata"].pop("resourceVersion", None) or "")
            return await self.create(call, resource, namespace, obj), True
        version = obj["metadata"].get("resourceVersion") or ""

        def produce(old: Object) -> Object:
            new = decode(old)
            dedup_owners(call, new)
            check_uid(call, resource, obj["metadata"], old["metadata"])
            return new

        return await self.modify(call, target, produce, resource_version=version), False

    async def modify(
        self,
        call: Call,
        target: Target,
        produce: Produce,
        *,
        resource_version: str = "",
        owners_final: bool = False,
    ) -> Entry:
        """Read, change and write an object; after a conflict, do so again.

        `resource_version` is the version that the caller requires; with `owners_final`,
        `produce` also decides which manager owns which field.
        """
        edit = partial(self._edited, call, target, produce, resource_version, owners_final)
        resource, name = target.resource, target.name
        late = LazyArgument(self.get, (resource, target.namespace, name))
        for _ in range(MAX_RACES):
            entry, new, value, ends = await call.run(_size(late.read()), edit, late)
            self._admission.validate(resource, new, name)
            if value is not None and not ends and not call.dry_run:
                full_disk.check(self.store, resource, value, new)
            try:
                return await self._write(call, entry, value, ends=ends)
            except store_errors.Conflict:
                if revision(resource_version):
                    break
        raise errors.modified(resource.group, resource.plural, name)

    def _edited(
        self,
        call: Call,
        target: Target,
        produce: Produce,
        resource_version: str,
        owners_final: bool,
        entry: Entry,
    ) -> tuple[Entry, Object, bytes | None, bool]:
        """The entry, the new object, its bytes if they changed, and whether the object ends.

        This may run in a thread: it reads only the entry, and the write fails if there is a
        newer one.
        """
        resource, name, subresource = target.resource, target.name, target.subresource
        strategy = self.strategies[resource]
        old = storage_codec.unpack(resource, entry)
        new = produce(old)
        version = new["metadata"].get("resourceVersion") or ""
        if not strategy.unconditional_update and not revision(version):
            field = "metadata.resourceVersion"
            mistake = fields.invalid(field, 0, "must be specified for an update")
            raise errors.invalid(resource.group, resource.plural, name, [mistake])
        if revision(resource_version) not in (0, entry.revision):
            raise errors.modified(resource.group, resource.plural, name)
        if not owners_final:
            new = _owned(call, strategy, new, old, subresource)
        self._prepare_update(call, resource, new, old, subresource)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old or apply.is_same_but_for_times(new, old):
            return entry, new, None, False
        ends = meta.is_terminating(new) and deletion.is_over(new) and not strategy.awaits_more(new)
        return entry, new, storage_codec.pack(resource, new), ends

    def _prepare_update(
        self, call: Call, resource: kinds.Resource, new: Object, old: Object, subresource: str
    ) -> None:
        strategy = self.strategies[resource]
        metadata, live = new["metadata"], old["metadata"]
        set_namespace(resource, live.get("namespace", ""), new)
        metadata.pop("selfLink", None)
        for field in ("uid", "resourceVersion"):
            metadata[field] = metadata.get(field) or live[field]
        if metadata.get(_GRACE) is None and _GRACE in live:
            metadata[_GRACE] = live[_GRACE]  # validation refuses another value
        if "generation" not in live:
            metadata.pop("generation", None)
        metadata.update({field: live[field] for field in _KEPT if field in live})
        node_restriction.on_update(call, resource, new, old)
        if subresource == "finalize":
            strategy.prepare_finalize(new, old)
            mistakes = strategy.validate_finalize(new, old)
        elif subresource == "binding":
            mistakes = []  # `binding` checked the request, and changes nothing else
        elif subresource:
            strategy.prepare_status(new, old, call)
            mistakes = strategy.validate_status(new, old)
        else:
            self._admission.on_update(call, resource, new, old)
            strategy.prepare_update(new, old, call)
            mistakes = strategy.validate_update(new, old)
        if mistakes:
            raise errors.invalid(strategy.error_group, resource.kind, live["name"], mistakes)
        warn = strategy.status_warnings if subresource else strategy.warnings
        for text in warn(new, old):
            call.warn(text)

    async def _write(self, call: Call, entry: Entry, value: bytes | None, *, ends: bool) -> Entry:
        if value is None:
            return entry
        if ends and not call.dry_run:
            await self.store.delete(entry.key, expected=entry.revision)
        if ends or call.dry_run:
            return Entry(entry.key, value, entry.created, entry.revision)
        return await self.store.update(entry.key, value, expected=entry.revision)

    # -- deleting --------------------------------------------------------

    async def delete(
        self, call: Call, target: Target, options: deletion.Options
    ) -> tuple[Entry, bool]:
        """Delete an object, or begin to; the second value is whether the object is gone."""
        resource, name = target.resource, target.name
        self._admission.on_delete(resource, name)
        strategy = self.strategies[resource]
        self.warn_of_orphans(call, resource, options)
        for _ in range(MAX_RACES):
            entry = self.get(resource, target.namespace, name)
            old = storage_codec.unpack(resource, entry)
            node_restriction.on_delete(call, resource, old, options)
            check_preconditions(resource, name, old["metadata"], options)
            new = storage_codec.unpack(resource, entry)
            if not _mark(strategy, new, options, call):
                return entry, False  # already terminating, with no shorter grace
            ends = deletion.is_over(new) and not strategy.awaits_more(new)
            ends = ends and (meta.is_terminating(old) or not strategy.only_marked_at_first)
            try:
                # Removed finalizers alone need no new version of an object that ends now.
                if new != old and not (ends and _but_finalizers(new) == _but_finalizers(old)):
                    value = storage_codec.pack(resource, new)
                    entry = await self._write(call, entry, value, ends=False)
                if ends and not call.dry_run:
                    entry = await self.store.delete(entry.key, expected=entry.revision)
                return entry, ends
            except store_errors.Conflict:
                if options.resource_version:
                    break
        raise errors.modified(resource.group, resource.plural, name)

    def warn_of_orphans(
        self, call: Call, resource: kinds.Resource, options: deletion.Options
    ) -> None:
        """Warn a user whose delete leaves dependants behind."""
        strategy = self.strategies[resource]
        if strategy.orphans_by_default and options.propagation is None:
            call.warn(strategy.ORPHANS)


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else len(entry.value)


def _owned(call: Call, strategy: Strategy, new: Object, old: Object, subresource: str) -> Object:
    """Update the owners of fields, on objects with managed fields."""
    if "managedFields" not in old["metadata"] and "managedFields" not in new["metadata"]:
        return new
    return apply.track_update(
        old,
        new,
        manager=call.manager,
        struct=strategy.struct(old),
        api_version=strategy.resource.api_version,
        subresource=subresource,
        now=call.now,
    )


def _mark(strategy: Strategy, obj: Object, options: deletion.Options, call: Call) -> bool:
    """Mark an object as terminating; False if that changes nothing."""
    metadata = obj["metadata"]
    terminating = meta.is_terminating(obj)
    if terminating and strategy.awaits_more(obj):
        return False
    shortened = terminating and deletion.shorten(obj, options.grace_seconds, call.now)
    if terminating and not shortened and metadata.get("deletionGracePeriodSeconds"):
        return False
    strategy.prepare_delete(obj, options.reason)
    propagation = options.propagation if strategy.has_dependants else "Background"
    finalizers = deletion.finalizers(
        obj, propagation, orphans_by_default=strategy.orphans_by_default
    )
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if terminating:
        if finalizers:
            metadata.setdefault(_GRACE, 0)
        return True
    grace = strategy.grace(obj, options.grace_seconds)
    if grace is not None:
        deletion.begin(obj, grace, call.now)
    elif strategy.only_marked_at_first:
        metadata["deletionTimestamp"] = times.format_time(call.now)
    elif finalizers or strategy.awaits_more(obj):
        deletion.begin(obj, 0, call.now)
    return True


def _but_finalizers(obj: Object) -> Object:
    metadata = {name: each for name, each in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": metadata}


def set_namespace(resource: kinds.Resource, namespace: str, obj: Object) -> None:
    """Set the namespace of the address; raises 400 for another one in the object."""
    metadata = obj["metadata"]
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.get("namespace", namespace) != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def _absent(resource: kinds.Resource, name: str) -> errors.StatusError:
    """The error for a missing object: 400 for an impossible name, else 404."""
    if complaints := names.path_segment(name):
        why = ";".join(complaints)
        return errors.bad_request(f"Name parameter invalid: {fields.quote(name)}: {why}")
    return errors.not_found(resource.group, resource.plural, name)


def check_name(name: str, obj: Object) -> None:
    """Raise 400 unless the object has the name of its address."""
    object_name = obj["metadata"].get("name")
    if not object_name:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if object_name != name:
        raise errors.bad_request(
            f"the name of the object ({object_name}) does not match the name on the URL ({name})"
        )


def check_uid(call: Call, resource: kinds.Resource, expected: Object, live: Object) -> None:
    """Raise 409 if the metadata has the uid of another object."""
    if expected.get("uid") and expected["uid"] != live.get("uid"):
        raise precondition_failed(call, resource, expected, live, "UID", "uid")


def precondition_failed(
    call: Call, resource: kinds.Resource, expected: Object, live: Object, title: str, field: str
) -> errors.StatusError:
    """The error of Kubernetes' storage for another uid or version than the expected one."""
    # A dry run does not reach the storage, and so does not know the object's key.
    path = [
        "" if call.dry_run else "/registry",
        _REGISTRY_PATHS.get(resource.plural, resource.plural),
    ]
    if resource.namespaced:
        path.append(live.get("namespace") or expected["namespace"])
    return errors.conflict(
        resource.group,
        resource.plural,
        expected["name"],
        f"StorageError: invalid object, Code: 4, Key: {'/'.join(path)}/{expected['name']}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{title} in precondition: {expected[field]}, "
        f"{title} in object meta: {live.get(field, '')}",
    )


# Kinds whose key in Kubernetes' storage has another name.
_REGISTRY_PATHS = {"nodes": "minions", "services": "services/specs"}


def decode(call: Call, body: bytes, struct: schema.Struct, media: codec.Media) -> Object:
    """Read a body; unknown fields are an error, a warning or nothing, as the call says."""
    decoded = codec.decode(body, struct, media=media)
    if decoded.problems and call.validation == "Strict":
        raise codec.strict_error(decoded, struct)
    if call.validation == "Warn":
        for problem in decoded.problems:
            call.warn(problem)
    return decoded.obj


def _number(text: str | None) -> int:
    """The number in a resourceVersion; 0 for a malformed one."""
    try:
        return integers.unsigned(text or "0")
    except integers.NotInteger:
        return 0


def revision(text: str) -> int:
    """The number in a resourceVersion; 0 if empty, raises 500 if malformed."""
    if not text:
        return 0
    try:
        return integers.unsigned(text)
    except integers.NotInteger as problem:
        raise errors.StatusError(500, "", str(problem)) from problem


# Fields that an update cannot change.
_KEPT = ("creationTimestamp", "deletionTimestamp", "generation")

_GRACE = "deletionGracePeriodSeconds"


def check_preconditions(
    resource: kinds.Resource, name: str, metadata: Object, options: deletion.Options
) -> None:
    """Raise 409 if the preconditions name another uid or version."""
    # Kubernetes stores both kinds of events as one.
    group = "" if resource.plural == "events" else resource.group
    actual = metadata["uid"]
    if options.uid is not None and options.uid != actual:
        raise errors.conflict(
            group,
            resource.kind,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({actual}). The object might have been deleted and then recreated",
        )
    expected, current = options.resource_version, metadata["resourceVersion"]
    if expected is not None and expected != current:
        raise errors.conflict(
            group,
            resource.kind,
            name,
            f"the ResourceVersion in the precondition ({expected}) does not match the "
            f"ResourceVersion in record ({current}). The object might have been modified",
        )
