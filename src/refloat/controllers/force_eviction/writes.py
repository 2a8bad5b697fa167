# SPDX-License-Identifier: Apache-2.0
"""The writes of force eviction.

Each write on a node names the version that was read: if the node returned since, the
write conflicts, and the controller reads again. Each write on a pod returns whether this
process changed the pod.
"""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from refloat.api.core import Node, Pod, Taint
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.job.job_gates import JobGates
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import (
    PROGRESS,
    VOLUMES_CLEARED,
    AttachmentRef,
    ForceEvictionSettings,
    Progress,
)
from refloat.runtime import live_reads, status_writes
from refloat.runtime.event_series import Reference
from refloat.runtime.missing_rights import Rights


class ForceEvictionWriter:
    """The writes of one process."""

    def __init__(
        self, client: Client, clock: Clock, settings: ForceEvictionSettings, rights: Rights
    ) -> None:
        self._client = client
        self._clock = clock
        self.settings = settings
        self._rights = rights

    async def clear_volumes(self, node: Node) -> None:
        """Empty the volume lists and note the progress in one write."""
        lists: Object = {"volumesInUse": None, "volumesAttached": None}
        patch = {**self._noted(node, Progress(VOLUMES_CLEARED)), "status": lists}
        with self._rights.needed("patch nodes/status", Reference.of(kinds.NODES, node)):
            await self._client.patch(kinds.NODES, node.metadata.name, patch, subresource="status")

    async def begin(self, node: Node) -> None:
        now = self._clock.now()
        progress, taints = force_eviction.plan_begin(node, self.settings, now=now)
        await self._node(node, progress, taints)

    async def end(self, node: Node) -> None:
        """Remove request and progress in one write, so that no process starts again."""
        await self._node(node, None, force_eviction.plan_end(node))

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

    async def fail(self, pod: Pod, job_gates: JobGates) -> bool:
        """Mark this version of a pod Failed; False if the pod has ended or is deleted."""
        status = force_eviction.failing(pod, job_gates, now=self._clock.now())
        if status is None:
            return False
        # Only this version: the node may have reported the end of the pod since.
        patch = partial(status_writes.patch, self._client, kinds.PODS, pod, status, unchanged=True)
        return await self._send("patch pods/status", pod, patch)

    async def delete(self, pod: Pod) -> bool:
        """Delete a pod that has ended, without grace; False if the pod is gone."""
        meta = pod.metadata
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        delete = partial(
            self._client.delete, kinds.PODS, meta.name, namespace=meta.namespace, options=options
        )
        return await self._send("delete pods", pod, delete)

    async def _send(self, right: str, pod: Pod, request: Callable[[], Awaitable[object]]) -> bool:
        """Send a request about a pod; False if the pod is gone."""
        try:
            with self._rights.needed(right, Reference.of(kinds.PODS, pod)):
                await request()
        except errors.NotFound:
            return False
        except errors.Conflict:
            if await live_reads.exists(self._client, pod):
                raise
            return False
        return True

    async def detach(self, attachment: AttachmentRef, node: Node) -> bool:
        """Delete this attachment by uid: a newer one of its name is another node's."""
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
