# SPDX-License-Identifier: Apache-2.0
"""The verbs, below HTTP: reading and writing objects by Kubernetes' rules.

The HTTP face and the in-process client call these alike. An object goes in
as a decoded dictionary and comes out as an `Entry`, which `stored` turns into
bytes or into a dictionary of the caller's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import codec, errors, fields, integers, kinds, meta, names, schema, times
from refloat.api.meta import Object
from refloat.apiserver import (
    admission,
    apply,
    deletion,
    full_disk,
    node_restriction,
    stored,
    strategies,
)
from refloat.apiserver.identity import Call, Late
from refloat.apiserver.owner_references import dedup_owners
from refloat.apiserver.strategies.base import Strategy
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.store import errors as store_errors
from refloat.store.contract import Entry, Store

_NODES = kinds.of("nodes")

Produce: TypeAlias = Callable[[Object], Object]
"""Makes the wanted object from the one that is there."""

# Kubernetes tries a generated name this often before it gives up.
MAX_NAME_TRIES = 8

# A write that loses this many races in a row is told so.
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
        """`toleration_seconds` is how long pods by default stay on a node that is lost."""
        self.store = store
        self.strategies = strategies.build(gates)
        self._rand = rand
        self._admission = admission.Admission(store, toleration_seconds)

    # -- reading ---------------------------------------------------------

    def get(self, resource: kinds.Resource, namespace: str, name: str) -> Entry:
        entry = self.store.get(stored.key(resource, namespace, name))
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
        held: Object | None = None,
    ) -> Object:
        """Read a body that must hold an object of this kind, and default it.

        `held` is the object that it is to take the place of.
        """
        strategy = self.strategies[resource]
        obj = decode(call, body, strategy.struct(held), media)
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
        settled: bool = False,
    ) -> Entry:
        """Create an object; `settled` says that its managed fields are the server's own."""
        strategy = self.strategies[resource]
        if not settled:
            obj["metadata"].pop("managedFields", None)
        self._prepare_create(call, strategy, namespace, obj)
        value = await call.run(0, _checked_create, call, strategy, obj)
        # The namespace may have begun to end while the object was checked aside.
        self._admission.recheck(resource, obj)
        self._admission.validate(resource, obj, "")
        if _number(obj["metadata"].get("resourceVersion")) and not call.dry_run:
            message = "resourceVersion should not be set on objects to be created"
            raise errors.StatusError(500, "", message)
        return await self._insert(call, resource, obj["metadata"], value)

    def _prepare_create(self, call: Call, strategy: Strategy, namespace: str, obj: Object) -> None:
        resource = strategy.resource
        place(resource, namespace, obj)
        dedup_owners(call, obj)
        self._admission.on_create(call, resource, obj)
        node_restriction.on_create(call, resource, obj, self._uid_of_node)
        metadata = obj["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(name, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_name(resource, metadata)
            if "labels" in metadata:
                # Kubernetes tries names on copies, so that a Job whose name it
                # generates no longer shares its labels with its template.
                metadata["labels"] = dict(metadata["labels"])
        metadata["uid"] = self._rand.uid()
        metadata["creationTimestamp"] = times.format_time(call.now)
        strategy.prepare_create(obj, call)

    def _uid_of_node(self, name: str) -> str:
        return str(stored.unpack(_NODES, self.get(_NODES, "", name))["metadata"]["uid"])

    def _generate_name(self, resource: kinds.Resource, metadata: Object) -> str:
        """A name that nobody has, unless chance is against it time and again.

        It is chosen before anything is derived from it, such as a Job's labels.
        """
        prefix, namespace = metadata["generateName"][:MAX_PREFIX], metadata.get("namespace", "")
        name = ""
        for _ in range(MAX_NAME_TRIES):
            name = prefix + self._rand.suffix()
            if self.store.get(stored.key(resource, namespace, name)) is None:
                break
        return name

    async def _insert(
        self, call: Call, resource: kinds.Resource, metadata: Object, value: bytes
    ) -> Entry:
        key = stored.key(resource, metadata.get("namespace", ""), metadata["name"])
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
        if holder is not None and meta.is_terminating(stored.unpack(resource, holder)):
            message = f"object is being deleted: {message}"
        return errors.StatusError(error.code, error.reason, message, details=details)

    # -- updating --------------------------------------------------------

    async def replace(
        self,
        call: Call,
        resource: kinds.Resource,
        namespace: str,
        name: str,
        decode: Callable[[Object | None], Object],
        *,
        subresource: str = "",
    ) -> tuple[Entry, bool]:
        """Write a whole object; was it created?

        `decode` makes it anew each time, given the one that is there.
        """
        strategy = self.strategies[resource]
        there = self.store.get(stored.key(resource, namespace, name))
        wanted = await call.run(_size(there), _decoded_over, decode, resource, there)
        place(resource, namespace, wanted)
        check_name(name, wanted)
        dedup_owners(call, wanted)
        if there is None and strategy.create_on_update and not subresource:
            check_uid(call, resource, wanted["metadata"], {})
            revision(wanted["metadata"].pop("resourceVersion", None) or "")
            return await self.create(call, resource, namespace, wanted), True
        given = wanted["metadata"].get("resourceVersion") or ""

        def produce(old: Object) -> Object:
            new = decode(old)
            dedup_owners(call, new)
            check_uid(call, resource, wanted["metadata"], old["metadata"])
            return new

        entry = await self.modify(
            call, resource, namespace, name, produce, subresource=subresource, given=given
        )
        return entry, False

    async def modify(
        self,
        call: Call,
        resource: kinds.Resource,
        namespace: str,
        name: str,
        produce: Produce,
        *,
        subresource: str = "",
        given: str = "",
        settled: bool = False,
    ) -> Entry:
        """Read, change and write an object, again when another write came first.

        `given` is the resourceVersion that the caller insists on; `settled` says
        that `produce` also decided who owns which field.
        """
        edit = _Edit(call, resource, name, produce, subresource, given, settled)
        late = Late(self.get, (resource, namespace, name))
        for _ in range(MAX_RACES):
            entry, new, value, ends = await call.run(_size(late.read()), self._edited, edit, late)
            self._admission.validate(resource, new, name)
            if value is not None and not ends and not call.dry_run:
                full_disk.check(self.store, resource, value, new)
            try:
                return await self._write(call, entry, value, ends=ends)
            except store_errors.Conflict:
                if revision(given):
                    break
        raise errors.modified(resource.group, resource.plural, name)

    def _edited(self, edit: "_Edit", entry: Entry) -> tuple[Entry, Object, bytes | None, bool]:
        """The object before and after an edit, its bytes if they are others, whether it ends.

        It may run aside: it looks at the entry alone, and the write that follows
        fails if there is a newer one.
        """
        call, resource, name = edit.call, edit.resource, edit.name
        strategy = self.strategies[resource]
        old = stored.unpack(resource, entry)
        new = edit.produce(old)
        asked = new["metadata"].get("resourceVersion") or ""
        _check_conditional(strategy, name, asked)
        if revision(edit.given) not in (0, entry.revision):
            raise errors.modified(resource.group, resource.plural, name)
        if not edit.settled:
            new = _owned(call, strategy, new, old, edit.subresource)
        self._prepare_update(call, resource, new, old, edit.subresource)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old or apply.is_same_but_for_times(new, old):
            return entry, new, None, False
        ends = meta.is_terminating(new) and deletion.is_over(new) and not strategy.awaits_more(new)
        return entry, new, stored.pack(resource, new), ends

    def _prepare_update(
        self, call: Call, resource: kinds.Resource, new: Object, old: Object, subresource: str
    ) -> None:
        strategy = self.strategies[resource]
        place(resource, old["metadata"].get("namespace", ""), new)
        _keep_metadata(new["metadata"], old["metadata"])
        node_restriction.on_update(call, resource, new, old)
        if subresource == "finalize":
            strategy.prepare_finalize(new, old)
            mistakes = strategy.validate_finalize(new, old)
        elif subresource == "binding":
            mistakes = []  # the binder checked the wish, and changes nothing else
        elif subresource:
            strategy.prepare_status(new, old, call)
            mistakes = strategy.validate_status(new, old)
        else:
            self._admission.on_update(call, resource, new, old)
            strategy.prepare_update(new, old, call)
            mistakes = strategy.validate_update(new, old)
        if mistakes:
            name = old["metadata"]["name"]
            raise errors.invalid(strategy.error_group, resource.kind, name, mistakes)
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
        self,
        call: Call,
        resource: kinds.Resource,
        namespace: str,
        name: str,
        options: deletion.Options,
    ) -> tuple[Entry, bool]:
        """Delete an object, or begin to; is it gone?"""
        self._admission.on_delete(resource, name)
        self.warn_of_orphans(call, resource, options)
        for _ in range(MAX_RACES):
            entry = self.get(resource, namespace, name)
            old = stored.unpack(resource, entry)
            node_restriction.on_delete(call, resource, old, options)
            check_preconditions(resource, name, old["metadata"], options)
            try:
                return await self._delete_once(call, resource, entry, old, options)
            except store_errors.Conflict:
                if options.resource_version:
                    break
        raise errors.modified(resource.group, resource.plural, name)

    def warn_of_orphans(
        self, call: Call, resource: kinds.Resource, options: deletion.Options
    ) -> None:
        """Tell a user who leaves dependants behind and may not mean it."""
        strategy = self.strategies[resource]
        if strategy.orphans_by_default and options.propagation is None:
            call.warn(strategy.ORPHANS)

    async def _delete_once(
        self,
        call: Call,
        resource: kinds.Resource,
        entry: Entry,
        old: Object,
        options: deletion.Options,
    ) -> tuple[Entry, bool]:
        strategy = self.strategies[resource]
        new = stored.unpack(resource, entry)
        if not _mark(strategy, new, options, call):
            return entry, False  # already on its way, and nothing shortens it
        ends = deletion.is_over(new) and not strategy.awaits_more(new)
        ends = ends and (meta.is_terminating(old) or not strategy.only_marked_at_first)
        # That finalizers went is not worth a version of an object that goes with them.
        if new != old and not (ends and _but_finalizers(new) == _but_finalizers(old)):
            entry = await self._mark_stored(call, resource, entry, new)
        if not ends:
            return entry, False
        if not call.dry_run:
            entry = await self.store.delete(entry.key, expected=entry.revision)
        return entry, True

    async def _mark_stored(
        self, call: Call, resource: kinds.Resource, entry: Entry, new: Object
    ) -> Entry:
        value = stored.pack(resource, new)
        if call.dry_run:
            return Entry(entry.key, value, entry.created, entry.revision)
        return await self.store.update(entry.key, value, expected=entry.revision)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change of one object that a caller asks for, as `Registry.modify` says."""

    call: Call
    resource: kinds.Resource
    name: str
    produce: Produce
    subresource: str
    given: str
    settled: bool


def _checked_create(call: Call, strategy: Strategy, obj: Object) -> bytes:
    """The bytes of a new object, once it is known to be valid; it may run aside."""
    if mistakes := strategy.validate_create(obj):
        name = obj["metadata"].get("name", "")
        raise errors.invalid(strategy.error_group, strategy.resource.kind, name, mistakes)
    for text in strategy.warnings(obj, None):
        call.warn(text)
    strategy.complete_create(obj)
    return stored.pack(strategy.resource, obj)


def _decoded_over(
    decode: Callable[[Object | None], Object], resource: kinds.Resource, there: Entry | None
) -> Object:
    return decode(None if there is None else stored.unpack(resource, there))


def _size(entry: Entry | None) -> int:
    return 0 if entry is None else len(entry.value)


def _owned(call: Call, strategy: Strategy, new: Object, old: Object, subresource: str) -> Object:
    """Move the ownership of fields, on objects where it is tracked."""
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
    """Note on an object that it is being deleted; False when that changes nothing."""
    metadata = obj["metadata"]
    terminating = meta.is_terminating(obj)
    if terminating and strategy.awaits_more(obj):
        return False
    shortened = terminating and deletion.shorten(obj, options.grace_seconds, call.now)
    if terminating and not shortened and metadata.get("deletionGracePeriodSeconds"):
        return False
    strategy.prepare_delete(obj, options.reason)
    wanted = options.propagation if strategy.has_dependants else "Background"
    left = deletion.finalizers(obj, wanted, orphans_by_default=strategy.orphans_by_default)
    if left:
        metadata["finalizers"] = left
    else:
        metadata.pop("finalizers", None)
    if terminating:
        if left:
            metadata.setdefault(_GRACE, 0)
        return True
    grace = strategy.grace(obj, options.grace_seconds)
    if grace is not None:
        deletion.begin(obj, grace, call.now)
    elif strategy.only_marked_at_first:
        metadata["deletionTimestamp"] = times.format_time(call.now)
    elif left or strategy.awaits_more(obj):
        deletion.begin(obj, 0, call.now)
    return True


def _but_finalizers(obj: Object) -> Object:
    metadata = {name: each for name, each in obj["metadata"].items() if name != "finalizers"}
    return {**obj, "metadata": metadata}


def place(resource: kinds.Resource, namespace: str, obj: Object) -> None:
    """Put an object into the namespace of its address."""
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
    """Why there is no object of this name: there could not be, or there is just none."""
    if complaints := names.path_segment(name):
        why = ";".join(complaints)
        return errors.bad_request(f"Name parameter invalid: {fields.quote(name)}: {why}")
    return errors.not_found(resource.group, resource.plural, name)


def check_name(name: str, obj: Object) -> None:
    """Raise 400 unless the object has the name in its address."""
    given = obj["metadata"].get("name")
    if not given:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if given != name:
        raise errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def check_uid(call: Call, resource: kinds.Resource, wanted: Object, held: Object) -> None:
    """Raise 409 when metadata means another object than the one that is held."""
    if wanted.get("uid") and wanted["uid"] != held.get("uid"):
        raise precondition_failed(call, resource, wanted, held, "UID", "uid")


def precondition_failed(
    call: Call, resource: kinds.Resource, wanted: Object, held: Object, title: str, field: str
) -> errors.StatusError:
    """What Kubernetes' storage says of a version or identity that is not the one asked for."""
    # A dry run meets no storage, and does not know where that would keep the object.
    path = [
        "" if call.dry_run else "/registry",
        _REGISTRY_PATHS.get(resource.plural, resource.plural),
    ]
    if resource.namespaced:
        path.append(held.get("namespace") or wanted["namespace"])
    return errors.conflict(
        resource.group,
        resource.plural,
        wanted["name"],
        f"StorageError: invalid object, Code: 4, Key: {'/'.join(path)}/{wanted['name']}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{title} in precondition: {wanted[field]}, {title} in object meta: {held.get(field, '')}",
    )


# Where Kubernetes keeps the kinds whose place is not named for them.
_REGISTRY_PATHS = {"nodes": "minions", "services": "services/specs"}


def _check_conditional(strategy: Strategy, name: str, given: str) -> None:
    if not strategy.unconditional_update and not revision(given):
        resource = strategy.resource
        mistake = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.invalid(resource.group, resource.plural, name, [mistake])


def decode(call: Call, body: bytes, wanted: schema.Struct, media: codec.Media) -> Object:
    """Read a body, and warn of what is passed over in it or refuse it, as the call asks."""
    decoded = codec.decode(body, wanted, media=media)
    if decoded.problems and call.validation == "Strict":
        raise codec.strict_error(decoded, wanted)
    if call.validation == "Warn":
        for problem in decoded.problems:
            call.warn(problem)
    return decoded.obj


def _number(text: str | None) -> int:
    """The number in a resourceVersion; 0 for what is none."""
    try:
        return integers.unsigned(text or "0")
    except integers.NotInteger:
        return 0


def revision(text: str) -> int:
    """The number in a resourceVersion; none is 0, what is no number is an error."""
    if not text:
        return 0
    try:
        return integers.unsigned(text)
    except integers.NotInteger as problem:
        raise errors.StatusError(500, "", str(problem)) from problem


# Whatever an update says of these, the server's own word stands.
_KEPT = ("creationTimestamp", "deletionTimestamp", "generation")


_GRACE = "deletionGracePeriodSeconds"


def _keep_metadata(new: Object, old: Object) -> None:
    new.pop("selfLink", None)
    for name in ("uid", "resourceVersion"):
        if not new.get(name):
            new[name] = old[name]
    if new.get(_GRACE) is None and _GRACE in old:
        new[_GRACE] = old[_GRACE]  # another one is refused as a change
    for name in _KEPT:
        if name in old:
            new[name] = old[name]
        elif name == "generation":
            new.pop(name, None)


def check_preconditions(
    resource: kinds.Resource, name: str, metadata: Object, options: deletion.Options
) -> None:
    """Raise 409 when the object is not the one, or not the version, that was meant."""
    # Both kinds of events are kept as one.
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
    wanted, held = options.resource_version, metadata["resourceVersion"]
    if wanted is not None and wanted != held:
        raise errors.conflict(
            group,
            resource.kind,
            name,
            f"the ResourceVersion in the precondition ({wanted}) does not match the "
            f"ResourceVersion in record ({held}). The object might have been modified",
        )
