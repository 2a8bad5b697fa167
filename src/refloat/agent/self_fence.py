# SPDX-License-Identifier: Apache-2.0
"""Pods of one node that end by themselves when the node cannot renew its lease.

A pod with the annotation gets a deadline before its first container starts: `seconds`
after the last successful renewal was sent. Only a further success moves the deadline.
The runtime enforces the deadline, with or without this process. The node's Lease lists
the promise for other components, and the pod's status shows the promise to users
(`api.self_fence`). This module must not claim a promise that is not in force, and must
not break a promise of an earlier agent. The order of steps is:

    a. the runtime has the deadline
    b. the next renewal lists the pod; the agent renews at once when it starts a pod
    c. the pod gets the condition
    d. no container of the pod runs or will run: the next renewal drops the pod

    1. the node is cut off, or its agent stops, after a renewal sent at s
    2. the pod ends at s + seconds, and is dead kill_grace later
    3. other components see the last change of the lease at s or later, and wait as long
"""

from collections.abc import Callable, Mapping

from refloat.agent.pod_status import Condition, Ending
from refloat.agent.runtime import Runtime
from refloat.api import self_fence, structs
from refloat.api.core import Pod
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import PODS

# From the deadline until the pod is dead. The keeper wakes up within milliseconds. On a
# machine with five times its load, 0.8 s were enough to kill 110 pods with 1,200 processes
# without cgroups. A killed process with much memory takes seconds to free the memory. The
# rest is a reserve; no number covers a process that hangs in the kernel.
KILL_GRACE_SECONDS = 10

# Shorter than the earliest forced end of a pod with the waits of Kubernetes (50 s, 300 s
# and the pod's own grace), so that a forced end need not wait longer; longer than the
# restart of a control plane, which must not end pods.
DEFAULT_SECONDS = 380

REASON = "SelfFenced"


class SelfFence:
    """The pods of one node that have a deadline."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        *,
        clock: Clock,
        seconds: int,
        wake: Callable[[str], object],
        announce: Callable[[], object] = bool,
    ) -> None:
        """`announce` makes the node renew its lease now."""
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._seconds = seconds
        self._wake = wake
        self._announce = announce
        self._renewed_at: float | None = None  # when the last successful renewal was sent
        self._promised: dict[str, int] = {}  # seconds, by uid
        self._recalled: dict[str, Promise] = {}  # listed by an earlier agent
        self._listed: Mapping[str, Promise] = {}  # in the Lease, after the last renewal
        self._read_after: dict[str, float] = {}  # the renewal before the last read, by uid
        self._waiting: dict[str, None] = {}  # pods that start after the next renewal
        # From the node's own files, because any user can annotate a pod.
        self.is_static: Callable[[str], bool] = lambda _: False

    def recall(self, promises: Mapping[str, Promise]) -> None:
        """Keep the promises that an earlier agent listed in the Lease."""
        for uid, promise in promises.items():
            self._recalled[uid] = promise
            self._promised[uid] = promise.seconds
            self._wake(uid)  # the worker forgets pods that have ended

    def promises(self) -> dict[str, Promise]:
        """The promises for the next renewal.

        A listed promise stays until `forget`, even if the machine lost its deadline.
        """
        promises = dict(self._recalled)
        for uid, seconds in self._promised.items():
            if uid not in promises and (uid in self._listed or self._is_in_force(uid)):
                promises[uid] = Promise(seconds, KILL_GRACE_SECONDS)
        return promises

    def adopt(self, pod: Pod) -> None:
        """Keep a promise of an earlier agent that the Lease does not list yet.

        For agents that listed nothing, and for renewals without an answer. The deadline is in
        force, or the worker sets one before a container starts.
        """
        uid, condition = pod.metadata.uid, structs.find(pod.status.conditions, self_fence.CONDITION)
        if uid in self._promised:
            return
        promise = self_fence.read(
            condition.message if condition and condition.status == "True" else ""
        )
        if promise is not None:
            self._promised[uid] = promise.seconds
        elif uid in self._runtime.deadlines():
            self._promised[uid] = self._seconds

    def forget(self, uid: str) -> None:
        """End the promise of a pod without containers."""
        self._waiting.pop(uid, None)
        self._read_after.pop(uid, None)
        self._recalled.pop(uid, None)
        if self._promised.pop(uid, None) is not None:
            self._runtime.disarm(uid)

    def is_promised(self, uid: str) -> bool:
        return uid in self._promised

    def is_due(self, pod: Pod) -> bool:
        """Whether a pod needs a deadline and has none."""
        uid = pod.metadata.uid
        if uid in self._runtime.deadlines():
            return False  # each start also gives the deadline to the next keeper
        annotations = pod.metadata.annotations or {}
        asks = annotations.get(self_fence.ANNOTATION) == "true"
        # Static pods must run without an API server, and no controller replaces them.
        return (asks and not self.is_static(uid)) or uid in self._promised

    async def fresh_pod(self, pod: Pod) -> Pod | None:
        """Read a pod that is due. None: the pod is gone, or wakes after the next renewal.

        If the machine lost the deadline of a promise, other components may have acted on the
        promise. A read after a renewal then shows the pod as gone or terminating. The cache may
        be older, so no start and no promise may rely on the cache.
        """
        meta, renewed_at = pod.metadata, self._renewed_at
        if renewed_at is None or self._is_past(meta.uid, renewed_at):
            self._waiting[meta.uid] = None
            return None
        try:
            current = await self._client.get(PODS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return None
        self._read_after[meta.uid] = renewed_at
        return current if current.metadata.uid == meta.uid else None

    async def arm(self, uid: str) -> bool:
        """Set the deadline after `fresh_pod`. Returns whether it is in force; `StartError`."""
        renewed_at = self._read_after.pop(uid, None)
        if renewed_at is None or self._is_past(uid, renewed_at):
            self._wake(uid)  # the read took too long
            return False
        seconds = self._promised.get(uid, self._seconds)
        await self._runtime.arm(uid, renewed_at + seconds)
        self._promised[uid] = seconds
        self._announce()
        return True

    def _is_past(self, uid: str, renewed_at: float) -> bool:
        seconds = self._promised.get(uid, self._seconds)
        return renewed_at + seconds <= self._clock.monotonic()

    def renewed(self, sent_at: float, promises: Mapping[str, Promise]) -> None:
        """Move the deadlines after a renewal that was sent at a monotonic time.

        `promises`: those that the Lease lists now.
        """
        before, self._listed = self._listed, promises
        was_late = [uid for uid in self._promised if not self._is_in_force(uid)]
        self._renewed_at = sent_at
        if self._promised:
            armed = self._runtime.deadlines()
            later = {u: sent_at + seconds for u, seconds in self._promised.items() if u in armed}
            self._runtime.extend(later)
        for uid in promises:
            if uid not in before:
                self._wake(uid)  # the worker may write the condition now
        if any(uid not in promises and self._is_in_force(uid) for uid in was_late):
            self._announce()
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for uid in waiting:
                self._wake(uid)

    def ending(self, uid: str) -> Ending | None:
        """The reason of a pod's end, if its deadline has passed."""
        seconds, at = self._promised.get(uid), self._runtime.deadlines().get(uid)
        if seconds is None or at is None or at > self._clock.monotonic():
            return None
        text = f"The node could not renew its lease for {seconds}s and ended the pod by itself"
        return Ending(REASON, text, insists=False, disruption=text)

    def condition(self, uid: str) -> Condition | None:
        """The condition of a promise that is listed and in force; None: leave the API's."""
        if uid not in self._listed or not self._is_in_force(uid):
            return None
        promise = Promise(self._promised[uid], KILL_GRACE_SECONDS, self._runtime.boot_id)
        return (self_fence.CONDITION, True, self_fence.REASON, self_fence.write(promise))

    def _is_in_force(self, uid: str) -> bool:
        """Whether the runtime ends the pod in time for its promise."""
        seconds, at = self._promised.get(uid), self._runtime.deadlines().get(uid)
        if seconds is None or at is None or self._renewed_at is None:
            return False
        # A later deadline is from an agent with more seconds, before the first renewal.
        return at <= self._renewed_at + seconds
