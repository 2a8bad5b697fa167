# SPDX-License-Identifier: Apache-2.0
"""What the node lifecycle controller writes, each on the newest version of its object.

A node's taints are one list, and its status is the kubelet's too: whoever
wrote meanwhile must not be overwritten, so every write names the version that
it was made for, and is made anew on a newer one.
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
from refloat.controllers.node_lifecycle.settings import Settings
from refloat.policy import node_taints
from refloat.policy.node_taints import Taints
from refloat.policy.tolerations import NO_EXECUTE
from refloat.runtime import statuses

log = logging.getLogger(__name__)


class Writes:
    """The writes of one process."""

    def __init__(self, client: Client, clock: Clock, settings: Settings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings

    async def swap_taints(
        self, node: Node, effect: str, plan: Callable[[Node], node_taints.Swap]
    ) -> Node:
        """First add, then remove: for a moment both stand there (behaviour C3.11)."""
        now = times.format_time(self._clock.now())

        def add(seen: Node) -> Taints:
            return node_taints.added(node_taints.of(seen), plan(seen)[0], effect, now=now)

        def remove(seen: Node) -> Taints:
            return node_taints.without(node_taints.of(seen), plan(seen)[1], effect)

        return await self._retaint(await self._retaint(node, add), remove)

    async def lift_taints(self, node: Node) -> Node:
        """Let pods stay: no NoExecute taint for not being ready any more."""
        keys = (node_taints.NOT_READY, node_taints.UNREACHABLE)
        return await self._retaint(
            node, lambda seen: node_taints.without(node_taints.of(seen), keys, NO_EXECUTE)
        )

    async def _retaint(self, node: Node, change: Callable[[Node], Taints]) -> Node:
        def patch(seen: Node) -> Object | None:
            wanted = change(seen)
            if wanted == node_taints.of(seen):
                return None
            return {"spec": {"taints": msgspec.to_builtins(wanted) or None}}

        return await self.node(node, patch)

    async def node(
        self, node: Node, patch: Callable[[Node], Object | None], *, subresource: str = ""
    ) -> Node:
        """Patch a node as the function says, which is asked anew about each newer version."""
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
        found = await self._client.get(kinds.NODES, meta.name)
        if found.metadata.uid != meta.uid:
            raise errors.NotFound(f"node {meta.name} was replaced by another one of its name")
        return found

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
        """Only on this version: a newer one may be the word of a node that is back."""
        await statuses.patch(self._client, kinds.PODS, pod, status, unchanged=True)
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
