# SPDX-License-Identifier: Apache-2.0
"""The attach/detach controller: a key is a volume's unique name.

Handlers find the volumes that a pod, a node or an attachment concerns;
`policy.attach_detach` decides about each volume, and `writes` writes. For a deleted
PersistentVolume its own name is the key, and the controller detaches what is still attached
under this name. How long no pod has needed a volume, and which nodes have an event because
they wait, is in memory only, as in Kubernetes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refloat.api import structs
from refloat.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from refloat.api.storage import VolumeAttachment
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.attach_detach import volumes
from refloat.controllers.attach_detach.volumes import VolumeNames
from refloat.controllers.attach_detach.writes import AttachmentWriter, name_of
from refloat.policy.node import attach_detach
from refloat.policy.node.attach_detach import (
    AttachDetachSettings,
    Attachment,
    Step,
    VolumeNode,
    VolumeObservation,
)
from refloat.policy.recovery import force_eviction
from refloat.runtime import index
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.index import Index
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

NAME = "persistentvolume-attach-detach-controller"

# The source of the events, as in Kubernetes.
COMPONENT = "attachdetach-controller"

BY_VOLUME: Index[VolumeAttachment] = Index(
    "volume", lambda each: (each.spec.source.persistent_volume_name or "",)
)
BY_NODE: Index[VolumeAttachment] = Index("node", lambda each: (each.spec.node_name,))

# Pods wait for it; most failures are a node that changed meanwhile.
_SETTINGS = ControllerSettings(workers=4, backoff=Backoff(base=0.2, cap=30.0))


@dataclass(frozen=True, slots=True)
class AttachDetachCaches:
    """The informers of the controller."""

    pods: Informer[Pod]
    """With `index.CLAIM` and `index.NODE`."""

    claims: Informer[PersistentVolumeClaim]
    volumes: Informer[PersistentVolume]
    nodes: Informer[Node]
    attachments: Informer[VolumeAttachment]
    """With `BY_VOLUME` and `BY_NODE`."""


@dataclass(frozen=True, slots=True)
class _Need:
    """A pod on a node, and the PersistentVolume as which it needs the volume."""

    name: str
    pod: Pod

    @property
    def node(self) -> str:
        return self.pod.spec.node_name


@dataclass(frozen=True, slots=True)
class _Volume:
    """One volume, and the pods that need the volume."""

    unique: str
    exclusive: bool = True
    needs: Sequence[_Need] = ()


class AttachDetach:
    """The reconciler, and the controller around it."""

    def __init__(
        self,
        client: Client,
        caches: AttachDetachCaches,
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        settings: AttachDetachSettings | None = None,
    ) -> None:
        self._caches = caches
        self._clock = clock
        self._sink = sink
        self._settings = settings or AttachDetachSettings()
        self._writes = AttachmentWriter(client)
        self._unwanted: dict[str, float] = {}  # since when no pod needs the volume, by attachment
        self._blocked: dict[str, frozenset[str]] = {}  # nodes that wait, by volume
        self._known = VolumeNames()
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        caches.pods.add_handler(self._pod_changed)
        caches.claims.add_handler(self._claim_changed)
        caches.volumes.add_handler(self._volume_changed)
        caches.nodes.add_handler(self._node_changed)
        caches.attachments.add_handler(self._attachment_changed)

    # -- which volumes are concerned

    def _pod_changed(self, change: Change[Pod]) -> None:
        self._add_volumes_of(change.current)

    def _add_volumes_of(self, pod: Pod) -> None:
        if pod.spec.volumes and pod.spec.node_name:
            for claim in force_eviction.claims(pod):
                key = f"{pod.metadata.namespace}/{claim}"
                obj = self._caches.claims.cache.get(key)
                if obj is not None and obj.spec.volume_name:
                    self._add_volume(obj.spec.volume_name)

    def _add_volume(self, name: str) -> None:
        volume = self._caches.volumes.cache.get(name)
        if key := name if volume is None else attach_detach.unique_name(volume):
            self.controller.queue.add(key)

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        for claim in (change.old, change.new):
            if claim is not None and claim.spec.volume_name:
                self._add_volume(claim.spec.volume_name)

    def _volume_changed(self, change: Change[PersistentVolume]) -> None:
        volume = change.current
        if change.new is not None:
            self._known.note(volume)
        else:
            self._known.forget(volume)
            self.controller.queue.add(volume.metadata.name)
        if unique := attach_detach.unique_name(volume):
            self.controller.queue.add(unique)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        name = change.current.metadata.name
        for each in self._caches.attachments.cache.by(BY_NODE, name):
            self._add(each)
        for pod in self._caches.pods.cache.by(index.NODE, name):
            self._add_volumes_of(pod)

    def _attachment_changed(self, change: Change[VolumeAttachment]) -> None:
        if change.new is None:
            self._unwanted.pop(change.current.metadata.name, None)
        self._add(change.current)

    def _add(self, attachment: VolumeAttachment) -> None:
        if not _is_ours(attachment):
            return
        self._add_volume(attachment.spec.source.persistent_volume_name or "")
        if unique := self._known.attached_as(attachment.metadata.name):
            self.controller.queue.add(unique)

    # -- what is done with one

    async def reconcile(self, key: str) -> Result:
        waits: list[float] = []
        if names := self._known.names(key):
            await self._settle(key, names, waits)
        else:
            self._blocked.pop(key, None)
            await self._clear(key, waits)
        return DONE if not waits else Result(requeue_after=min(waits))

    async def _settle(self, unique: str, names: Sequence[str], waits: list[float]) -> None:
        """Attach and detach the volume that these PersistentVolumes stand for."""
        attachments = self._held(unique, names)
        persistent_volumes = [
            each for name in names if (each := self._caches.volumes.cache.get(name))
        ]
        exclusive = any(attach_detach.is_exclusive(each) for each in persistent_volumes)
        needs = [need for name in names for need in self._needs(name)]
        for attachment in attachments:
            name = attachment.spec.source.persistent_volume_name or ""
            if name not in names:  # of a deleted PersistentVolume, the pods where it is attached
                node = attachment.spec.node_name
                needs += [need for need in self._needs(name) if need.node == node]
        by_uid = {need.pod.metadata.uid: need for need in reversed(needs)}
        volume = _Volume(unique, exclusive, list(by_uid.values())[::-1])
        nodes = {need.node for need in volume.needs}
        self._remember(unique, self._blocked.get(unique, frozenset()) & nodes)
        for step in attach_detach.decide(self._look(volume, attachments), self._settings):
            await self._apply(step, volume, waits)

    def _remember(self, unique: str, nodes: frozenset[str]) -> None:
        if nodes:
            self._blocked[unique] = nodes
        else:
            self._blocked.pop(unique, None)

    async def _clear(self, name: str, waits: list[float]) -> None:
        """Detach what a deleted PersistentVolume left, where no pod needs the volume."""
        if name in self._caches.volumes.cache:
            return  # the PersistentVolume is back
        for attachment in self._attached(name):
            volume = _Volume(self._unique(attachment))
            names = dict.fromkeys([name, *self._known.names(volume.unique)])
            nodes = [need.node for each in names for need in self._needs(each)]
            if attachment.spec.node_name in nodes:
                self._unwanted.pop(attachment.metadata.name, None)
                continue
            for step in attach_detach.decide(self._look(volume, [attachment]), self._settings):
                await self._apply(step, volume, waits)

    # -- what is known of one

    def _attached(self, name: str) -> list[VolumeAttachment]:
        attachments = self._caches.attachments.cache.by(BY_VOLUME, name)
        return [each for each in attachments if _is_ours(each)]

    def _held(self, unique: str, names: Iterable[str]) -> list[VolumeAttachment]:
        """The attachments of a volume, also those that name a deleted PersistentVolume."""
        attachments = {each.metadata.name: each for name in names for each in self._attached(name)}
        other = self._caches.attachments.cache.get(name_of(unique, "", exclusive=True))
        if other is not None and _is_ours(other):
            attachments.setdefault(other.metadata.name, other)
        return list(attachments.values())

    def _unique(self, attachment: VolumeAttachment) -> str:
        """The volume of an attachment whose PersistentVolume is deleted; empty if unknown."""
        node = self._caches.nodes.cache.get(attachment.spec.node_name)
        if node is None:
            return ""
        if unique := volumes.named(attachment, volumes.listed(node)):
            return unique
        others = []
        for each in self._caches.attachments.cache.by(BY_NODE, attachment.spec.node_name):
            name = each.spec.source.persistent_volume_name or ""
            volume = self._caches.volumes.cache.get(name)
            if each is attachment:
                continue
            if volume is not None:
                others.append(attach_detach.unique_name(volume))
            else:
                others.append(volumes.named(each, volumes.listed(node)))
        return volumes.left_over(node, others)

    def _needs(self, name: str) -> list[_Need]:
        """The pods that need a PersistentVolume through the claim that is bound to it."""
        pods = [
            pod
            for claim in self._claims(name)
            for pod in self._caches.pods.cache.by(index.CLAIM, claim)
        ]
        return [_Need(name, pod) for pod in pods if attach_detach.needs_volumes(pod)]

    def _claims(self, name: str) -> list[str]:
        """The key of the bound claim; of a deleted volume, the keys of all that name it."""
        claims, volume = self._caches.claims.cache, self._caches.volumes.cache.get(name)
        if volume is None:
            return [key_of(each) for each in claims if each.spec.volume_name == name]
        if volume.spec.claim_ref is None:
            return []
        key = f"{volume.spec.claim_ref.namespace}/{volume.spec.claim_ref.name}"
        claim = claims.get(key)
        return [key] if claim is not None and claim.spec.volume_name == name else []

    def _look(
        self, volume: _Volume, volume_attachments: Iterable[VolumeAttachment]
    ) -> VolumeObservation:
        pod_nodes = [need.node for need in volume.needs]
        attachments = [self._attachment(each, pod_nodes) for each in volume_attachments]
        nodes = dict.fromkeys([*pod_nodes, *(each.node for each in attachments)])
        places = dict(self._places(nodes, volume.unique))
        return VolumeObservation(volume.exclusive, pod_nodes, attachments, places)

    def _places(self, names: Iterable[str], volume: str) -> Iterable[tuple[str, VolumeNode]]:
        for name in names:
            node = self._caches.nodes.cache.get(name)
            if node is not None:
                yield name, VolumeNode.of(node, volume)

    def _attachment(self, attachment: VolumeAttachment, pod_nodes: Sequence[str]) -> Attachment:
        name, node = attachment.metadata.name, attachment.spec.node_name
        now = self._clock.monotonic()
        if node in pod_nodes:
            self._unwanted.pop(name, None)
            return Attachment(name, node, attachment.status.attached)
        since = self._unwanted.setdefault(name, now)
        return Attachment(name, node, attachment.status.attached, now - since)

    # -- doing it

    async def _apply(self, step: Step, volume: _Volume, waits: list[float]) -> None:
        unique = volume.unique
        match step:
            case attach_detach.Attach(node):
                needs = [need for need in volume.needs if need.node == node]
                name, exclusive = needs[0].name, volume.exclusive
                if await self._writes.attach(unique, node, source=name, exclusive=exclusive):
                    for need in needs:
                        note = f'AttachVolume.Attach succeeded for volume "{need.name}" '
                        self._record(need, "Normal", "SuccessfulAttachVolume", note)
            case attach_detach.Confirm(attachment):
                await self._writes.confirm(attachment.name)
            case attach_detach.Report(attachment):
                await self._writes.report(unique, attachment.node, attachment.name)
            case attach_detach.Detach(attachment, by_force):
                await self._writes.detach(unique, attachment, by_force=by_force)
            case attach_detach.Blocked(node, holders):
                self._record_blocked(volume, node, holders)
            case attach_detach.DetachLater(seconds):
                waits.append(seconds)

    def _record_blocked(self, volume: _Volume, node: str, holders: Sequence[str]) -> None:
        """Send one event for each volume and node, while pods of the node need the volume."""
        blocked_nodes = self._blocked.get(volume.unique, frozenset())
        if node in blocked_nodes:
            return
        self._remember(volume.unique, blocked_nodes | {node})
        users = [need.pod for need in volume.needs if need.node in holders]
        for need in volume.needs:
            if need.node == node:
                note = attach_detach.multi_attach_error(need.name, need.pod, users)
                self._record(need, "Warning", "FailedAttachVolume", note)

    def _record(self, need: _Need, event_type: EventType, reason: str, note: str) -> None:
        about = Reference.of(kinds.PODS, need.pod)
        self._sink.event(about, event_type, reason, "AttachVolume", note)


def _is_ours(attachment: VolumeAttachment) -> bool:
    return attachment.spec.attacher == attach_detach.DRIVER


def _matters(node: Node) -> tuple[object, ...]:
    """The part of a node that decides about its volumes."""
    status = node.status
    return (
        status.volumes_in_use,
        status.volumes_attached,
        structs.is_true(status.conditions, "Ready"),
        node.spec.taints,
        force_eviction.progress(node),
    )


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("attachdetach-controller")
    caches = AttachDetachCaches(
        env.informer(kinds.PODS, index.CLAIM, index.NODE),
        env.informer(kinds.PERSISTENT_VOLUME_CLAIMS),
        env.informer(kinds.PERSISTENT_VOLUMES),
        env.informer(kinds.NODES),
        env.informer(kinds.VOLUME_ATTACHMENTS, BY_NODE, BY_VOLUME),
    )
    attach_detach_controller = AttachDetach(
        client,
        caches,
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
        settings=env.settings(AttachDetachSettings),
    )
    return [attach_detach_controller.controller]
