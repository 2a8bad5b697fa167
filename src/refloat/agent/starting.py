# SPDX-License-Identifier: Apache-2.0
"""What a node asks before it admits a pod, beside whether the pod fits (`admission`).

A node that was off does not know what became of its pods meanwhile. So, with
the gate `TaintForceEviction`, it first says that it is alive, then looks whether
it is being force evicted, and only then admits what would have to leave
(KEP-36). A node that is evicted no more may not have heard yet that the pod is
gone: so the pod, too, is read anew, and after the node. A pod that may not
start waits, and is asked about again. A pod that was admitted is not asked about
any more: its containers restart in place also while the API server is away.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from refloat.agent.runtime import StartError
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.policy import force_eviction

Permit: TypeAlias = Callable[[Pod], Awaitable[None]]
"""Raises `StartError` for a pod that may not be admitted, or not start a container, now."""

# For so long pods that start at once share one look at the node. A node is not
# force evicted before it has been silent for much longer.
LOOK_SECONDS = 1.0

# From one question to the next, for a pod that may not start yet.
RETRY_SECONDS = 1.0


class OwnerUnknown(StartError):
    """Another agent may own the node: it starts no new pods until that is known."""

    event = ""
    retry_seconds = RETRY_SECONDS


class Evicted(StartError):
    """The node is being force evicted, or cannot say that it is not."""

    event = "ForceEviction"
    retry_seconds = RETRY_SECONDS

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="")

    @property
    def note(self) -> str:
        return str(self)


async def permitted(pod: Pod) -> None:
    """Whoever was admitted may start."""


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
        """`has_posted`: whether this agent has said that the node is ready."""
        self._name = name
        self._clock = clock
        self._fetch = fetch
        self._fetch_pod = fetch_pod
        self._has_posted = has_posted
        self._is_static = is_static
        self._seen: tuple[float, Node] | None = None

    async def __call__(self, pod: Pod) -> None:
        # Whoever may start in any case waits for nobody.
        if self._is_static(pod.metadata.uid) or force_eviction.tolerates_any_wish(pod):
            return
        node = await self._node() if self._has_posted() else None
        if not force_eviction.may_start(pod, node):
            why = (
                "is being force evicted" if node is not None else "does not know what became of it"
            )
            raise Evicted(f"Node {self._name} {why}: the pod is not started")
        await self._check_there(pod)

    async def _check_there(self, pod: Pod) -> None:
        """It was not evicted: a watch that is late does not say so."""
        try:
            found = await self._fetch_pod(pod)
        except errors.ClientError as error:
            text = f"Node {self._name} does not know what became of it: the pod is not started"
            raise Evicted(text) from error
        is_same = found.metadata.uid == pod.metadata.uid
        if not is_same or found.is_terminating or found.is_terminal:
            raise Evicted("The pod has ended, or is being deleted: it is not started")

    async def _node(self) -> Node | None:
        now = self._clock.monotonic()
        if self._seen is not None and now - self._seen[0] < LOOK_SECONDS:
            return self._seen[1]
        try:
            node = await self._fetch()
        except errors.ClientError:
            return None
        # As of when it was asked for: the answer may have taken its time.
        self._seen = (now, node)
        return node
