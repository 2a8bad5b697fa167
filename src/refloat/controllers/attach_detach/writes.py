# SPDX-License-Identifier: Apache-2.0
"""The writes of the attach/detach controller.

A node and the controller must not miss each other. The node reports a volume as in use
before it checks whether the volume is attached. The controller removes the volume from the
node's list of attached volumes, on a version of the node in which the volume is not in use,
before it detaches the volume. So the later one sees what the earlier one wrote.
"""

import hashlib
import logging

from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.node import attach_detach
from refloat.policy.node.attach_detach import Attachment, VolumeNode

log = logging.getLogger(__name__)


def name_of(volume: str, node: str, *, exclusive: bool) -> str:
    """The name of a volume's attachment, by the volume's unique name. An exclusive volume has one
    attachment name, however many PersistentVolumes stand for the volume: whatever the caches show,
    the API server accepts no second attachment."""
    text = volume if exclusive else f"{node}/{volume}"
    return f"refloat-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class AttachmentWriter:
    """The writes of one process; `volume` is always the unique name."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def attach(self, volume: str, node: str, *, source: str, exclusive: bool) -> bool:
        """Attach a volume as this PersistentVolume; False if another node was faster."""
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
            attachment = await self._client.get(kinds.VOLUME_ATTACHMENTS, name)
            if attachment.spec.node_name != node:
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
        """Report the volume as attached on the node, if the API server confirms this."""
        node_object = await self._client.get(kinds.NODES, node)
        place = VolumeNode.of(node_object, volume)
        if place.is_evicted:
            return False
        if not place.reported:
            # By now the attachment may belong to another node.
            try:
                current = await self._client.get(kinds.VOLUME_ATTACHMENTS, attachment)
            except errors.NotFound:
                return False
            if current.spec.node_name != node:
                return False
            names = [each.name for each in node_object.status.volumes_attached or ()]
            await self._list(node_object, [*names, volume])
        return True

    async def detach(self, volume: str, attachment: Attachment, *, by_force: bool) -> bool:
        """Detach a volume; False if the node has mounted it since."""
        try:
            node = await self._client.get(kinds.NODES, attachment.node)
        except errors.NotFound:
            return await self._delete(attachment)
        place = VolumeNode.of(node, volume)
        if place.in_use and not (by_force and not place.ready):
            return False
        if place.reported:
            names = [each.name for each in node.status.volumes_attached or ()]
            await self._list(node, [each for each in names if each != volume])
        return await self._delete(attachment)

    async def _list(self, node: Node, names: list[str]) -> None:
        meta = node.metadata
        volumes = [{"name": each, "devicePath": ""} for each in names]
        patch = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"volumesAttached": volumes or None},
        }
        await self._client.patch(kinds.NODES, meta.name, patch, subresource="status")

    async def _delete(self, attachment: Attachment) -> bool:
        """Delete this attachment: by now its name may belong to another node."""
        try:
            current = await self._client.get(kinds.VOLUME_ATTACHMENTS, attachment.name)
            if current.spec.node_name != attachment.node:
                return False
            options = DeleteOptions(uid=current.metadata.uid)
            await self._client.delete(kinds.VOLUME_ATTACHMENTS, attachment.name, options=options)
        except errors.NotFound:
            return False
        text = "attachdetach-controller: attachment %s of node %s is deleted"
        log.debug(text, attachment.name, attachment.node)
        return True
