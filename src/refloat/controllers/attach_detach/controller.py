# SPDX-License-Identifier: Apache-2.0
"""The attach/detach controller: a key is a volume's name.

Handlers find out which volumes a pod, a node or an attachment concerns;
`policy.attach_detach` says what to do with each, and `writes` does it. How long
a volume has been unwanted is in memory only, and begins anew with the process,
as in Kubernetes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from refloat.api import structs
from refloat.api.core import Node, PersistentVolume, PersistentVolumeClaim, Pod
from refloat.api.storage import VolumeAttachment
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.attach_detach.writes import Writes
from refloat.policy import attach_detach, force_eviction
from refloat.policy.attach_detach import Attachment, Place, Settings, Sight, Step
from refloat.runtime import index
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
            self.controller.queue.add(found.spec.volume_name)

    def _saw_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        for claim in (old, new):
            if claim is not None and claim.spec.volume_name:
                self.controller.queue.add(claim.spec.volume_name)

    def _saw_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is not None:
            self.controller.queue.add(new.metadata.name)

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
        if attachment.spec.attacher == attach_detach.DRIVER:
            self.controller.queue.add(attachment.spec.source.persistent_volume_name or "")

    # -- what is done with one

    async def reconcile(self, key: str) -> Result:
        volume = self._caches.volumes.cache.get(key)
        if volume is None or not attach_detach.unique_name(volume):
            return DONE
        pods = self._pods(volume)
        seen = self._look(volume, pods)
        waits: list[float] = []
        for step in attach_detach.decide(seen, self._settings):
            await self._apply(step, volume, pods, waits)
        return DONE if not waits else Result(requeue_after=min(waits))

    def _pods(self, volume: PersistentVolume) -> list[Pod]:
        """Those that need it: of the claim that has it, and of no other of its name."""
        claim = volume.spec.claim_ref
        if claim is None:
            return []
        key = f"{claim.namespace}/{claim.name}"
        held = self._caches.claims.cache.get(key)
        if held is None or held.spec.volume_name != volume.metadata.name:
            return []
        found = self._caches.pods.cache.by(index.CLAIM, key)
        return [pod for pod in found if attach_detach.needs_volumes(pod)]

    def _look(self, volume: PersistentVolume, pods: Sequence[Pod]) -> Sight:
        wanted = [pod.spec.node_name for pod in pods]
        held = self._caches.attachments.cache.by(BY_VOLUME, volume.metadata.name)
        attachments = [self._attachment(each, wanted) for each in held]
        names = dict.fromkeys([*wanted, *(each.node for each in attachments)])
        return Sight(
            attach_detach.is_exclusive(volume),
            wanted,
            attachments,
            dict(self._places(names, attach_detach.unique_name(volume))),
        )

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

    async def _apply(
        self, step: Step, volume: PersistentVolume, pods: Sequence[Pod], waits: list[float]
    ) -> None:
        name = volume.metadata.name
        match step:
            case attach_detach.Attach(node):
                if await self._writes.attach(volume, node):
                    note = f'AttachVolume.Attach succeeded for volume "{name}" '
                    self._tell(pods, node, "Normal", "SuccessfulAttachVolume", note)
            case attach_detach.Confirm(attachment):
                await self._writes.confirm(attachment.name)
            case attach_detach.Report(attachment):
                await self._writes.report(volume, attachment.node, attachment.name)
            case attach_detach.Detach(attachment, by_force):
                await self._writes.detach(volume, attachment, by_force=by_force)
            case attach_detach.Blocked(node):
                note = (
                    f'Multi-Attach error for volume "{name}" Volume is already exclusively '
                    "attached to one node and can't be attached to another"
                )
                self._tell(pods, node, "Warning", "FailedAttachVolume", note)
            case attach_detach.Wait(seconds):
                waits.append(seconds)

    def _tell(
        self, pods: Iterable[Pod], node: str, event_type: EventType, reason: str, note: str
    ) -> None:
        for pod in pods:
            if pod.spec.node_name == node:
                about = Reference.of(kinds.PODS, pod)
                self._sink.event(about, event_type, reason, "AttachVolume", note)


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
