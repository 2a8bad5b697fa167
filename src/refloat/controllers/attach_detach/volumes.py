# SPDX-License-Identifier: Apache-2.0
"""Which PersistentVolumes are one volume, and to which volume an attachment belongs.

Several PersistentVolumes may stand for one volume: those with the same driver and handle. A
node can have this volume once, so the unique name decides. An attachment names a
PersistentVolume, which may be deleted; then the name of the attachment and the lists of its
node show the volume.
"""

from collections.abc import Iterable, Sequence

from refloat.api.core import Node, PersistentVolume
from refloat.api.storage import VolumeAttachment
from refloat.controllers.attach_detach.writes import name_of
from refloat.policy.node import attach_detach


class VolumeNames:
    """The names of PersistentVolumes by the unique name of their volume."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}
        self._attached: dict[str, str] = {}  # by the name of an attachment to one node only

    def note(self, volume: PersistentVolume) -> None:
        if unique := attach_detach.unique_name(volume):
            self._names.setdefault(unique, {})[volume.metadata.name] = None
            self._attached[name_of(unique, "", exclusive=True)] = unique

    def forget(self, volume: PersistentVolume) -> None:
        unique = attach_detach.unique_name(volume)
        names = self._names.get(unique, {})
        names.pop(volume.metadata.name, None)
        if unique and not names:
            self._names.pop(unique, None)
            self._attached.pop(name_of(unique, "", exclusive=True), None)

    def names(self, unique: str) -> list[str]:
        """The PersistentVolumes of this volume, the oldest first."""
        return list(self._names.get(unique, ()))

    def attached_as(self, attachment: str) -> str:
        """The exclusive volume of the attachment with this name; empty without one."""
        return self._attached.get(attachment, "")


def listed(node: Node) -> list[str]:
    """The volumes of the driver that a node has in use, and then those attached to it."""
    attached = (each.name for each in node.status.volumes_attached or ())
    names = dict.fromkeys([*(node.status.volumes_in_use or ()), *attached])
    return [each for each in names if each.startswith(attach_detach.PREFIX)]


def named(attachment: VolumeAttachment, volumes: Iterable[str]) -> str:
    """The volume from which the attachment has its name; empty if none."""
    name, node = attachment.metadata.name, attachment.spec.node_name
    for each in volumes:
        if name in (name_of(each, node, exclusive=True), name_of(each, node, exclusive=False)):
            return each
    return ""


def left_over(node: Node, explained: Sequence[str]) -> str:
    """The first volume of a node that no other attachment explains; empty if there is none.

    This finds the volume of an attachment that a user created under a name of their own.
    """
    return next((each for each in listed(node) if each not in explained), "")
