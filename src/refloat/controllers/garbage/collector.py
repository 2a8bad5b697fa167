# SPDX-License-Identifier: Apache-2.0
"""Collects objects whose owners are deleted, and owners that wait for dependents or orphan them.

An object is queued when one of its owners is unknown, deleted or waiting, and an owner when
one of its dependents may no longer block it. If the caches then show all owners, the object
stays. Otherwise the controller reads object and owners from the API server before it writes.
A delete names the version that was judged, so that an owner that was added since saves the
object.
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
from refloat.controllers.garbage.owner_graph import RESOURCES, ObjectRef, OwnerGraph, owner_ref
from refloat.policy.garbage import ownership
from refloat.policy.garbage.ownership import State
from refloat.runtime import index
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

COMPONENT = "garbage-collector-controller"

_SETTINGS = ControllerSettings(workers=20, backoff=Backoff(base=0.005, cap=1000.0))


class GarbageCollector:
    """Both queues; the caller runs `controllers`."""

    def __init__(
        self,
        client: Client,
        informers: Mapping[Resource, Informer[ApiObject]],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
    ) -> None:
        self._graph = OwnerGraph({each: informer.cache for each, informer in informers.items()})
        self._judging: Controller[ObjectRef] = Controller(
            "garbage_collector_attempt_to_delete",
            DependentReconciler(client, self._graph, sink, self._look_at),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self._orphaning: Controller[ObjectRef] = Controller(
            "garbage_collector_attempt_to_orphan",
            OrphanReconciler(client, self._graph),
            clock=clock,
            instruments=instruments,
            settings=_SETTINGS,
        )
        self.controllers = [self._judging, self._orphaning]
        for resource, informer in informers.items():
            informer.add_handler(partial(self._object_changed, resource))

    def _look_at(self, ref: ObjectRef) -> None:
        self._judging.queue.add(ref)

    def _object_changed(self, resource: Resource, change: Change[ApiObject]) -> None:
        now = change.current.metadata
        ref = ObjectRef.of(resource, now)
        if change.new is None:
            self._graph.note_gone(ref)
            for dependent, _ in self._graph.dependents(ref):
                self._look_at(dependent)
            self._look_at_waiting(now)
            return
        was = change.old.metadata if change.old is not None else None
        if was is None or was.owner_references != now.owner_references:
            if was is not None:
                self._look_at_waiting(was)
            if not _has_all_owners(self._graph, now):
                self._look_at(ref)
        if now.deletion_timestamp is not None and (
            was is None or was.deletion_timestamp is None or was.finalizers != now.finalizers
        ):
            if ownership.leaves_orphans(now):
                self._orphaning.queue.add(ref)
            elif ownership.waits_for_dependents(now):
                self._look_at(ref)
                for dependent, _ in self._graph.dependents(ref):
                    self._look_at(dependent)

    def _look_at_waiting(self, meta: ObjectMeta) -> None:
        """Queue the owners that may no longer have to wait for this object."""
        for owner in self._graph.owners(meta):
            owner_meta = self._graph.get(owner)
            if owner_meta is not None and ownership.waits_for_dependents(owner_meta):
                self._look_at(owner)


def _has_all_owners(graph: OwnerGraph, meta: ObjectMeta) -> bool:
    """Whether the caches show all owners; a later change queues the object again."""
    owners = map(graph.get, graph.owners(meta))
    return all(owner is not None and not ownership.waits_for_dependents(owner) for owner in owners)


async def live(client: Client, ref: ObjectRef) -> ObjectMeta | None:
    """The current metadata of this object; None if it is deleted."""
    try:
        obj = await client.get(ref.kind, ref.name, namespace=ref.namespace)
    except errors.NotFound:
        return None
    return obj.metadata if obj.metadata.uid == ref.uid else None


async def patch(client: Client, ref: ObjectRef, metadata: Object) -> None:
    """Patch the metadata of this object, unless it is deleted."""
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
    except (errors.Conflict, errors.Invalid):  # an object with another uid refuses the patch
        if await live(client, ref) is not None:
            raise


async def remove_finalizer(client: Client, ref: ObjectRef, name: str) -> None:
    await patch(client, ref, {"$deleteFromPrimitiveList/finalizers": [name]})


async def disown(client: Client, ref: ObjectRef, uids: Sequence[str]) -> None:
    removals = [{"$patch": "delete", "uid": uid} for uid in uids]
    await patch(client, ref, {"ownerReferences": removals})


class DependentReconciler:
    """The reconciler of objects whose owners may be gone."""

    def __init__(
        self, client: Client, graph: OwnerGraph, sink: Sink, look_at: Callable[[ObjectRef], None]
    ) -> None:
        self._client = client
        self._graph = graph
        self._sink = sink
        self._look_at = look_at

    async def reconcile(self, ref: ObjectRef) -> Result:
        cached_meta = self._graph.get(ref)
        # At the start, most objects are observed before their owners.
        if (
            cached_meta is not None
            and not cached_meta.deletion_timestamp
            and _has_all_owners(self._graph, cached_meta)
        ):
            return DONE
        meta = await live(self._client, ref)
        if meta is None:
            return DONE
        if ownership.waits_for_dependents(meta):
            await self._wait(ref)
        elif meta.deletion_timestamp is None and meta.owner_references:
            await self._judge(ref, meta)
        return DONE

    async def _wait(self, ref: ObjectRef) -> None:
        """Release the owner if no dependent blocks it; else queue the blocking dependents."""
        keeping = [
            (dependent, meta)
            for dependent, meta in self._graph.dependents(ref)
            if ownership.blocks(meta, ref.uid)
        ]
        if not keeping:
            await remove_finalizer(self._client, ref, ownership.FOREGROUND)
        for dependent, meta in keeping:
            if not ownership.waits_for_dependents(meta):
                self._look_at(dependent)

    async def _judge(self, ref: ObjectRef, meta: ObjectMeta) -> None:
        owners: list[tuple[OwnerReference, State]] = []
        for owner in meta.owner_references or ():
            state = await self._state(ref, owner)
            if state is None:
                return  # unknown: the object stays
            owners.append((owner, state))
        dependents = [dependent for _, dependent in self._graph.dependents(ref)]
        verdict = ownership.judge(meta, owners, dependents)
        if verdict.disown:
            await disown(self._client, ref, verdict.disown)
        if verdict.unblock:
            free = [
                {"uid": each.uid, "blockOwnerDeletion": False}
                for each in meta.owner_references or ()
            ]
            await patch(self._client, ref, {"ownerReferences": free})
        if verdict.delete is not None:
            await self._delete(ref, meta, verdict)

    async def _state(self, ref: ObjectRef, owner: OwnerReference) -> State | None:
        """The state of an owner; None for an unknown kind or an impossible owner."""
        where = owner_ref(owner, ref.namespace)
        if where is None:
            return None
        if where.resource.namespaced and not ref.namespace:
            self._record_invalid_namespace(ref, owner)
            return None
        if self._graph.is_gone(where):
            return "dangling"
        meta = await live(self._client, where)
        if meta is None:
            if self._graph.is_elsewhere(where):
                self._record_invalid_namespace(ref, owner)
            self._graph.note_gone(where)
            return "dangling"
        return "waiting" if ownership.waits_for_dependents(meta) else "solid"

    def _record_invalid_namespace(self, ref: ObjectRef, owner: OwnerReference) -> None:
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

    async def _delete(
        self, ref: ObjectRef, meta: ObjectMeta, verdict: ownership.GarbageAction
    ) -> None:
        # The unblocking has changed the version.
        version = None if verdict.unblock else meta.resource_version
        options = DeleteOptions(uid=ref.uid, resource_version=version, propagation=verdict.delete)
        try:
            await self._client.delete(ref.kind, ref.name, namespace=ref.namespace, options=options)
        except errors.NotFound:
            return
        kind, how = ref.kind.resource.plural, verdict.delete
        log.debug("%s: %s %s/%s is deleted, %s", COMPONENT, kind, ref.namespace, ref.name, how)


class OrphanReconciler:
    """The reconciler of owners that orphan their dependents."""

    def __init__(self, client: Client, graph: OwnerGraph) -> None:
        self._client = client
        self._graph = graph

    async def reconcile(self, ref: ObjectRef) -> Result:
        meta = await live(self._client, ref)
        if meta is None or not ownership.leaves_orphans(meta):
            return DONE
        for dependent, _ in list(self._graph.dependents(ref)):
            await disown(self._client, dependent, [ref.uid])
        await remove_finalizer(self._client, ref, ownership.ORPHAN)
        return DONE


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("generic-garbage-collector")
    return GarbageCollector(
        client,
        {each: env.metadata(each, index.OWNER) for each in RESOURCES},
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
    ).controllers
