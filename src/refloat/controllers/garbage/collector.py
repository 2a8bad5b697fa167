# SPDX-License-Identifier: Apache-2.0
"""Looks after objects whose owners go, and owners that wait for them or leave them.

An object is looked at when one of its owners is unknown, gone or waiting, and
an owner when one of its dependents may no longer keep it. If the caches know by
then that all owners are there, that is all. Both are asked for again, live,
before anything is written; deletes are of the very version that was judged, so
that an owner that was added meanwhile saves it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from refloat.api.kinds import Resource
from refloat.api.meta import Object
from refloat.api.structs import ApiObject, ObjectMeta, OwnerReference
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions
from refloat.controllers.garbage.known import Known, Ref, owner_ref
from refloat.policy import ownership
from refloat.policy.ownership import State
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

COMPONENT = "garbage-collector-controller"

_SETTINGS = ControllerSettings(workers=20, backoff=Backoff(base=0.005, cap=1000.0))


class GarbageCollector:
    """Both queues; `controllers` are to be run."""

    def __init__(
        self,
        client: Client,
        informers: Mapping[Resource, Informer[ApiObject]],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
    ) -> None:
        self._known = Known({each: informer.cache for each, informer in informers.items()})
        self._judging: Controller[Ref] = Controller(
            "garbage_collector_attempt_to_delete",
            Judge(client, self._known, sink, self._look_at),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self._orphaning: Controller[Ref] = Controller(
            "garbage_collector_attempt_to_orphan",
            Orphaner(client, self._known),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self.controllers = [self._judging, self._orphaning]
        for resource, informer in informers.items():
            informer.add_handler(partial(self._saw, resource))

    def _look_at(self, ref: Ref) -> None:
        self._judging.queue.add(ref)

    def _saw(self, resource: Resource, old: ApiObject | None, new: ApiObject | None) -> None:
        if new is None:
            assert old is not None
            self._went(Ref.of(resource, old.metadata), old.metadata)
            return
        was, now = old.metadata if old is not None else None, new.metadata
        ref = Ref.of(resource, now)
        if was is None or was.owner_references != now.owner_references:
            self._has_owners(ref, was, now)
        if now.deletion_timestamp is not None and (
            was is None or was.deletion_timestamp is None or was.finalizers != now.finalizers
        ):
            self._is_going(ref, now)

    def _went(self, ref: Ref, meta: ObjectMeta) -> None:
        self._known.note_gone(ref)
        for dependent, _ in self._known.dependents(ref):
            self._look_at(dependent)
        self._look_at_waiting(meta)

    def _look_at_waiting(self, meta: ObjectMeta) -> None:
        """Owners that wait need not wait for it, perhaps."""
        for owner in self._known.owners(meta):
            held = self._known.get(owner)
            if held is not None and ownership.waits_for_dependents(held):
                self._look_at(owner)

    def _has_owners(self, ref: Ref, was: ObjectMeta | None, now: ObjectMeta) -> None:
        if was is not None:
            self._look_at_waiting(was)
        if not _has_all_owners(self._known, now):
            self._look_at(ref)

    def _is_going(self, ref: Ref, meta: ObjectMeta) -> None:
        if ownership.leaves_orphans(meta):
            self._orphaning.queue.add(ref)
        elif ownership.waits_for_dependents(meta):
            self._look_at(ref)
            for dependent, _ in self._known.dependents(ref):
                self._look_at(dependent)


def _has_all_owners(known: Known, meta: ObjectMeta) -> bool:
    """As far as is known: should that be old, what changed brings the object here again."""
    owners = map(known.get, known.owners(meta))
    return all(held is not None and not ownership.waits_for_dependents(held) for held in owners)


async def live(client: Client, ref: Ref) -> ObjectMeta | None:
    """This very object as it is now."""
    try:
        found = await client.get(ref.kind, ref.name, namespace=ref.namespace)
    except errors.NotFound:
        return None
    return found.metadata if found.metadata.uid == ref.uid else None


async def patch(client: Client, ref: Ref, metadata: Object) -> None:
    """Of this very object; one that is gone needs none."""
    try:
        await client.patch(
            ref.kind,
            ref.name,
            {"metadata": {"uid": ref.uid, **metadata}},
            patch_type="strategic",
            namespace=ref.namespace,
        )
    except errors.NotFound:
        return
    except (errors.Conflict, errors.Invalid):  # another uid is an invalid change of it
        if await live(client, ref) is not None:
            raise


async def remove_finalizer(client: Client, ref: Ref, name: str) -> None:
    await patch(client, ref, {"$deleteFromPrimitiveList/finalizers": [name]})


async def disown(client: Client, ref: Ref, uids: Sequence[str]) -> None:
    gone = [{"$patch": "delete", "uid": uid} for uid in uids]
    await patch(client, ref, {"ownerReferences": gone})


class Judge:
    """The reconciler of objects whose owners may be gone."""

    def __init__(
        self, client: Client, known: Known, sink: Sink, look_at: Callable[[Ref], None]
    ) -> None:
        self._client = client
        self._known = known
        self._sink = sink
        self._look_at = look_at

    async def reconcile(self, ref: Ref) -> Result:
        held = self._known.get(ref)
        # At a start most objects are told before their owners.
        if held is not None and not held.deletion_timestamp and _has_all_owners(self._known, held):
            return DONE
        meta = await live(self._client, ref)
        if meta is None:
            return DONE
        if ownership.waits_for_dependents(meta):
            await self._wait(ref)
        elif meta.deletion_timestamp is None and meta.owner_references:
            await self._judge(ref, meta)
        return DONE

    async def _wait(self, ref: Ref) -> None:
        """Let it go if nothing keeps it; else see to what does."""
        keeping = [
            (dependent, meta)
            for dependent, meta in self._known.dependents(ref)
            if ownership.blocks(meta, ref.uid)
        ]
        if not keeping:
            await remove_finalizer(self._client, ref, ownership.FOREGROUND)
        for dependent, meta in keeping:
            if not ownership.waits_for_dependents(meta):
                self._look_at(dependent)

    async def _judge(self, ref: Ref, meta: ObjectMeta) -> None:
        owners: list[tuple[OwnerReference, State]] = []
        for owner in meta.owner_references or ():
            state = await self._state(ref, owner)
            if state is None:
                return  # nobody can say: it stays as it is
            owners.append((owner, state))
        dependents = [held for _, held in self._known.dependents(ref)]
        verdict = ownership.judge(meta, owners, dependents)
        if verdict.disown:
            await disown(self._client, ref, verdict.disown)
        if verdict.unblock:
            await self._unblock(ref, meta)
        if verdict.delete is not None:
            await self._delete(ref, meta, verdict)

    async def _state(self, ref: Ref, owner: OwnerReference) -> State | None:
        """None where it cannot be known: a kind that nobody serves, or an impossible owner."""
        where = owner_ref(owner, ref.namespace)
        if where is None:
            return None
        if where.resource.namespaced and not ref.namespace:
            self._tell(ref, owner)
            return None
        if self._known.is_gone(where):
            return "dangling"
        held = await live(self._client, where)
        if held is None:
            if self._known.is_elsewhere(where):
                self._tell(ref, owner)
            self._known.note_gone(where)
            return "dangling"
        return "waiting" if ownership.waits_for_dependents(held) else "solid"

    def _tell(self, ref: Ref, owner: OwnerReference) -> None:
        note = (
            f"ownerRef [{owner.api_version}/{owner.kind}, namespace: {ref.namespace}, "
            f"name: {owner.name}, uid: {owner.uid}] does not exist in namespace "
            f'"{ref.namespace}"'
        )
        resource = ref.resource
        about = Reference(
            resource.api_version, resource.kind, ref.name, namespace=ref.namespace, uid=ref.uid
        )
        self._sink.event(about, "Warning", "OwnerRefInvalidNamespace", "Collect", note)

    async def _unblock(self, ref: Ref, meta: ObjectMeta) -> None:
        free = [
            {"uid": each.uid, "blockOwnerDeletion": False} for each in meta.owner_references or ()
        ]
        await patch(self._client, ref, {"ownerReferences": free})

    async def _delete(self, ref: Ref, meta: ObjectMeta, verdict: ownership.Verdict) -> None:
        # After it was unblocked it is another version.
        version = None if verdict.unblock else meta.resource_version
        options = DeleteOptions(uid=ref.uid, resource_version=version, propagation=verdict.delete)
        try:
            await self._client.delete(ref.kind, ref.name, namespace=ref.namespace, options=options)
        except errors.NotFound:
            return
        kind, how = ref.kind.resource.plural, verdict.delete
        log.debug("%s: %s %s/%s is deleted, %s", COMPONENT, kind, ref.namespace, ref.name, how)


class Orphaner:
    """The reconciler of owners that leave their dependents to themselves."""

    def __init__(self, client: Client, known: Known) -> None:
        self._client = client
        self._known = known

    async def reconcile(self, ref: Ref) -> Result:
        meta = await live(self._client, ref)
        if meta is None or not ownership.leaves_orphans(meta):
            return DONE
        for dependent, _ in list(self._known.dependents(ref)):
            await disown(self._client, dependent, [ref.uid])
        await remove_finalizer(self._client, ref, ownership.ORPHAN)
        return DONE
