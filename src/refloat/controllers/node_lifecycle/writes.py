# SPDX-License-Identifier: Apache-2.0
"""The writes of the node lifecycle controller, each on the newest version of its object.

The taints of a node are one list, and the kubelet writes its status, too. So each write names
the version for which it was computed, and is computed again for a newer version.
"""

import logging
from collections.abc import Callable

import msgspec

from refloat.api import times
from refloat.api.core import Node, Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.node_lifecycle.settings import NodeLifecycleSettings
from refloat.policy.node import node_taints
from refloat.policy.node.node_taints import Taints
from refloat.policy.scheduling.tolerations import NO_EXECUTE
from refloat.runtime import status_writes

log = logging.getLogger(__name__)


class NodeWriter:
    """The writes of one process."""

    def __init__(self, client: Client, clock: Clock, settings: NodeLifecycleSettings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings

    async def swap_taints(
        self, node: Node, effect: str, plan: Callable[[Node], node_taints.Swap]
    ) -> Node:
        """First add, then remove taints: for a moment the node has both (behaviour C3.11)."""
        now = times.format_time(self._clock.now())

        def add(latest: Node) -> Taints:
            return node_taints.added(node_taints.of(latest), plan(latest)[0], effect, now=now)

        def remove(latest: Node) -> Taints:
            return node_taints.without(node_taints.of(latest), plan(latest)[1], effect)

        return await self._retaint(await self._retaint(node, add), remove)

    async def lift_taints(self, node: Node) -> Node:
        """Remove the NoExecute taints for nodes that are not ready."""
        keys = (node_taints.NOT_READY, node_taints.UNREACHABLE)
        return await self._retaint(
            node, lambda latest: node_taints.without(node_taints.of(latest), keys, NO_EXECUTE)
        )

    async def _retaint(self, node: Node, change: Callable[[Node], Taints]) -> Node:
        def patch(latest: Node) -> Object | None:
            taints = change(latest)
            if taints == node_taints.of(latest):
                return None
            return {"spec": {"taints": msgspec.to_builtins(taints) or None}}

        return await self.node(node, patch)

    async def node(
        self, node: Node, patch: Callable[[Node], Object | None], *, subresource: str = ""
    ) -> Node:
        """Patch a node with the result of `patch`, which is called for each newer version."""
        for attempt in range(self._settings.attempts):
            if attempt:
                await self._clock.sleep(self._settings.attempt_seconds)
                node = await self._newest(node)
            body = patch(node)
            if body is None:
                return node
            try:
                node = await self._patch(node, body, subresource)
                if log.isEnabledFor(logging.DEBUG):
                    text = "node-lifecycle-controller: node %s: wrote %s"
                    log.debug(text, node.metadata.name, _summary(body))
                return node
            except errors.NotFound:
                raise
            except errors.ClientError as error:
                failed = error
                log.info("node %s: %s; again", node.metadata.name, error)
        raise failed

    async def _newest(self, node: Node) -> Node:
        meta = node.metadata
        current = await self._client.get(kinds.NODES, meta.name)
        if current.metadata.uid != meta.uid:
            raise errors.NotFound(f"node {meta.name} was replaced by another one of its name")
        return current

    async def _patch(self, node: Node, body: Object, subresource: str) -> Node:
        meta = node.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        return await self._client.patch(
            kinds.NODES,
            meta.name,
            {"metadata": guard, **body},
            patch_type="strategic",
            subresource=subresource,
        )

    async def pod_status(self, pod: Pod, status: Object) -> None:
        """Patch only this version: a node that returned may have written a newer one."""
        await status_writes.patch(self._client, kinds.PODS, pod, status, unchanged=True)
        meta = pod.metadata
        text = "node-lifecycle-controller: pod %s/%s on node %s: wrote %s"
        log.debug(text, meta.namespace, meta.name, pod.spec.node_name, status)


def _summary(body: Object) -> str:
    """What a patch of a node changes, in a few words for the log."""
    if "spec" in body:
        taints = [f"{each['key']}:{each['effect']}" for each in body["spec"]["taints"] or ()]
        return f"taints {', '.join(taints) or 'none'}"
    conditions = (body.get("status") or {}).get("conditions") or ()
    return ", ".join(f"{each['type']}={each.get('status')}" for each in conditions) or "its status"
