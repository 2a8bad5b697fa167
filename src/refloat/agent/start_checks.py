# SPDX-License-Identifier: Apache-2.0
"""Checks before the admission of a pod, besides whether the pod fits (`admission`).

A node that was off does not know what happened to its pods. So, with the gate
`TaintForceEviction`, the node first reports Ready, then reads its Node object, and
admits no pods during a force eviction (KEP-36). The watch may lack the deletion of a
pod, so the node reads the pod too. A pod that may not start waits for the next check.
There is no check for an admitted pod: its containers restart in place, even without an
API server.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from refloat.agent.runtime import EventOnlyError, StartError
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.policy.recovery import force_eviction

Permit: TypeAlias = Callable[[Pod], Awaitable[None]]
"""Raises `StartError` for a pod that may not be admitted, or not start a container, now."""

# Pods that start within this time share one read of the Node. A force eviction needs a
# node without heartbeats for much longer.
LOOK_SECONDS = 1.0

# Seconds between two checks of a pod that may not start yet.
RETRY_SECONDS = 1.0


class OwnerUnknown(StartError):
    """Another agent may own the node; no new pods start until that is known."""

    event = ""
    retry_seconds = RETRY_SECONDS


class Evicted(EventOnlyError):
    """The node is being force evicted, or may be."""

    event = "ForceEviction"
    retry_seconds = RETRY_SECONDS


async def permitted(pod: Pod) -> None:
    """Allows every pod."""


class ForceEvictionGate:
    """The `Permit` of one node."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        fetch: Callable[[], Awaitable[Node]],
        fetch_pod: Callable[[Pod], Awaitable[Pod]],
        has_posted: Callable[[], bool],
        is_static: Callable[[str], bool],
    ) -> None:
        """`has_posted`: whether this agent has reported the node as Ready."""
        self._name = name
        self._clock = clock
        self._fetch = fetch
        self._fetch_pod = fetch_pod
        self._has_posted = has_posted
        self._is_static = is_static
        self._last_read: tuple[float, Node] | None = None

    async def __call__(self, pod: Pod) -> None:
        # These pods may start in any case.
        if self._is_static(pod.metadata.uid) or force_eviction.tolerates_any_request(pod):
            return
        node = await self._node() if self._has_posted() else None
        if not force_eviction.may_start(pod, node):
            why = (
                "is being force evicted" if node is not None else "does not know what became of it"
            )
            raise Evicted(f"Node {self._name} {why}: the pod is not started")
        # The pod may have been evicted, and the watch may be late.
        try:
            current = await self._fetch_pod(pod)
        except errors.ClientError as error:
            text = f"Node {self._name} does not know what became of it: the pod is not started"
            raise Evicted(text) from error
        is_same = current.metadata.uid == pod.metadata.uid
        if not is_same or current.is_terminating or current.is_terminal:
            raise Evicted("The pod has ended, or is being deleted: it is not started")

    async def _node(self) -> Node | None:
        now = self._clock.monotonic()
        if self._last_read is not None and now - self._last_read[0] < LOOK_SECONDS:
            return self._last_read[1]
        try:
            node = await self._fetch()
        except errors.ClientError:
            return None
        # The time of the request, because the answer may be slow.
        self._last_read = (now, node)
        return node
