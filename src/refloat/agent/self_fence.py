# SPDX-License-Identifier: Apache-2.0
"""Pods of one node that end by themselves when the node cannot renew its lease.

A pod that asks for it when it starts is given a deadline before its first
container: so many seconds after the last successful renewal was sent. Each
further success moves it; nothing else does. What keeps the deadline is the
runtime, and it does so whatever becomes of this process. The promise is listed
in the node's Lease, on which others rely, and then in the pod's status for people
(`api.self_fence`): nothing here may claim one that is not in force, nor break one
that an agent before this one has given. The order is:

    a. the runtime has the deadline
    b. the next renewal lists the pod; an agent that starts a pod asks for one at once
    c. the pod's condition says so
    d. nothing of the pod runs or will: the next renewal does not list it

    1. the node is cut off, or its agent stops, after a renewal sent at s
    2. its pod ends at s + seconds, and is dead kill_grace later
    3. whoever saw the lease change last saw it at s or after, and waits as long
"""

from collections.abc import Callable, Mapping

from refloat.agent.runtime import Runtime
from refloat.agent.status import Condition, Ending
from refloat.api import self_fence, structs
from refloat.api.core import Pod
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import PODS

# From the deadline until nothing of the pod is left. The keeper wakes up within
# milliseconds. To kill 110 pods at once, with 1,200 processes that it must find
# without cgroups, took it 0.8 s on a machine with five times as much to do as it
# can. A process with much memory takes seconds to give it back, though it no longer
# acts. The rest is for worse machines; a process that hangs in the kernel is not
# covered by any number.
KILL_GRACE_SECONDS = 10

# Below the earliest forced end of a pod at Kubernetes' waits (50 s, 300 s, and the
# pod's own grace), so that who waits for this waits no longer; above the restart of
# a control plane, which must not end pods.
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
        """`announce` has the node renew its lease now."""
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._seconds = seconds
        self._wake = wake
        self._announce = announce
        self._renewed_at: float | None = None  # when the last success was sent
        self._promised: dict[str, int] = {}  # seconds, by uid
        self._recalled: dict[str, Promise] = {}  # listed by an agent before this one
        self._listed: Mapping[str, Promise] = {}  # in the Lease, after the last renewal
        self._counted: dict[str, float] = {}  # the renewal after which one was looked at
        self._waiting: dict[str, None] = {}  # those that start after the next renewal
        # By the node's own list: the annotations of a pod are its author's word.
        self.is_static: Callable[[str], bool] = lambda _: False

    def recall(self, listed: Mapping[str, Promise]) -> None:
        """Go on with what an agent before this one listed in the Lease."""
        for uid, promise in listed.items():
            self._recalled[uid] = promise
            self._promised[uid] = promise.seconds
            self._wake(uid)  # if nothing of the pod is left, it is not listed any more

    def promises(self) -> dict[str, Promise]:
        """Those that the Lease lists from the next renewal on.

        A promise that was listed stays until `forget`: a deadline that was lost with the machine
        does not take it back.
        """
        promises = dict(self._recalled)
        for uid, seconds in self._promised.items():
            if uid not in promises and (uid in self._listed or self._is_in_force(uid)):
                promises[uid] = Promise(seconds, KILL_GRACE_SECONDS)
        return promises

    def adopt(self, pod: Pod) -> None:
        """Go on with what an agent before this one has promised and not listed yet.

        Only for agents that listed nothing, and for a promise whose listing was not answered:
        the deadline is in force, or is asked for before anything starts.
        """
        uid, shown = pod.metadata.uid, structs.find(pod.status.conditions, self_fence.CONDITION)
        if uid in self._promised:
            return
        promise = self_fence.read(shown.message if shown and shown.status == "True" else "")
        if promise is not None:
            self._promised[uid] = promise.seconds
        elif uid in self._runtime.deadlines():
            self._promised[uid] = self._seconds

    def forget(self, uid: str) -> None:
        """Nothing of it runs, or will."""
        self._waiting.pop(uid, None)
        self._counted.pop(uid, None)
        self._recalled.pop(uid, None)
        if self._promised.pop(uid, None) is not None:
            self._runtime.disarm(uid)

    def is_promised(self, uid: str) -> bool:
        return uid in self._promised

    def is_due(self, pod: Pod) -> bool:
        """Whether it asks for a deadline, or was promised one, and has none."""
        uid = pod.metadata.uid
        if uid in self._runtime.deadlines():
            return False  # also with the next keeper, which is told it with each start
        annotations = pod.metadata.annotations or {}
        asks = annotations.get(self_fence.ANNOTATION) == "true"
        # Static pods are to run without an API server, and nobody replaces them.
        return (asks and not self.is_static(uid)) or uid in self._promised

    async def news(self, pod: Pod) -> Pod | None:
        """One that is due as it is now; None: it is gone, or is woken after a renewal.

        If the machine or its keeper was lost, so was the deadline of a promise
        that stands in the API, and others may have acted on it. Then the pod is
        gone or terminating when it is looked at after a renewal. The cache may be
        older, and neither a start nor a word must come of that.
        """
        meta, renewed_at = pod.metadata, self._renewed_at
        if renewed_at is None or self._is_past(meta.uid, renewed_at):
            self._waiting[meta.uid] = None
            return None
        try:
            found = await self._client.get(PODS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return None
        self._counted[meta.uid] = renewed_at
        return found if found.metadata.uid == meta.uid else None

    async def arm(self, uid: str) -> bool:
        """Whether the deadline of one with `news` is in force now; raises `StartError`."""
        renewed_at = self._counted.pop(uid, None)
        if renewed_at is None or self._is_past(uid, renewed_at):
            self._wake(uid)  # the look took too long
            return False
        seconds = self._promised.get(uid, self._seconds)
        await self._runtime.arm(uid, renewed_at + seconds)
        self._promised[uid] = seconds
        self._announce()
        return True

    def _is_past(self, uid: str, renewed_at: float) -> bool:
        seconds = self._promised.get(uid, self._seconds)
        return renewed_at + seconds <= self._clock.monotonic()

    def renewed(self, sent_at: float, listed: Mapping[str, Promise]) -> None:
        """A renewal succeeded that was sent then, on the clock's monotonic time.

        `listed`: the promises that the Lease has since then.
        """
        before, self._listed = self._listed, listed
        was_late = [uid for uid in self._promised if not self._is_in_force(uid)]
        self._renewed_at = sent_at
        if self._promised:
            armed = self._runtime.deadlines()
            later = {u: sent_at + seconds for u, seconds in self._promised.items() if u in armed}
            self._runtime.extend(later)
        for uid in listed:
            if uid not in before:
                self._wake(uid)  # its condition may say so now
        if any(uid not in listed and self._is_in_force(uid) for uid in was_late):
            self._announce()
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for uid in waiting:
                self._wake(uid)

    def ending(self, uid: str) -> Ending | None:
        """Why it has ended, if its deadline has passed."""
        seconds, at = self._promised.get(uid), self._runtime.deadlines().get(uid)
        if seconds is None or at is None or at > self._clock.monotonic():
            return None
        text = f"The node could not renew its lease for {seconds}s and ended the pod by itself"
        return Ending(REASON, text, insists=False, disruption=text)

    def condition(self, uid: str) -> Condition | None:
        """The promise, if it is listed and in force; None: what the API has is not touched."""
        if uid not in self._listed or not self._is_in_force(uid):
            return None
        promise = Promise(self._promised[uid], KILL_GRACE_SECONDS, self._runtime.boot_id)
        return (self_fence.CONDITION, True, self_fence.REASON, self_fence.write(promise))

    def _is_in_force(self, uid: str) -> bool:
        """Whether the runtime ends the pod no later than its promise says."""
        seconds, at = self._promised.get(uid), self._runtime.deadlines().get(uid)
        if seconds is None or at is None or self._renewed_at is None:
            return False
        # A later one is of an agent that would have promised more, and was not moved yet.
        return at <= self._renewed_at + seconds
