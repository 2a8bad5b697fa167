# SPDX-License-Identifier: Apache-2.0
"""What force eviction writes.

Every write on a node names the version that was read: a node that returned
meanwhile has changed, and then all is asked anew. Each write on a pod says
whether it was this process that changed the pod.
"""

import msgspec

from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import force_eviction
from refloat.policy.force_eviction import (
    PROGRESS,
    VOLUMES_CLEARED,
    Attachment,
    Progress,
    Settings,
)
from refloat.policy.switches import Switches
from refloat.runtime import statuses
from refloat.runtime.event_series import Reference
from refloat.runtime.rights import Rights

# Errors after which a write has not happened for sure.
REFUSED = (
    errors.Conflict,
    errors.Forbidden,
    errors.Invalid,
    errors.NotFound,
    errors.TooManyRequests,
    errors.Unauthorized,
    errors.Unreachable,
)


class Writes:
    """The writes of one process."""

    def __init__(self, client: Client, clock: Clock, settings: Settings, rights: Rights) -> None:
        self._client = client
        self._clock = clock
        self.settings = settings
        self._rights = rights

    async def clear_volumes(self, node: Node) -> None:
        """With the progress in one write: who finds the one finds the other."""
        lists: Object = {"volumesInUse": None, "volumesAttached": None}
        patch = {**self._noted(node, Progress(VOLUMES_CLEARED)), "status": lists}
        with self._rights.needed("patch nodes/status", Reference.of(kinds.NODES, node)):
            await self._client.patch(kinds.NODES, node.metadata.name, patch, subresource="status")

    async def begin(self, node: Node) -> None:
        now = self._clock.now()
        progress, taints = force_eviction.begun(node, self.settings, now=now)
        await self._node(node, progress, taints)

    async def end(self, node: Node) -> None:
        """The wish and the progress go together: nobody starts it over."""
        await self._node(node, None, force_eviction.ended(node))

    async def _node(self, node: Node, progress: Progress | None, taints: tuple[Taint, ...]) -> None:
        patch = self._noted(node, progress)
        if taints != (node.spec.taints or ()):
            patch["spec"] = {"taints": msgspec.to_builtins(taints) or None}
        with self._rights.needed("patch nodes", Reference.of(kinds.NODES, node)):
            await self._client.patch(kinds.NODES, node.metadata.name, patch)

    def _noted(self, node: Node, progress: Progress | None) -> Object:
        meta = node.metadata
        text = None if progress is None else progress.encoded()
        return {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": {PROGRESS: text},
            }
        }

    async def fail(self, pod: Pod, switches: Switches) -> bool:
        """Mark this very version of a pod Failed; False if it has ended or is gone."""
        status = force_eviction.failing(pod, switches, now=self._clock.now())
        if status is None:
            return False
        try:
            with self._rights.needed("patch pods/status", Reference.of(kinds.PODS, pod)):
                # Of this version only: how it ended may have been said meanwhile.
                await statuses.patch(self._client, kinds.PODS, pod, status, unchanged=True)
        except errors.NotFound:
            return False
        except errors.Conflict:
            if await self._is_there(pod):
                raise
            return False
        return True

    async def delete(self, pod: Pod) -> bool:
        """Delete a pod that has ended, without grace; False if it is gone."""
        meta = pod.metadata
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        try:
            with self._rights.needed("delete pods", Reference.of(kinds.PODS, pod)):
                await self._client.delete(
                    kinds.PODS, meta.name, namespace=meta.namespace, options=options
                )
        except errors.NotFound:
            return False
        except errors.Conflict:
            if await self._is_there(pod):
                raise
            return False
        return True

    async def _is_there(self, pod: Pod) -> bool:
        """Not one of its name that came in its place."""
        meta = pod.metadata
        try:
            found = await self._client.get(kinds.PODS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return False
        return found.metadata.uid == meta.uid

    async def detach(self, attachment: Attachment, node: Node) -> bool:
        """The very one: one of its name that came in its place is another node's."""
        options = DeleteOptions(uid=attachment.uid)
        right = self._rights.needed("delete volumeattachments", Reference.of(kinds.NODES, node))
        try:
            with right:
                await self._client.delete(
                    kinds.VOLUME_ATTACHMENTS, attachment.name, options=options
                )
        except (errors.NotFound, errors.Conflict):
            return False
        return True
