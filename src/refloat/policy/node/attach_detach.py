# SPDX-License-Identifier: Apache-2.0
"""Where to attach a volume, and from where it may be detached.

A volume that only one node may write is attached to one node at a time. The volume stays attached
while its node reports it as in use: no volume is detached under a running pod, unless the node is
not ready and had six minutes to report otherwise, or a taint declares the node down.
`controllers.attach_detach` writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.api import structs
from refloat.api.core import Node, PersistentVolume, Pod
from refloat.policy.garbage import pod_gc
from refloat.policy.recovery import force_eviction

DRIVER = "volumes.refloat.dev"
"""The driver of Refloat's volumes: folders that all nodes of a machine share."""

PREFIX = f"kubernetes.io/csi/{DRIVER}^"
"""The prefix of the unique names of these volumes."""

_SHARED = ("ReadOnlyMany", "ReadWriteMany")


@dataclass(frozen=True, slots=True)
class AttachDetachSettings:
    unmount_seconds: float = 360.0
    """How long a node that is not ready may keep a volume in use that no pod needs. As in
    Kubernetes."""


def unique_name(volume: PersistentVolume) -> str:
    """The name that nodes use, in Kubernetes' form; empty for another driver's volume."""
    csi = volume.spec.csi
    if csi is None or csi.driver != DRIVER:
        return ""
    return f"{PREFIX}{csi.volume_handle}"


def is_exclusive(volume: PersistentVolume) -> bool:
    """Whether only one node may have the volume."""
    return not any(mode in _SHARED for mode in volume.spec.access_modes or ())


def multi_attach_error(volume: str, pod: Pod, users: Sequence[Pod]) -> str:
    """The event for a pod that waits because other nodes use its volume, in Kubernetes' words.

    Pods of other namespaces are counted, not named.
    """
    prefix = f'Multi-Attach error for volume "{volume}" Volume is already '
    namespace = pod.metadata.namespace
    near = [each.metadata.name for each in users if each.metadata.namespace == namespace]
    far = f"{len(users) - len(near)} pod(s) in different namespaces"
    if not users:
        return f"{prefix}exclusively attached to one node and can't be attached to another"
    if not near:
        return f"{prefix}used by {far}"
    text = f"{prefix}used by pod(s) {', '.join(near)}"
    return text if len(near) == len(users) else f"{text} and {far}"


def needs_volumes(pod: Pod) -> bool:
    """Whether the pod is on a node, and has not ended."""
    return bool(pod.spec.node_name) and not pod.is_terminal


@dataclass(frozen=True, slots=True)
class Attachment:
    """One VolumeAttachment of the volume."""

    name: str
    node: str
    attached: bool
    unwanted_seconds: float = 0.0
    """How long no pod of that node has needed the volume."""


@dataclass(frozen=True, slots=True)
class VolumeNode:
    """The state of one volume on a node."""

    ready: bool
    in_use: bool
    """The node reports the volume as mounted, or cannot report this."""

    reported: bool
    """The status of the node lists the volume as attached."""

    out_of_service: bool = False
    is_evicted: bool = False
    """The node is being force evicted: the controller attaches and reports nothing."""

    @classmethod
    def of(cls, node: Node, name: str) -> "VolumeNode":
        status, ready = node.status, structs.is_true(node.status.conditions, "Ready")
        # Progress without a request is left over from an eviction that was cancelled.
        done = force_eviction.progress(node) if force_eviction.request_taints(node) else None
        # Its list was emptied, and the node may still return before the eviction begins.
        unsaid = done is not None and done.step == force_eviction.VOLUMES_CLEARED and not ready
        return cls(
            ready=ready,
            in_use=unsaid or name in (status.volumes_in_use or ()),
            reported=any(each.name == name for each in status.volumes_attached or ()),
            out_of_service=pod_gc.is_out_of_service(node),
            is_evicted=done is not None,
        )


@dataclass(frozen=True, slots=True)
class VolumeObservation:
    """The observation of one volume."""

    exclusive: bool
    wanted: Sequence[str] = ()
    """The nodes whose pods need the volume, the oldest pods first."""

    attachments: Sequence[Attachment] = ()
    places: Mapping[str, VolumeNode] = field(default_factory=dict)
    """The state of each of these nodes; a missing node is deleted."""


@dataclass(frozen=True, slots=True)
class Attach:
    node: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Mark the attachment as attached."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Report:
    """Report the volume as attached on the node."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Detach:
    attachment: Attachment
    by_force: bool = False
    """Also from a node that reports the volume as in use, while the node is not ready."""


@dataclass(frozen=True, slots=True)
class DetachLater:
    seconds: float


@dataclass(frozen=True, slots=True)
class Blocked:
    """Other nodes have the volume."""

    node: str
    holders: tuple[str, ...]


Step: TypeAlias = Attach | Confirm | Report | Detach | DetachLater | Blocked


def decide(observation: VolumeObservation, settings: AttachDetachSettings) -> list[Step]:
    """The steps to take, in order."""
    steps: list[Step] = []
    for each in observation.attachments:
        steps += (
            _kept(each, observation)
            if each.node in observation.wanted
            else _left(each, observation, settings)
        )
    nodes = [each.node for each in observation.attachments]
    for node in dict.fromkeys(observation.wanted):
        place = observation.places.get(node)
        if node in nodes or place is None or place.is_evicted:
            continue
        if observation.exclusive and nodes:
            steps.append(Blocked(node, tuple(nodes)))
        else:
            steps.append(Attach(node))
            nodes.append(node)
    return steps


def _kept(each: Attachment, observation: VolumeObservation) -> list[Step]:
    if not each.attached:
        return [Confirm(each)]
    place = observation.places.get(each.node)
    unsaid = place is not None and not place.reported and not place.is_evicted
    return [Report(each)] if unsaid else []


def _left(
    each: Attachment, observation: VolumeObservation, settings: AttachDetachSettings
) -> list[Step]:
    """The steps for an attachment whose node has no pod that needs the volume."""
    place = observation.places.get(each.node)
    if place is None or not place.in_use:
        return [Detach(each)]
    if place.out_of_service:
        return [Detach(each, by_force=True)]
    if place.ready:
        return []  # the node will report the unmount
    wait = settings.unmount_seconds - each.unwanted_seconds
    return [DetachLater(wait)] if wait > 0 else [Detach(each, by_force=True)]
