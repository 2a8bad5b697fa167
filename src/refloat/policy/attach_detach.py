# SPDX-License-Identifier: Apache-2.0
"""Where a volume is to be attached, and from where it may be detached.

A volume that only one node may write is attached to one node at a time. It
stays attached while its node says that it is in use: what a node has mounted
is not taken from under it, unless the node is not ready and has had six minutes
to say otherwise, or somebody said that it is down. Who writes it is
`controllers.attach_detach`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.api import structs
from refloat.api.core import Node, PersistentVolume, Pod
from refloat.policy import force_eviction, pod_gc

DRIVER = "volumes.refloat.dev"
"""The one whose volumes are attached here: folders that all nodes of a machine share."""

PREFIX = f"kubernetes.io/csi/{DRIVER}^"
"""With which the unique names of these volumes begin."""

_SHARED = ("ReadOnlyMany", "ReadWriteMany")


@dataclass(frozen=True, slots=True)
class Settings:
    unmount_seconds: float = 360.0
    """How long a node that is not ready may keep a volume in use that no pod needs. As in
    Kubernetes."""


def unique_name(volume: PersistentVolume) -> str:
    """By which nodes name it, in Kubernetes' form; empty for a volume that is not attached."""
    csi = volume.spec.csi
    if csi is None or csi.driver != DRIVER:
        return ""
    return f"{PREFIX}{csi.volume_handle}"


def is_exclusive(volume: PersistentVolume) -> bool:
    """Whether only one node may have it."""
    return not any(mode in _SHARED for mode in volume.spec.access_modes or ())


def multi_attach_error(volume: str, pod: Pod, users: Sequence[Pod]) -> str:
    """What a pod is told that must wait for those who use its volume on other nodes.

    In the words of Kubernetes. Pods of other namespaces are counted, not named.
    """
    said = f'Multi-Attach error for volume "{volume}" Volume is already '
    namespace = pod.metadata.namespace
    near = [each.metadata.name for each in users if each.metadata.namespace == namespace]
    far = f"{len(users) - len(near)} pod(s) in different namespaces"
    if not users:
        return f"{said}exclusively attached to one node and can't be attached to another"
    if not near:
        return f"{said}used by {far}"
    named = f"{said}used by pod(s) {', '.join(near)}"
    return named if len(near) == len(users) else f"{named} and {far}"


def needs_volumes(pod: Pod) -> bool:
    """Whether it is on a node, and has not ended."""
    return bool(pod.spec.node_name) and not pod.is_terminal


@dataclass(frozen=True, slots=True)
class Attachment:
    """One VolumeAttachment of the volume."""

    name: str
    node: str
    attached: bool
    unwanted_seconds: float = 0.0
    """How long no pod of that node has needed it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node, as far as the volume goes."""

    ready: bool
    in_use: bool
    """It says that it has the volume mounted, or may not say so."""

    reported: bool
    """It was told that the volume is attached."""

    out_of_service: bool = False
    is_evicted: bool = False
    """It is being force evicted: nothing is attached to it, and nothing said to be."""

    @classmethod
    def of(cls, node: Node, name: str) -> "Place":
        status, ready = node.status, structs.is_true(node.status.conditions, "Ready")
        # What is left of an eviction that nobody wishes any more says nothing.
        done = force_eviction.progress(node) if force_eviction.wishes(node) else None
        # Its list was emptied, and it may yet return and be refused.
        unsaid = done is not None and done.step == force_eviction.VOLUMES_CLEARED and not ready
        return cls(
            ready=ready,
            in_use=unsaid or name in (status.volumes_in_use or ()),
            reported=any(each.name == name for each in status.volumes_attached or ()),
            out_of_service=pod_gc.is_out_of_service(node),
            is_evicted=done is not None,
        )


@dataclass(frozen=True, slots=True)
class Sight:
    """All that is known of one volume."""

    exclusive: bool
    wanted: Sequence[str] = ()
    """The nodes whose pods need it, the first come first."""

    attachments: Sequence[Attachment] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    """Of all these nodes; one that is missing is gone."""


@dataclass(frozen=True, slots=True)
class Attach:
    node: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Say on the attachment that it is done."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Report:
    """Say on the node that it is done."""

    attachment: Attachment


@dataclass(frozen=True, slots=True)
class Detach:
    attachment: Attachment
    by_force: bool = False
    """Also from a node that says it is in use, as long as that is not ready."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Blocked:
    """Other nodes have it."""

    node: str
    holders: tuple[str, ...]


Step: TypeAlias = Attach | Confirm | Report | Detach | Wait | Blocked


def decide(seen: Sight, settings: Settings) -> list[Step]:
    """What to do, in order."""
    steps: list[Step] = []
    for each in seen.attachments:
        steps += _kept(each, seen) if each.node in seen.wanted else _left(each, seen, settings)
    held = [each.node for each in seen.attachments]
    for node in dict.fromkeys(seen.wanted):
        place = seen.places.get(node)
        if node in held or place is None or place.is_evicted:
            continue
        if seen.exclusive and held:
            steps.append(Blocked(node, tuple(held)))
        else:
            steps.append(Attach(node))
            held.append(node)
    return steps


def _kept(each: Attachment, seen: Sight) -> list[Step]:
    if not each.attached:
        return [Confirm(each)]
    place = seen.places.get(each.node)
    unsaid = place is not None and not place.reported and not place.is_evicted
    return [Report(each)] if unsaid else []


def _left(each: Attachment, seen: Sight, settings: Settings) -> list[Step]:
    """No pod of its node needs it."""
    place = seen.places.get(each.node)
    if place is None or not place.in_use:
        return [Detach(each)]
    if place.out_of_service:
        return [Detach(each, by_force=True)]
    if place.ready:
        return []  # it says when it has unmounted it
    left = settings.unmount_seconds - each.unwanted_seconds
    return [Wait(left)] if left > 0 else [Detach(each, by_force=True)]
