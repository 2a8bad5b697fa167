# SPDX-License-Identifier: Apache-2.0
"""What failure recovery reads right before it writes, and what it writes.

Before anything is forced the node and its lease are asked for live: a cache
may be behind, and a node that is back must not lose its pods. One look serves
the pods of a node that are due within the same tenth of a second, else
thousands of zombies would ask the same thousands of times. The pod itself
needs no such look: every write names the version that was decided on, and is
refused on any other. What the client's rate limit or a busy server keeps for too
long after the look is not sent, or not sent again: it needs another look. Nor is what
may not be forced any more by then.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec

from refloat.api import times
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, fence, kinds
from refloat.client.contract import Client, DeleteOptions, Selector
from refloat.controllers.failure_recovery.leases import LeaseBook
from refloat.controllers.failure_recovery.scene import Scene
from refloat.policy import node_taints, out_of_service, zombie
from refloat.policy.node_taints import Taints
from refloat.runtime import statuses
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import Result

# How much older a look at a node may be than one's own would be: less than a
# write takes that a busy server lets wait, so hardly older than any look is.
FRESH_SECONDS = 0.1

# How long after the look a write may still be sent. All requests of a manager at
# once, some fifty, wait for no longer at its usual limit of 20 a second; whoever
# taints nodes looks at them every five seconds.
LATE_SECONDS = 3.0

# What no watch tells of is looked for so often: a lease that has been silent for
# long enough, a node that was back for a moment while a watch was cut.
LOOK_SECONDS = 10.0

# What was decided does not hold any more after a wait: it is decided anew.
AT_ONCE = Result(requeue_after=0.0)

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


class Late(Retry):
    """Too long has passed since the look, or the write is not wanted any more."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        """`was_sent`: it was sent before, and may have happened."""
        super().__init__(why)
        self.was_sent = was_sent


@dataclass(slots=True)
class _Look:
    lock: asyncio.Lock
    at: float = float("-inf")
    node: Node | None = None


class Looks:
    """Nodes as they are now, each with its lease."""

    def __init__(self, client: Client, clock: Clock, leases: LeaseBook) -> None:
        self._client = client
        self._clock = clock
        self._leases = leases
        self._looks: dict[str, _Look] = {}

    def forget(self, name: str) -> None:
        self._looks.pop(name, None)

    async def node(self, name: str) -> Node | None:
        """The node; none if it is gone. What its lease says is noted in the book."""
        look = self._looks.setdefault(name, _Look(asyncio.Lock()))
        # Not when it is one's turn: a look that was begun in the meantime serves,
        # however long it took, else pods of a slow server would look one by one.
        asked = self._clock.monotonic()
        async with look.lock:
            if asked - look.at > FRESH_SECONDS:
                began = self._clock.monotonic()
                look.node = await self._get_node(name)
                lease = await self._get_lease(name)
                look.at = began
                self._leases.saw(name, lease, self._clock.monotonic())
            return look.node

    async def pods(self, node: str) -> list[Pod]:
        """Those bound to a node, of all namespaces."""
        pages = self._client.list(kinds.PODS, selector=Selector(fields=f"spec.nodeName={node}"))
        return [pod async for page in pages for pod in page.items]

    async def _get_node(self, name: str) -> Node | None:
        try:
            return await self._client.get(kinds.NODES, name)
        except errors.NotFound:
            return None

    async def _get_lease(self, name: str) -> Lease | None:
        try:
            return await self._client.get(kinds.LEASES, name, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            return None


class Writes:
    """Each that forces something is to follow directly on a look, and may be `Late`."""

    def __init__(self, client: Client, clock: Clock, scene: Scene) -> None:
        """`scene` says whether anything may still be written."""
        self._client = client
        self._clock = clock
        self._scene = scene

    async def fail(self, pod: Pod, message: str, *, says_why: bool) -> None:
        """Make this very version of a pod Failed, and say why."""
        status = zombie.failing(pod, message, now=self._clock.now(), says_why=says_why)
        with self._in_time():
            await statuses.patch(self._client, kinds.PODS, pod, status, unchanged=True)

    async def delete(self, pod: Pod) -> None:
        """Delete this very version of a pod by force."""
        meta = pod.metadata
        options = DeleteOptions(
            grace_seconds=0, uid=meta.uid, resource_version=meta.resource_version
        )
        name, namespace = meta.name, meta.namespace
        with self._in_time():
            await self._client.delete(kinds.PODS, name, namespace=namespace, options=options)

    async def taint(self, node: Node) -> None:
        now = times.format_time(self._clock.now())
        with self._in_time():
            await self._retaint(node, out_of_service.tainted(node_taints.of(node), now=now))

    async def untaint(self, node: Node) -> None:
        with _unless(lambda: "" if self._scene.is_on else "nothing is taken back any more"):
            await self._retaint(node, out_of_service.lifted(node_taints.of(node)))

    def _in_time(self) -> AbstractContextManager[None]:
        """Nothing inside is sent when the look before it has got old, or it must not be forced."""
        began = self._clock.monotonic()

        def why_not() -> str:
            if not self._scene.may_force:
                return "nothing may be forced any more"
            late = self._clock.monotonic() - began > LATE_SECONDS
            return "the look at the node is too old for the write" if late else ""

        return _unless(why_not)

    async def _retaint(self, node: Node, taints: Taints) -> None:
        meta = node.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {"metadata": guard, "spec": {"taints": msgspec.to_builtins(taints) or None}}
        await self._client.patch(kinds.NODES, meta.name, body, patch_type="strategic")


def _unless(why_not: Callable[[], str]) -> AbstractContextManager[None]:
    """Nothing inside is sent when there is a reason against it."""
    sent = False

    def check() -> None:
        nonlocal sent
        if why := why_not():
            raise Late(why, was_sent=sent)
        sent = True

    return fence.fenced(check)
