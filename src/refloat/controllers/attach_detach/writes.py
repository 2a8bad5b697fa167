# SPDX-License-Identifier: Apache-2.0
"""What the attach/detach controller writes.

A node and the controller must not cross: the node says that a volume is in use
before it looks whether it is attached, and the controller takes it off the
node's list of attached volumes, on the very version of the node in which it is
not in use, before it detaches it. So whoever comes second sees the other.
"""

import hashlib
import logging

from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import attach_detach
from refloat.policy.attach_detach import Attachment, Place

log = logging.getLogger(__name__)


def name_of(volume: str, node: str, *, exclusive: bool) -> str:
    """That of a volume's attachment, by the volume's unique name. One that only one node may have
    has one name only, however many PersistentVolumes tell of it: whatever the caches say, the API
    server takes no second one."""
    told = volume if exclusive else f"{node}/{volume}"
    return f"refloat-{hashlib.sha256(told.encode()).hexdigest()[:16]}"


class Writes:
    """The writes of one process; a volume is told by its unique name."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def attach(self, volume: str, node: str, *, source: str, exclusive: bool) -> bool:
        """Whether it was attached, as this PersistentVolume; another node may have been faster."""
        name = name_of(volume, node, exclusive=exclusive)
        body: Object = {
            "metadata": {"name": name},
            "spec": {
                "attacher": attach_detach.DRIVER,
                "nodeName": node,
                "source": {"persistentVolumeName": source},
            },
        }
        try:
            await self._client.create(kinds.VOLUME_ATTACHMENTS, body)
        except errors.AlreadyExists:
            held = await self._client.get(kinds.VOLUME_ATTACHMENTS, name)
            if held.spec.node_name != node:
                return False
        await self.confirm(name)
        log.debug("attachdetach-controller: volume %s is attached to node %s", volume, node)
        return await self.report(volume, node, name)

    async def confirm(self, attachment: str) -> None:
        await self._client.patch(
            kinds.VOLUME_ATTACHMENTS,
            attachment,
            {"status": {"attached": True}},
            subresource="status",
        )

    async def report(self, volume: str, node: str, attachment: str) -> bool:
        """Say on the node that the volume is attached, if it is: whoever says so may be behind."""
        found = await self._client.get(kinds.NODES, node)
        place = Place.of(found, volume)
        if place.is_evicted:
            return False
        if not place.reported:
            if not await self._is_attached(attachment, node):
                return False
            held = [each.name for each in found.status.volumes_attached or ()]
            await self._list(found, [*held, volume])
        return True

    async def _is_attached(self, attachment: str, node: str) -> bool:
        """Under its name another node may have it by now."""
        try:
            held = await self._client.get(kinds.VOLUME_ATTACHMENTS, attachment)
        except errors.NotFound:
            return False
        return held.spec.node_name == node

    async def detach(self, volume: str, attachment: Attachment, *, by_force: bool) -> bool:
        """Whether it was detached: a node that has mounted it meanwhile keeps it."""
        try:
            node = await self._client.get(kinds.NODES, attachment.node)
        except errors.NotFound:
            return await self._delete(attachment)
        place = Place.of(node, volume)
        if place.in_use and not (by_force and not place.ready):
            return False
        if place.reported:
            held = [each.name for each in node.status.volumes_attached or ()]
            await self._list(node, [each for each in held if each != volume])
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
        text = "attachdetach-controller: attachment %s of node %s is deleted"
        log.debug(text, attachment.name, attachment.node)
        return True
