# SPDX-License-Identifier: Apache-2.0
"""The live reads before each forced write, and the writes.

Before Refloat forces anything, the controller reads the node and its Lease from the API
server: a cache may be behind, and a node that returned must keep its pods. The Lease comes
last, because a returning node renews its Lease before it posts its status. If the version
of the Lease is not the one that was silent, the silence of this node starts again. All
silences start again when an answer is late or missing.

One read serves all pods of a node that are due within the same 0.1 s; otherwise thousands
of zombies would read the same node thousands of times. The pod itself needs no such read:
each write names the version that the decision was made on. A write that the rate limit or
a busy server delays too long is not sent, because the evidence is too old by then.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

import msgspec

from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import fence, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.controllers.failure_recovery.recovery_state import RecoveryState
from refloat.policy.node import node_taints
from refloat.policy.node.node_taints import Taints
from refloat.policy.recovery import out_of_service, zombie
from refloat.runtime import live_reads, status_writes
from refloat.runtime.errors import Retry
from refloat.runtime.event_series import Reference
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.missing_rights import Rights
from refloat.runtime.reconcile import Result
from refloat.runtime.status_writes import REFUSED

# How much older a shared read of a node may be than a read of one's own: less than the time that
# a write waits on a busy server.
FRESH_SECONDS = 0.1

# How long after the read a write may still be sent. All requests of a manager at once, about 50,
# wait no longer at its usual limit of 20 a second. Agents of nodes report every 5 s.
LATE_SECONDS = 3.0

# How often to check what no watch shows: a Lease that has been silent for long enough, a node
# that was back for a moment while a watch was cut.
LOOK_SECONDS = 10.0

# After a wait the decision may be outdated: decide again.
AT_ONCE = Result(requeue_after=0.0)


# Attempts of one write whose answers were lost and that may still be applied. The first ones are
# kept: all name the same version, so the first that arrives is applied.
MAX_LOST_ANSWERS = 100


class LateWrite(Retry):
    """The evidence is too old for the write, or the write is no longer allowed."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        """`was_sent`: the write was sent before, and may have happened."""
        super().__init__(why)
        self.was_sent = was_sent


class OutcomeUnknown(Retry):
    """The client sent the write twice, and the first may be why the second was refused."""


@dataclass(slots=True)
class _LiveNode:
    lock: asyncio.Lock
    at: float = float("-inf")
    node: Node | None = None


class LiveNodes:
    """Current nodes, read together with their leases."""

    def __init__(self, client: Client, clock: Clock, leases: LeaseObserver, rights: Rights) -> None:
        self._client = client
        self._clock = clock
        self._leases = leases
        self._rights = rights
        self._live_nodes: dict[str, _LiveNode] = {}

    def forget(self, name: str) -> None:
        self._live_nodes.pop(name, None)

    async def node(self, name: str) -> Node | None:
        """The node, None if deleted; notes its Lease in the observer of leases."""
        look = self._live_nodes.setdefault(name, _LiveNode(asyncio.Lock()))
        # The age counts from here, not from when the lock is free. A read that began since serves
        # too, however long that read took; else pods would read a slow server one by one.
        since = self._clock.monotonic()
        async with look.lock:
            if since - look.at > FRESH_SECONDS:
                began = self._clock.monotonic()
                with self._leases.reading():
                    look.node = await live_reads.get_node(self._client, self._rights, name)
                with self._leases.reading():
                    lease = await live_reads.get_lease(self._client, self._rights, name)
                look.at = began
                self._leases.observe(name, lease)
            return look.node

    async def regain_contact(self, node: str) -> None:
        """Read again if the last read had no answer: silences count from the next answer."""
        if self._leases.is_cut_off:
            await self.node(node)

    async def pods(self, node: str) -> list[Pod]:
        return await live_reads.list_pods(self._client, self._rights, node)


class RecoveryWriter:
    """The writes; a forced one must follow a live read, or raises `LateWrite`."""

    def __init__(self, client: Client, clock: Clock, state: RecoveryState, rights: Rights) -> None:
        """`state` knows whether Refloat may still write."""
        self._client = client
        self._clock = clock
        self._state = state
        self._rights = rights

    async def fail(self, pod: Pod, message: str, *, now: datetime, says_why: bool) -> None:
        """Mark this version of a pod Failed; `now` is the time in the condition."""
        status = zombie.failing(pod, message, now=now, says_why=says_why)
        right = self._rights.needed("patch pods/status", Reference.of(kinds.PODS, pod))
        with right, self._in_time():
            await status_writes.patch(self._client, kinds.PODS, pod, status, unchanged=True)

    async def delete(self, pod: Pod) -> None:
        """Delete this version of a pod by force."""
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
            await self._retaint(node, out_of_service.add_own_taint(node_taints.of(node), now=now))

    async def untaint(self, node: Node) -> None:
        with _unless(lambda: "" if self._state.is_on else "nothing is taken back any more"):
            await self._retaint(node, out_of_service.remove_own_taint(node_taints.of(node)))

    def _in_time(self) -> AbstractContextManager[None]:
        """Send nothing inside when the evidence is too old, or force is not allowed."""
        began = self._clock.monotonic()

        def why_not() -> str:
            if not self._state.may_force:
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
    """Do not send the write inside, or not again, while `why_not` returns a reason."""
    requests = 0

    def check() -> None:
        nonlocal requests
        if why := why_not():
            raise LateWrite(why, was_sent=requests > 0)
        requests += 1

    try:
        with fence.fenced(check):
            yield
    except REFUSED as error:
        if requests > 1:
            raise OutcomeUnknown(f"sent {requests} times, and then refused: {error}") from error
        raise
