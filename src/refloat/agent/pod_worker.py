# SPDX-License-Identifier: Apache-2.0
"""Drives the pods of one node, on any runtime.

One sync of a pod goes through these steps and returns early:

    1. the object is gone: stop and remove everything
    2. admit the pod, or decide why it must end
    3. start or stop containers
    4. write the status
    5. delete the object, once the API shows how the pod ended

A sync never waits for a container: the runtime reports changes, and the pod is
synced again. All state but back-off comes from the API and the runtime, so a
restarted worker continues where the previous one stopped.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from refloat.agent import backoff, container_status, pod_status
from refloat.agent.container_status import View, WaitingReason
from refloat.agent.pod_gate import Later, OpenGate, PodGate
from refloat.agent.pod_status import Ending
from refloat.agent.runtime import Attempts, Containers, Runtime, StartError
from refloat.agent.self_fence import DEFAULT_SECONDS, SelfFence
from refloat.agent.start_checks import Permit, permitted
from refloat.api import times
from refloat.api.core import PENDING, Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions
from refloat.client.kinds import PODS
from refloat.policy.job import pod_replacement
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.node import phase
from refloat.policy.scheduling import disruption_target
from refloat.runtime import status_writes
from refloat.runtime.event_series import EventType
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

# The grace of a pod whose object is gone (behaviour D4.8).
ORPHAN_GRACE = 1

# The least time between SIGTERM and SIGKILL (D4.2).
MINIMUM_STOP_SECONDS = 2.0

# The node records an event when its own kill takes longer than this, and longer than 1.5 times
# the grace (D6.6).
KILL_PATIENCE = 10

RecordPodEvent: TypeAlias = Callable[[Pod, EventType, str, str], object]
"""Records an event of a pod: type, reason, note."""


DEADLINE = Ending(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)


@dataclass(slots=True)
class _PodState:
    """What the worker remembers of a pod between two syncs."""

    shape: phase.PodShape
    recalled: dict[str, Attempts]  # containers that the API knows and the runtime does not
    admitted: bool
    checked: bool  # whether `PodWorker.check` has passed
    start_time: str = ""
    ending: Ending | None = None
    over: bool = False  # all regular containers have ended by themselves
    grace: int | None = None
    kill_at: float = 0.0
    complain_at: float | None = None  # when a kill by the node takes too long
    waiting: dict[str, WaitingReason] = field(default_factory=dict)
    retry_at: dict[str, datetime] = field(default_factory=dict)  # of starts that failed
    restarts: backoff.RestartBackoff = field(default_factory=backoff.RestartBackoff)
    sent: Object | None = None  # the last status, without its conditions
    written: Pod | None = None  # the answer to the last write
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _Sync:
    """One sync of a pod."""

    pod: Pod
    state: _PodState
    now: datetime

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def is_terminating(self) -> bool:
        """Whether no container starts again, whatever its policy (behaviour D4.1)."""
        return self.pod.is_terminating or self.pod.is_terminal or self.state.ending is not None


def ignore_event(pod: Pod, event_type: EventType, reason: str, note: str) -> None:
    """Drops an event: the default where no recorder is set."""


class PodWorker:
    """Drives the pods of one node. The caller of `reconcile` keeps `pods` up to date."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        *,
        clock: Clock,
        record_event: RecordPodEvent = ignore_event,
        wake: Callable[[str], object] = str,
        job_gates: JobGates = ALL_ON,
        self_fence_seconds: int = DEFAULT_SECONDS,
        announce: Callable[[], object] = bool,
    ) -> None:
        """`check` runs once, before the admission of a pod without running containers; `permit`
        runs before each start of a container. `wake` queues a pod for a sync. `announce` makes the
        node renew its lease now."""
        self._client = client
        self.runtime = runtime
        self._clock = clock
        self._record_event = record_event
        self._wake = wake
        self._job_gates = job_gates
        self._states: dict[str, _PodState] = {}
        self._active: dict[str, Pod] = {}
        self._queue: dict[str, None] = {}  # pods that wait for other pods to leave
        self.gate: PodGate = OpenGate()
        self.fence = SelfFence(
            client, runtime, clock=clock, seconds=self_fence_seconds, wake=wake, announce=announce
        )
        self.check: Permit = permitted
        self.permit: Permit = permitted
        self.pods: dict[str, Pod] = {}  # as the API has them, by uid

    def active(self) -> list[Pod]:
        """Pods that were admitted and have not ended, in the order of admission."""
        return list(self._active.values())

    def is_active(self, uid: str) -> bool:
        return uid in self._active

    def has_strays(self) -> bool:
        """Whether containers run whose pod was deleted while no agent ran here."""
        return any(uid not in self._states and self._live(uid) for uid in self.runtime.pods())

    def is_ending(self, uid: str) -> bool:
        """Whether the node itself ends the pod."""
        state = self._states.get(uid)
        return state is not None and state.ending is not None

    def kill(self, uid: str, ending: Ending) -> bool:
        """End a pod for the node (behaviour D4.1). Returns whether this call ends the pod.

        If the node ends the pod already, the newer reason and the shorter grace hold. The
        reason is only in memory: an agent that restarts before it wrote the end finds ended
        containers without a reason, like a kubelet.
        """
        state, pod = self._states.get(uid), self._active.get(uid)
        if state is None or pod is None or self.fence.ending(uid) is not None:
            return False
        if (before := state.ending) is not None:
            graces = [effective_grace(pod, each.grace_seconds) for each in (before, ending)]
            if graces[1] >= graces[0] and ending.reason == before.reason:
                return False
            insists = before.insists or ending.insists
            ending = replace(ending, grace_seconds=min(graces), insists=insists)  # D4.2
        state.ending = ending
        grace = ending.grace_seconds
        if grace is None:
            grace = pod.spec.termination_grace_period_seconds or 0
        patience = max(KILL_PATIENCE, grace + grace // 2)
        state.complain_at = self._clock.monotonic() + patience
        self._wake(uid)
        return True

    def adopt(self) -> None:
        """Count pods that an earlier agent admitted, so that no new pod takes their place."""
        for uid, pod in self.pods.items():
            is_admitted = pod.status.start_time is not None or self.runtime.containers(uid)
            if is_admitted and uid not in self._states and self._takes_room(pod):
                self._begin(pod)

    async def reconcile(self, uid: str) -> Result:
        pod = self.pods.get(uid)
        if pod is None:
            return self._clear(uid)
        state = self._states.get(uid) or self._begin(pod)
        sync = _Sync(_newest(pod, state.written), state, self._clock.now())
        if self._is_unarmed(sync):
            fresh = await self.fence.fresh_pod(sync.pod)
            if fresh is None:
                return DONE
            state.written = fresh
            sync = replace(sync, pod=fresh)
        if (later := await self._judge(sync)) is not None:
            return Result(requeue_after=later.retry_seconds)
        wait = await self._act(sync)
        answer = await self._report(sync)
        if answer is not None:
            sync = replace(sync, pod=answer)
        if not self._takes_room(sync.pod):
            self._leave(uid)
            self.fence.forget(uid)
        await self._finish(sync)
        return DONE if wait is None else Result(requeue_after=wait)

    def _begin(self, pod: Pod) -> _PodState:
        containers = self.runtime.containers(pod.metadata.uid)
        state = _PodState(
            container_status.shape_of(pod),
            container_status.recall(pod, containers),
            admitted=bool(containers) or pod.status.start_time is not None,
            checked=bool(self._live(pod.metadata.uid)),
            start_time=pod.status.start_time or "",
        )
        self._states[pod.metadata.uid] = state
        self.fence.adopt(pod)
        if state.admitted and self._takes_room(pod):
            self._join(pod)
        return state

    def _takes_room(self, pod: Pod) -> bool:
        """Containers may run on after another component marked the pod as ended."""
        return not pod.is_terminal or bool(self._live(pod.metadata.uid))

    def _live(self, uid: str) -> list[str]:
        containers = self.runtime.containers(uid)
        return [name for name, each in containers.items() if not each.current.has_ended]

    def _join(self, pod: Pod) -> None:
        self._active[pod.metadata.uid] = pod
        self.gate.joined(pod)

    def _leave(self, uid: str) -> None:
        """Free the resources of a pod, and sync all pods that wait for room."""
        if self._active.pop(uid, None) is None:
            return
        self.gate.left(uid)
        queue, self._queue = self._queue, {}
        for each in queue:
            self._wake(each)

    def _clear(self, uid: str) -> Result:
        """Stop and remove a pod whose object is gone; nothing is written (behaviour D4.8)."""
        self._queue.pop(uid, None)
        live = self._live(uid)
        for name in live:
            self.runtime.stop(uid, name, max(ORPHAN_GRACE, MINIMUM_STOP_SECONDS))
        if not live:
            self.runtime.remove(uid)
            self.fence.forget(uid)
            self._states.pop(uid, None)
            self._leave(uid)
        return DONE

    async def _judge(self, sync: _Sync) -> Later | None:
        """Admit the pod, or decide why it must end. `Later`: the admission has to wait."""
        state = sync.state
        if state.ending is None and not sync.is_terminating and not state.admitted:
            if (wait := await self._check(sync)) is not None:
                return Later(wait)
            answer = await self.gate.admit(sync.pod)
            if isinstance(answer, Later):
                state.checked = False
                self._queue[sync.uid] = None
                return answer
            state.ending, state.admitted = answer, answer is None
            if state.admitted:
                self._join(sync.pod)
        if not state.start_time:
            state.start_time = times.format_time(sync.now)
        if state.ending is not None or sync.pod.is_terminal:
            return None
        # Neither the node nor the containers gave a reason to end the pod.
        seconds = _until_deadline(sync)
        if (ending := self.fence.ending(sync.uid)) is not None:
            self._record_event(sync.pod, "Warning", ending.reason, ending.message)
            state.ending = ending
        elif sync.pod.is_terminating and self._is_pending(sync):
            # A reason in the status is from the component that deleted the pod.
            fails = self._fails_pending and not sync.pod.status.reason
            state.ending = pod_status.DELETED if fails else None
        elif seconds is not None and seconds <= 0:
            state.ending = DEADLINE
        return None

    async def _check(self, sync: _Sync) -> float | None:
        """Run `check`. Returns the seconds until the next try if `check` refuses."""
        try:
            await self.check(sync.pod)
        except StartError as error:
            if error.event:
                self._record_event(sync.pod, "Warning", error.event, error.note)
            return error.retry_seconds or backoff.start_retry_seconds(sync.uid)
        sync.state.checked = True
        return None

    @property
    def _fails_pending(self) -> bool:
        """Whether a pod that never ran fails when it is deleted (KEP-3939, risks)."""
        return pod_replacement.sets_phase(self._job_gates)

    def _is_pending(self, sync: _Sync) -> bool:
        """Whether both the API and the runtime have the pod as Pending."""
        if sync.pod.status.phase not in ("", PENDING):
            return False
        return pod_status.computed_phase(self._view(sync)) == PENDING

    def _view(self, sync: _Sync, *, has_ended: bool = False) -> View:
        containers: Containers = self.runtime.containers(sync.uid)
        state = sync.state
        if state.recalled:
            containers = container_status.join(state.recalled, containers)
        return View(sync.pod, state.shape, containers, state.waiting, has_ended)

    async def _act(self, sync: _Sync) -> float | None:
        """Start or stop what is due. Returns the seconds until there is more to do."""
        if not sync.is_terminating and not sync.state.over:
            waits = await self._run(sync)
            view = self._view(sync)
            sync.state.over = phase.is_over(view.shape, view.observe())
            if not sync.state.over:
                deadline = _until_deadline(sync)
                return min([*waits, *([] if deadline is None else [deadline])], default=None)
        sync.state.waiting.clear()
        return self._stop(sync)

    async def _run(self, sync: _Sync) -> list[float]:
        """Start, in order, what may start now. Returns the waits of what may not yet."""
        waits: list[float] = []
        # An earlier agent admitted the pod, but no container runs: the pod may have been
        # evicted while no agent ran.
        if not sync.state.checked and (wait := await self._check(sync)) is not None:
            return [wait]
        if not await self._arm(sync, waits):
            return waits
        shape = sync.state.shape
        for container in shape.init_containers:
            if not self._view(sync).is_done(container):
                await self._ensure(sync, container, waits)
            view = self._view(sync)
            # Once a regular container started, a sidecar that restarts does not delay others.
            has_started = any(each.name in view.containers for each in shape.containers)
            if not view.is_done(container) and not has_started:
                return waits
        for container in shape.containers:
            await self._ensure(sync, container, waits)
        return waits

    async def _arm(self, sync: _Sync, waits: list[float]) -> bool:
        """Set the deadline if the pod needs one. Returns whether containers may start."""
        if not self._is_unarmed(sync):
            return True
        try:
            return await self.fence.arm(sync.uid)
        except StartError as error:
            self._record_event(sync.pod, "Warning", error.event, error.note)
            waits.append(backoff.start_retry_seconds(sync.uid))
            return False

    def _is_unarmed(self, sync: _Sync) -> bool:
        """Whether the pod needs a deadline before any container may start."""
        if not self.fence.is_due(sync.pod) or sync.is_terminating or sync.state.over:
            return False
        # The annotation has no effect once a container started.
        return self.fence.is_promised(sync.uid) or not self._view(sync).containers

    async def _ensure(
        self, sync: _Sync, container: phase.ContainerShape, waits: list[float]
    ) -> None:
        """Start a container unless it runs, has ended for good, or has to wait."""
        state, name = sync.state, container.name
        attempts = self._view(sync).containers.get(name)
        if (retry_at := state.retry_at.get(name)) is not None and retry_at > sync.now:
            waits.append((retry_at - sync.now).total_seconds())
            return
        number = 0
        if attempts is not None:
            last = attempts.current
            if last.exit_code is None:
                return
            if not container.restarts(last.exit_code, state.shape.restart_policy):
                return
            wait = state.restarts.remaining(name, last.finished_at, sync.now)
            if wait > 0:
                self._hold_back(sync, name)
                waits.append(wait)
                return
            state.restarts.restarted(name, sync.now)
            number = last.attempt + 1
        await self._start(sync, name, number, waits)

    def _hold_back(self, sync: _Sync, name: str) -> None:
        """Report CrashLoopBackOff for a container that keeps failing (behaviour D3.1)."""
        if name in sync.state.waiting:
            return
        meta = sync.pod.metadata
        seconds = backoff.duration(sync.state.restarts.seconds(name, sync.now))
        whose = f"{meta.name}_{meta.namespace}({meta.uid})"
        text = f"back-off {seconds} restarting failed container={name} pod={whose}"
        sync.state.waiting[name] = WaitingReason("CrashLoopBackOff", text)
        note = f"Back-off restarting failed container {name} in pod {whose}"
        self._record_event(sync.pod, "Warning", "BackOff", note)

    async def _start(self, sync: _Sync, name: str, number: int, waits: list[float]) -> None:
        state = sync.state
        try:
            await self.permit(sync.pod)
            await self.runtime.start(sync.pod, name, number)
        except StartError as error:
            if error.reason:
                state.waiting[name] = WaitingReason(error.reason, str(error))
            wait = error.retry_seconds
            if wait is None:
                wait = backoff.start_retry_seconds(sync.uid, name)
            state.retry_at[name] = sync.now + timedelta(seconds=wait)
            waits.append(wait)
            self._record_event(sync.pod, "Warning", error.event, error.note)
            return
        state.waiting.pop(name, None)
        state.retry_at.pop(name, None)

    def _stop(self, sync: _Sync) -> float | None:
        """Stop regular containers together, then sidecars from the last to the first (D4.3).

        All preStop hooks start at once, also those of sidecars that stop later.
        """
        live = self._view(sync).live()
        if not live:
            return None
        # The grace of a pod can only shrink.
        state, now = sync.state, self._clock.monotonic()
        shortest = None if state.ending is None else state.ending.grace_seconds
        seconds = effective_grace(sync.pod, shortest)
        if state.grace is None or seconds < state.grace:
            kill_at = now + seconds
            state.kill_at = kill_at if state.grace is None else min(state.kill_at, kill_at)
            state.grace = seconds
        grace = state.kill_at - now
        for name in live:
            if self.runtime.prepare_stop(sync.uid, name, grace):
                self._record_event(sync.pod, "Normal", "Killing", f"Stopping container {name}")
        sidecars = [each.name for each in sync.state.shape.sidecars() if each.name in live]
        first = [name for name in live if name not in sidecars] or sidecars[-1:]
        for name in first if grace > 0 else live:
            self.runtime.stop(sync.uid, name, max(grace, MINIMUM_STOP_SECONDS))
        waits = [grace] if grace > 0 and len(first) < len(live) else []
        return min([*waits, *self._complain(sync)], default=None)

    def _complain(self, sync: _Sync) -> list[float]:
        """Record an event when a kill by the node takes too long; the kill goes on (D6.6)."""
        when = sync.state.complain_at
        if when is None:
            return []
        seconds = when - self._clock.monotonic()
        if seconds > 0:
            return [seconds]
        sync.state.complain_at = None
        note = "Container runtime did not kill the pod within specified grace period."
        self._record_event(sync.pod, "Warning", "ExceededGracePeriod", note)
        return []

    async def _report(self, sync: _Sync) -> Pod | None:
        """Write the status if the API has another one. Returns the answer."""
        pod, state = sync.pod, sync.state
        view = self._view(sync)
        if pod.is_terminal and state.sent is None and not self.runtime.containers(sync.uid):
            return None  # the pod ended before this worker started
        if (sync.is_terminating or state.over) and not view.live():
            view = self._view(sync, has_ended=True)
        pod_phase = pod_status.phase_of(
            view,
            terminating=sync.is_terminating,
            ending=state.ending,
            fails_pending=self._fails_pending,
        )
        status = pod_status.body(view, pod_phase, state.ending, state.start_time)
        changes: list[Object] = []
        if state.ending is None or not state.ending.rejected:
            conditions = pod_status.conditions(view, pod_phase)
            if (condition := self.fence.condition(sync.uid)) is not None:
                conditions.append(condition)
            changes = pod_status.changes(pod, conditions, times.format_time(sync.now))
            changes += self._disruption(sync, pod_phase)
        if status == state.sent and pod.status.phase == pod_phase and not changes:
            return None
        return await self._write(sync, status, changes)

    def _disruption(self, sync: _Sync, pod_phase: str) -> list[Object]:
        """The DisruptionTarget condition, written together with the end (behaviour D4.5)."""
        ending = sync.state.ending
        if ending is None or not ending.disruption or not self._job_gates.pod_disruption_conditions:
            return []
        if pod_phase not in pod_status.TERMINAL or sync.pod.is_terminal:
            return []
        reason = disruption_target.BY_KUBELET
        condition = disruption_target.condition(sync.pod, reason, ending.disruption, now=sync.now)
        return [] if condition is None else [condition]

    async def _write(self, sync: _Sync, status: Object, changes: list[Object]) -> Pod | None:
        state, meta = sync.state, sync.pod.metadata
        body = {**status, "conditions": changes} if changes else status
        try:
            # Only on this version: if another component marked the pod Failed while this node
            # slept, an older observation must not replace that (behaviour D8.2).
            answer = await status_writes.patch(self._client, PODS, sync.pod, body, unchanged=True)
        except errors.NotFound:
            return None  # the watch reports the deletion
        except errors.Conflict:
            # Sync again with the newer version, because the watch may be late.
            with contextlib.suppress(errors.NotFound):
                newer = await self._client.get(PODS, meta.name, namespace=meta.namespace)
                if newer.metadata.uid == meta.uid:
                    state.written = newer
                    self._wake(meta.uid)
            return None
        state.sent, state.written = status, answer
        return answer

    async def _finish(self, sync: _Sync) -> None:
        """Delete the object, once the API shows how the pod ended (behaviour D4.7)."""
        pod, state = sync.pod, sync.state
        is_final = pod.is_terminal or (not self._fails_pending and self._is_pending(sync))
        if state.deleted or not (is_final and pod.is_terminating) or self._view(sync).live():
            return
        meta = pod.metadata
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        try:
            await self._client.delete(PODS, meta.name, namespace=meta.namespace, options=options)
        except (errors.NotFound, errors.Conflict):
            log.debug("pod %s/%s was deleted already", meta.namespace, meta.name)
        state.deleted = True


def effective_grace(pod: Pod, override: int | None = None) -> int:
    """The shortest grace that was requested, at least one second (behaviour D4.2)."""
    graces = [
        each for each in (pod.metadata.deletion_grace_period_seconds, override) if each is not None
    ]
    if graces:
        return max(1, min(graces))
    return max(1, pod.spec.termination_grace_period_seconds or 0)


def _until_deadline(sync: _Sync) -> float | None:
    allowed = sync.pod.spec.active_deadline_seconds
    if allowed is None or not sync.state.start_time:
        return None
    return allowed - (sync.now - times.parse(sync.state.start_time)).total_seconds()


def _newest(cached: Pod, answer: Pod | None) -> Pod:
    """The answer to the last write, until the watch has delivered that version."""
    if answer is None:
        return cached
    versions = (each.metadata.resource_version for each in (cached, answer))
    in_cache, last = (int(each) if each.isdigit() else 0 for each in versions)
    return cached if in_cache >= last else answer
