# SPDX-License-Identifier: Apache-2.0
"""The attach/detach controller: a key is a volume's unique name.

Handlers find out which volumes a pod, a node or an attachment concerns;
`policy.attach_detach` says what to do with each, and `writes` does it. Where a
PersistentVolume is gone its own name is the key, and what is still attached by
that name is detached. How long a volume has been unwanted, and who was told to
wait for it, is in memory only, and begins anew with the process, as in
Kubernetes.
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
from refloat.controllers.attach_detach.volumes import Volumes
from refloat.controllers.attach_detach.writes import Writes, name_of
from refloat.policy import attach_detach, force_eviction
from refloat.policy.attach_detach import Attachment, Place, Settings, Sight, Step
from refloat.runtime import index
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.index import Index
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

NAME = "persistentvolume-attach-detach-controller"

# Who tells; Kubernetes' name for it.
COMPONENT = "attachdetach-controller"

POD_INDEXES = (index.CLAIM,)

BY_VOLUME: Index[VolumeAttachment] = Index(
    "volume", lambda each: (each.spec.source.persistent_volume_name or "",)
)
BY_NODE: Index[VolumeAttachment] = Index("node", lambda each: (each.spec.node_name,))

# Pods wait for it; most failures are a node that changed meanwhile.
_SETTINGS = ControllerSettings(workers=4, backoff=Backoff(base=0.2, cap=30.0))


@dataclass(frozen=True, slots=True)
class Caches:
    """All that it reads."""

    pods: Informer[Pod]
    """With `POD_INDEXES`."""

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
    """One volume, and who needs it."""

    unique: str
    exclusive: bool = True
    needs: Sequence[_Need] = ()


class AttachDetach:
    """The reconciler, and the controller around it."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        settings: Settings | None = None,
    ) -> None:
        self._caches = caches
        self._clock = clock
        self._sink = sink
        self._settings = settings or Settings()
        self._writes = Writes(client)
        self._unwanted: dict[str, float] = {}  # since when, by the attachment's name
        self._told: dict[str, frozenset[str]] = {}  # nodes that must wait, by the volume
        self._known = Volumes()
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        caches.pods.add_handler(self._saw_pod)
        caches.claims.add_handler(self._saw_claim)
        caches.volumes.add_handler(self._saw_volume)
        caches.nodes.add_handler(self._saw_node)
        caches.attachments.add_handler(self._saw_attachment)

    # -- which volumes are concerned

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        if pod.spec.volumes and pod.spec.node_name:
            for claim in force_eviction.claims(pod):
                self._add_volume_of(f"{pod.metadata.namespace}/{claim}")

    def _add_volume_of(self, claim: str) -> None:
        found = self._caches.claims.cache.get(claim)
        if found is not None and found.spec.volume_name:
            self._add_volume(found.spec.volume_name)

    def _add_volume(self, name: str) -> None:
        found = self._caches.volumes.cache.get(name)
        if key := name if found is None else attach_detach.unique_name(found):
            self.controller.queue.add(key)

    def _saw_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        for claim in (old, new):
            if claim is not None and claim.spec.volume_name:
                self._add_volume(claim.spec.volume_name)

    def _saw_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        volume = new if new is not None else old
        assert volume is not None
        if new is not None:
            self._known.note(new)
        else:
            self._known.forget(volume)
            self.controller.queue.add(volume.metadata.name)
        if unique := attach_detach.unique_name(volume):
            self.controller.queue.add(unique)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        node = new if new is not None else old
        assert node is not None
        name = node.metadata.name
        for each in self._caches.attachments.cache.by(BY_NODE, name):
            self._add(each)
        for pod in self._caches.pods.cache.by(index.NODE, name):
            self._saw_pod(None, pod)

    def _saw_attachment(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        attachment = new if new is not None else old
        assert attachment is not None
        if new is None:
            self._unwanted.pop(attachment.metadata.name, None)
        self._add(attachment)

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
            self._told.pop(key, None)
            await self._clear(key, waits)
        return DONE if not waits else Result(requeue_after=min(waits))

    async def _settle(self, unique: str, names: Sequence[str], waits: list[float]) -> None:
        """Attach and detach a volume, which these PersistentVolumes are."""
        held = self._held(unique, names)
        found = [each for name in names if (each := self._caches.volumes.cache.get(name))]
        exclusive = any(attach_detach.is_exclusive(each) for each in found)
        volume = _Volume(unique, exclusive, self._needs_of_all(names, held))
        nodes = {need.node for need in volume.needs}
        self._remember(unique, self._told.get(unique, frozenset()) & nodes)
        for step in attach_detach.decide(self._look(volume, held), self._settings):
            await self._apply(step, volume, waits)

    def _remember(self, unique: str, told: frozenset[str]) -> None:
        if told:
            self._told[unique] = told
        else:
            self._told.pop(unique, None)

    async def _clear(self, name: str, waits: list[float]) -> None:
        """Detach what a PersistentVolume that is gone has left, where no pod needs it."""
        if name in self._caches.volumes.cache:
            return  # it is back
        for held in self._attached(name):
            volume = _Volume(self._unique(held))
            names = dict.fromkeys([name, *self._known.names(volume.unique)])
            nodes = [need.node for each in names for need in self._needs(each)]
            if held.spec.node_name in nodes:
                self._unwanted.pop(held.metadata.name, None)
                continue
            for step in attach_detach.decide(self._look(volume, [held]), self._settings):
                await self._apply(step, volume, waits)

    # -- what is known of one

    def _attached(self, name: str) -> list[VolumeAttachment]:
        found = self._caches.attachments.cache.by(BY_VOLUME, name)
        return [each for each in found if _is_ours(each)]

    def _held(self, unique: str, names: Iterable[str]) -> list[VolumeAttachment]:
        """Its attachments, also one by the name of a PersistentVolume that is gone."""
        found = {each.metadata.name: each for name in names for each in self._attached(name)}
        other = self._caches.attachments.cache.get(name_of(unique, "", exclusive=True))
        if other is not None and _is_ours(other):
            found.setdefault(other.metadata.name, other)
        return list(found.values())

    def _unique(self, held: VolumeAttachment) -> str:
        """The volume of an attachment whose PersistentVolume is gone; empty if nothing tells."""
        node = self._caches.nodes.cache.get(held.spec.node_name)
        if node is None:
            return ""
        if told := volumes.named(held, volumes.listed(node)):
            return told
        others = self._caches.attachments.cache.by(BY_NODE, held.spec.node_name)
        explained = [self._explained(each, node) for each in others if each is not held]
        return volumes.left_over(node, explained)

    def _explained(self, held: VolumeAttachment, node: Node) -> str:
        found = self._caches.volumes.cache.get(held.spec.source.persistent_volume_name or "")
        if found is not None:
            return attach_detach.unique_name(found)
        return volumes.named(held, volumes.listed(node))

    def _needs_of_all(
        self, names: Sequence[str], held: Iterable[VolumeAttachment]
    ) -> Sequence[_Need]:
        """Each pod once, of these PersistentVolumes; of one that is gone, where it is attached."""
        needs = [need for name in names for need in self._needs(name)]
        for each in held:
            name = each.spec.source.persistent_volume_name or ""
            if name not in names:
                needs += [need for need in self._needs(name) if need.node == each.spec.node_name]
        return list({need.pod.metadata.uid: need for need in reversed(needs)}.values())[::-1]

    def _needs(self, name: str) -> list[_Need]:
        """The pods that need it: of the claim that has it, and of no other of its name."""
        pods = [
            pod
            for claim in self._claims(name)
            for pod in self._caches.pods.cache.by(index.CLAIM, claim)
        ]
        return [_Need(name, pod) for pod in pods if attach_detach.needs_volumes(pod)]

    def _claims(self, name: str) -> list[str]:
        """The key of the claim that has it; where it is gone, of each that says so."""
        claims, volume = self._caches.claims.cache, self._caches.volumes.cache.get(name)
        if volume is None:
            return [key_of(each) for each in claims if each.spec.volume_name == name]
        if volume.spec.claim_ref is None:
            return []
        key = f"{volume.spec.claim_ref.namespace}/{volume.spec.claim_ref.name}"
        held = claims.get(key)
        return [key] if held is not None and held.spec.volume_name == name else []

    def _look(self, volume: _Volume, held: Iterable[VolumeAttachment]) -> Sight:
        wanted = [need.node for need in volume.needs]
        attachments = [self._attachment(each, wanted) for each in held]
        nodes = dict.fromkeys([*wanted, *(each.node for each in attachments)])
        places = dict(self._places(nodes, volume.unique))
        return Sight(volume.exclusive, wanted, attachments, places)

    def _places(self, names: Iterable[str], volume: str) -> Iterable[tuple[str, Place]]:
        for name in names:
            node = self._caches.nodes.cache.get(name)
            if node is not None:
                yield name, Place.of(node, volume)

    def _attachment(self, held: VolumeAttachment, wanted: Sequence[str]) -> Attachment:
        name, node = held.metadata.name, held.spec.node_name
        now = self._clock.monotonic()
        if node in wanted:
            self._unwanted.pop(name, None)
            return Attachment(name, node, held.status.attached)
        since = self._unwanted.setdefault(name, now)
        return Attachment(name, node, held.status.attached, now - since)

    # -- doing it

    async def _apply(self, step: Step, volume: _Volume, waits: list[float]) -> None:
        unique = volume.unique
        match step:
            case attach_detach.Attach(node):
                await self._attach(volume, node)
            case attach_detach.Confirm(attachment):
                await self._writes.confirm(attachment.name)
            case attach_detach.Report(attachment):
                await self._writes.report(unique, attachment.node, attachment.name)
            case attach_detach.Detach(attachment, by_force):
                await self._writes.detach(unique, attachment, by_force=by_force)
            case attach_detach.Blocked(node, holders):
                self._tell_blocked(volume, node, holders)
            case attach_detach.Wait(seconds):
                waits.append(seconds)

    async def _attach(self, volume: _Volume, node: str) -> None:
        needs = [need for need in volume.needs if need.node == node]
        unique, name, exclusive = volume.unique, needs[0].name, volume.exclusive
        if await self._writes.attach(unique, node, source=name, exclusive=exclusive):
            for need in needs:
                note = f'AttachVolume.Attach succeeded for volume "{need.name}" '
                self._tell(need, "Normal", "SuccessfulAttachVolume", note)

    def _tell_blocked(self, volume: _Volume, node: str, holders: Sequence[str]) -> None:
        """Once for each volume and node, until no pod of that node needs it any more."""
        told = self._told.get(volume.unique, frozenset())
        if node in told:
            return
        self._remember(volume.unique, told | {node})
        users = [need.pod for need in volume.needs if need.node in holders]
        for need in volume.needs:
            if need.node == node:
                note = attach_detach.multi_attach_error(need.name, need.pod, users)
                self._tell(need, "Warning", "FailedAttachVolume", note)

    def _tell(self, need: _Need, event_type: EventType, reason: str, note: str) -> None:
        about = Reference.of(kinds.PODS, need.pod)
        self._sink.event(about, event_type, reason, "AttachVolume", note)


def _is_ours(attachment: VolumeAttachment) -> bool:
    return attachment.spec.attacher == attach_detach.DRIVER


def _matters(node: Node) -> tuple[object, ...]:
    """What of a node makes its volumes worth another look."""
    status = node.status
    return (
        status.volumes_in_use,
        status.volumes_attached,
        structs.is_true(status.conditions, "Ready"),
        node.spec.taints,
        force_eviction.progress(node),
    )
