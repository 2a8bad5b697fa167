# SPDX-License-Identifier: Apache-2.0
"""What failure recovery reads right before it writes, and what it writes.

Before anything is forced the node and its lease are asked for live: a cache
may be behind, and a node that is back must not lose its pods. The lease comes
last, because a node that returns renews its lease before it posts its status.
If its version is not the one that was silent, its silence begins anew, and so do all
silences when an answer comes late or never. One look serves
the pods of a node that are due within the same tenth of a second, else
thousands of zombies would ask the same thousands of times. The pod itself
needs no such look: every write names the version that was decided on, and is
refused on any other. What the client's rate limit or a busy server keeps for too
long after the look is not sent, or not sent again: it needs another look. Nor is what
may not be forced any more by then.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

import msgspec

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, fence, kinds
from refloat.client.contract import Client, DeleteOptions, Selector
from refloat.controllers.failure_recovery.scene import Scene
from refloat.policy import node_taints, out_of_service, zombie
from refloat.policy.node_taints import Taints
from refloat.runtime import statuses
from refloat.runtime.errors import Retry
from refloat.runtime.event_series import Reference
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.reconcile import Result
from refloat.runtime.rights import Rights

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

# Errors after which a write has not happened for sure, if it was sent once.
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


class OutcomeUnknown(Retry):
    """The client sent the write twice: the refusal of the second may be the first one's success."""


@dataclass(slots=True)
class _Look:
    lock: asyncio.Lock
    at: float = float("-inf")
    node: Node | None = None


class Looks:
    """Nodes as they are now, each with its lease."""

    def __init__(self, client: Client, clock: Clock, leases: LeaseObserver, rights: Rights) -> None:
        self._client = client
        self._clock = clock
        self._leases = leases
        self._rights = rights
        self._looks: dict[str, _Look] = {}

    def forget(self, name: str) -> None:
        self._looks.pop(name, None)

    async def node(self, name: str) -> Node | None:
        """The node; none if it is gone. The observer of leases notes the lease."""
        look = self._looks.setdefault(name, _Look(asyncio.Lock()))
        # Not when it is one's turn: a look that was begun in the meantime serves,
        # however long it took, else pods of a slow server would look one by one.
        asked = self._clock.monotonic()
        async with look.lock:
            if asked - look.at > FRESH_SECONDS:
                began = self._clock.monotonic()
                with self._leases.reading():
                    look.node = await self._get_node(name)
                with self._leases.reading():
                    lease = await self._get_lease(name)
                look.at = began
                self._leases.observe(name, lease)
            return look.node

    async def regain_contact(self, node: str) -> None:
        """Ask again if the last read was not answered: silences count from the answer on."""
        if self._leases.is_cut_off:
            await self.node(node)

    async def pods(self, node: str) -> list[Pod]:
        """Those bound to a node, of all namespaces."""
        pages = self._client.list(kinds.PODS, selector=Selector(fields=f"spec.nodeName={node}"))
        with self._rights.needed("list pods", _reference(node)):
            return [pod async for page in pages for pod in page.items]

    async def _get_node(self, name: str) -> Node | None:
        try:
            with self._rights.needed("get nodes", _reference(name)):
                return await self._client.get(kinds.NODES, name)
        except errors.NotFound:
            return None

    async def _get_lease(self, name: str) -> Lease | None:
        try:
            with self._rights.needed("get leases", _reference(name)):
                return await self._client.get(kinds.LEASES, name, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            return None


def _reference(node: str) -> Reference:
    """As a kubelet names its node: without its uid, which is not known before the read."""
    return Reference("v1", "Node", node, uid=node)


class Writes:
    """Each that forces something is to follow directly on a look, and may be `Late`."""

    def __init__(self, client: Client, clock: Clock, scene: Scene, rights: Rights) -> None:
        """`scene` says whether anything may still be written."""
        self._client = client
        self._clock = clock
        self._scene = scene
        self._rights = rights

    async def fail(self, pod: Pod, message: str, *, now: datetime, says_why: bool) -> None:
        """Make this very version of a pod Failed, and say why; `now` stands in the condition."""
        status = zombie.failing(pod, message, now=now, says_why=says_why)
        right = self._rights.needed("patch pods/status", Reference.of(kinds.PODS, pod))
        with right, self._in_time():
            await statuses.patch(self._client, kinds.PODS, pod, status, unchanged=True)

    async def delete(self, pod: Pod) -> None:
        """Delete this very version of a pod by force."""
        meta = pod.metadata
        options = DeleteOptions(
            grace_seconds=0, uid=meta.uid, resource_version=meta.resource_version
        )
        name, namespace = meta.name, meta.namespace
        right = self._rights.needed("delete pods", Reference.of(kinds.PODS, pod))
        with right, self._in_time():
            await self._client.delete(kinds.PODS, name, namespace=namespace, options=options)

    async def taint(self, node: Node, *, now: str) -> None:
        """`now` is the timestamp of the taint."""
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
        with self._rights.needed("patch nodes", Reference.of(kinds.NODES, node)):
            await self._client.patch(kinds.NODES, meta.name, body, patch_type="strategic")


@contextmanager
def _unless(why_not: Callable[[], str]) -> Iterator[None]:
    """The one write inside is not sent, or not again, when there is a reason against it."""
    sent = 0

    def check() -> None:
        nonlocal sent
        if why := why_not():
            raise Late(why, was_sent=sent > 0)
        sent += 1

    try:
        with fence.fenced(check):
            yield
    except REFUSED as error:
        if sent > 1:
            raise OutcomeUnknown(f"sent {sent} times, and then refused: {error}") from error
        raise
