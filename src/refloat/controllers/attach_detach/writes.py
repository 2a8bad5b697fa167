# SPDX-License-Identifier: Apache-2.0
"""What the attach/detach controller writes.

A node and the controller must not cross: the node says that a volume is in use
before it looks whether it is attached, and the controller takes it off the
node's list of attached volumes, on the very version of the node in which it is
not in use, before it detaches it. So whoever comes second sees the other.
"""

import hashlib

from refloat.api.core import Node, PersistentVolume
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import attach_detach
from refloat.policy.attach_detach import Attachment, Place


def name_of(volume: PersistentVolume, node: str) -> str:
    """That of its attachment. One that only one node may have has one name only: whatever the
    caches say, the API server takes no second one."""
    meta = volume.metadata
    parts = [meta.uid] if attach_detach.is_exclusive(volume) else [meta.uid, node]
    return f"refloat-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:16]}"


class Writes:
    """The writes of one process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def attach(self, volume: PersistentVolume, node: str) -> bool:
        """Whether it was attached; another node may have been faster."""
        name = name_of(volume, node)
        body: Object = {
            "metadata": {"name": name},
            "spec": {
                "attacher": attach_detach.DRIVER,
                "nodeName": node,
                "source": {"persistentVolumeName": volume.metadata.name},
            },
        }
        try:
            await self._client.create(kinds.VOLUME_ATTACHMENTS, body)
        except errors.AlreadyExists:
            held = await self._client.get(kinds.VOLUME_ATTACHMENTS, name)
            if held.spec.node_name != node:
                return False
        await self.confirm(name)
        return await self.report(volume, node, name)

    async def confirm(self, attachment: str) -> None:
        await self._client.patch(
            kinds.VOLUME_ATTACHMENTS,
            attachment,
            {"status": {"attached": True}},
            subresource="status",
        )

    async def report(self, volume: PersistentVolume, node: str, attachment: str) -> bool:
        """Say on the node that the volume is attached, if it is: whoever says so may be behind."""
        found = await self._client.get(kinds.NODES, node)
        name = attach_detach.unique_name(volume)
        place = Place.of(found, name)
        if place.is_evicted:
            return False
        if not place.reported:
            if not await self._is_attached(attachment, node):
                return False
            held = [each.name for each in found.status.volumes_attached or ()]
            await self._list(found, [*held, name])
        return True

    async def _is_attached(self, attachment: str, node: str) -> bool:
        """Under its name another node may have it by now."""
        try:
            held = await self._client.get(kinds.VOLUME_ATTACHMENTS, attachment)
        except errors.NotFound:
            return False
        return held.spec.node_name == node

    async def detach(
        self, volume: PersistentVolume, attachment: Attachment, *, by_force: bool
    ) -> bool:
        """Whether it was detached: a node that has mounted it meanwhile keeps it."""
        try:
            node = await self._client.get(kinds.NODES, attachment.node)
        except errors.NotFound:
            return await self._delete(attachment)
        name = attach_detach.unique_name(volume)
        place = Place.of(node, name)
        if place.in_use and not (by_force and not place.ready):
            return False
        if place.reported:
            held = [each.name for each in node.status.volumes_attached or () if each.name != name]
            await self._list(node, held)
        return await self._delete(attachment)

    async def _list(self, node: Node, names: list[str]) -> None:
        meta = node.metadata
        listed = [{"name": each, "devicePath": ""} for each in names]
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"volumesAttached": listed or None},
        }
        await self._client.patch(kinds.NODES, meta.name, patch, subresource="status")

    async def _delete(self, attachment: Attachment) -> bool:
        """The very one: under its name another node may have it by now."""
        try:
            held = await self._client.get(kinds.VOLUME_ATTACHMENTS, attachment.name)
            if held.spec.node_name != attachment.node:
                return False
            options = DeleteOptions(uid=held.metadata.uid)
            await self._client.delete(kinds.VOLUME_ATTACHMENTS, attachment.name, options=options)
        except errors.NotFound:
            return False
        return True
