# SPDX-License-Identifier: Apache-2.0
"""The lives of the pods of one node, on any runtime.

One look at a pod is a ladder: is it gone, may it begin, must it end, what is
to be started or stopped, what is to be said of it, may its object go. It
never waits for a container: the runtime says when to look again. Everything
but back-off is read anew from the API and the runtime, so a worker that was
restarted goes on where the last one was.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from refloat.agent import backoff, containers, status
from refloat.agent.containers import View, Waiting
from refloat.agent.gate import Gate, Later, OpenGate
from refloat.agent.runtime import Attempts, Containers, Runtime, StartError
from refloat.agent.self_fence import DEFAULT_SECONDS, SelfFence
from refloat.agent.starting import Permit, permitted
from refloat.agent.status import Ending
from refloat.api import times
from refloat.api.core import PENDING, Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions
from refloat.client.kinds import PODS
from refloat.policy import disruption, phase, pod_replacement
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime import statuses
from refloat.runtime.event_series import EventType
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

# Nobody waits for a pod whose object is gone (behaviour D4.8).
ORPHAN_GRACE = 1

# A container gets at least so long between being asked and being killed (D4.2).
MINIMUM_STOP_SECONDS = 2.0

# A kill of the node's own that takes longer, or half as long again as it may,
# is told of (D6.6).
KILL_PATIENCE = 10

Tell: TypeAlias = Callable[[Pod, EventType, str, str], object]
"""Says an event of a pod: its type, reason and note."""


DEADLINE = Ending(
    "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
)


@dataclass(slots=True)
class _Life:
    """What a node remembers of a pod between two looks."""

    shape: phase.PodShape
    recalled: dict[str, Attempts]  # containers that the API knows and the runtime does not
    admitted: bool
    checked: bool  # whether `PodWorker.check` has let it in
    start_time: str = ""
    ending: Ending | None = None
    over: bool = False  # by itself: nothing regular runs or will
    grace: int | None = None
    kill_at: float = 0.0
    complain_at: float | None = None  # when a kill of the node's own takes too long
    waiting: dict[str, Waiting] = field(default_factory=dict)
    retry_at: dict[str, datetime] = field(default_factory=dict)  # of starts that failed
    restarts: backoff.RestartBackoff = field(default_factory=backoff.RestartBackoff)
    sent: Object | None = None  # the last status, but for its conditions
    written: Pod | None = None  # what the last write answered
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a pod."""

    pod: Pod
    life: _Life
    now: datetime

    @property
    def is_terminating(self) -> bool:
        """Will no container be started again, whatever its policy (behaviour D4.1)?"""
        return self.pod.is_terminating or self.pod.is_terminal or self.life.ending is not None


def untold(pod: Pod, event_type: EventType, reason: str, note: str) -> None:
    """Events are for people; a worker does without."""


def _asleep(uid: str) -> None:
    """Until somebody says whom to wake."""


class PodWorker:
    """Drives the pods of one node. Whoever calls `reconcile` keeps `pods` up to date."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        *,
        clock: Clock,
        tell: Tell = untold,
        wake: Callable[[str], object] = _asleep,
        switches: Switches = ALL_ON,
        self_fence_seconds: int = DEFAULT_SECONDS,
        announce: Callable[[], object] = bool,
    ) -> None:
        """`check` is asked once, before a pod of which nothing runs is admitted; `permit` before
        each container starts. `announce` has the node renew its lease now."""
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._tell = tell
        self._wake = wake
        self._switches = switches
        self._lives: dict[str, _Life] = {}
        self._active: dict[str, Pod] = {}
        self._queuing: dict[str, None] = {}  # those that wait for others to leave
        self.gate: Gate = OpenGate()
        self.fence = SelfFence(
            client,
            runtime,
            clock=clock,
            seconds=self_fence_seconds,
            wake=self._wake,
            announce=announce,
        )
        self.check: Permit = permitted
        self.permit: Permit = permitted
        self.pods: dict[str, Pod] = {}  # what the API has, by uid

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    def active(self) -> list[Pod]:
        """Those that were admitted and have not ended, in that order."""
        return list(self._active.values())

    def is_active(self, uid: str) -> bool:
        return uid in self._active

    def has_strays(self) -> bool:
        """Whether containers live of a pod that went while no agent was here."""
        return any(uid not in self._lives and self._live(uid) for uid in self._runtime.pods())

    def is_ending(self, uid: str) -> bool:
        """Whether the node itself ends it."""
        life = self._lives.get(uid)
        return life is not None and life.ending is not None

    def kill(self, uid: str, ending: Ending) -> bool:
        """End a pod for the node's sake (behaviour D4.1); is it this that ends it?

        One that the node ends already ends in the newer words, and sooner if it is
        given less time than before. What is remembered is lost with the agent: one
        that is restarted before the end is written finds ended containers and no
        reason, as a kubelet does.
        """
        life, pod = self._lives.get(uid), self._active.get(uid)
        if life is None or pod is None or self.fence.ending(uid) is not None:
            return False
        if life.ending is not None:
            if not _is_news(pod, life.ending, ending):
                return False
            ending = _joined(pod, life.ending, ending)
        life.ending = ending
        grace = ending.grace_seconds
        if grace is None:
            grace = pod.spec.termination_grace_period_seconds or 0
        patience = max(KILL_PATIENCE, grace + grace // 2)
        life.complain_at = self._clock.monotonic() + patience
        self._wake(uid)
        return True

    def adopt(self) -> None:
        """Count those that were admitted before, so that no new one gets their place."""
        for uid, pod in self.pods.items():
            held = pod.status.start_time is not None or self._runtime.containers(uid)
            if held and uid not in self._lives and self._takes_room(pod):
                self._begin(pod)

    async def reconcile(self, uid: str) -> Result:
        pod = self.pods.get(uid)
        if pod is None:
            return self._clear(uid)
        life = self._lives.get(uid) or self._begin(pod)
        look = _Look(_newest(pod, life.written), life, self._clock.now())
        if self._is_unarmed(look):
            news = await self.fence.news(look.pod)
            if news is None:
                return DONE
            life.written = news
            look = replace(look, pod=news)
        if (later := await self._judge(look)) is not None:
            return Result(requeue_after=later.retry_seconds)
        wait = await self._act(look)
        written = await self._report(look)
        if written is not None:
            look = replace(look, pod=written)
        if not self._takes_room(look.pod):
            self._leave(uid)
            self.fence.forget(uid)
        await self._finish(look)
        return DONE if wait is None else Result(requeue_after=wait)

    def _begin(self, pod: Pod) -> _Life:
        held = self._runtime.containers(pod.metadata.uid)
        life = _Life(
            containers.shape_of(pod),
            containers.remembered(pod, held),
            admitted=bool(held) or pod.status.start_time is not None,
            checked=bool(self._live(pod.metadata.uid)),
            start_time=pod.status.start_time or "",
        )
        self._lives[pod.metadata.uid] = life
        self.fence.adopt(pod)
        if life.admitted and self._takes_room(pod):
            self._join(pod)
        return life

    def _takes_room(self, pod: Pod) -> bool:
        """Others may have called it ended while its containers live on."""
        return not pod.is_terminal or bool(self._live(pod.metadata.uid))

    def _live(self, uid: str) -> list[str]:
        held = self._runtime.containers(uid)
        return [name for name, each in held.items() if not each.current.has_ended]

    def _join(self, pod: Pod) -> None:
        self._active[pod.metadata.uid] = pod
        self.gate.joined(pod)

    def _leave(self, uid: str) -> None:
        """It takes nothing any more: whoever waits for room looks again."""
        if self._active.pop(uid, None) is None:
            return
        self.gate.left(uid)
        waiting, self._queuing = self._queuing, {}
        for each in waiting:
            self._wake(each)

    def _clear(self, uid: str) -> Result:
        """The object is gone: so goes the rest, and nothing is written (behaviour D4.8)."""
        self._queuing.pop(uid, None)
        live = self._live(uid)
        for name in live:
            self._runtime.stop(uid, name, max(ORPHAN_GRACE, MINIMUM_STOP_SECONDS))
        if not live:
            self._runtime.remove(uid)
            self.fence.forget(uid)
            self._lives.pop(uid, None)
            self._leave(uid)
        return DONE

    async def _judge(self, look: _Look) -> Later | None:
        """May it begin, and must it end? `Later`: neither yet."""
        life = look.life
        if life.ending is None and not look.is_terminating and not life.admitted:
            later = await self._admit(look)
            if later is not None:
                return later
        if not life.start_time:
            life.start_time = times.format_time(look.now)
        if life.ending is None:
            life.ending = self._own_ending(look)
        return None

    async def _admit(self, look: _Look) -> Later | None:
        pod, life = look.pod, look.life
        if (wait := await self._check(look)) is not None:
            return Later(wait)
        answer = await self.gate.admit(pod)
        if isinstance(answer, Later):
            life.checked = False
            self._queuing[pod.metadata.uid] = None
            return answer
        life.ending, life.admitted = answer, answer is None
        if life.admitted:
            self._join(pod)
        return None

    async def _check(self, look: _Look) -> float | None:
        """Ask `check` unless it has let the pod in; in how many seconds it is asked again."""
        try:
            await self.check(look.pod)
        except StartError as error:
            if error.event:
                self._tell(look.pod, "Warning", error.event, error.note)
            return error.retry_seconds or backoff.start_retry_seconds(look.pod.metadata.uid)
        look.life.checked = True
        return None

    def _own_ending(self, look: _Look) -> Ending | None:
        """Why the pod has to end, if it is neither the node's nor its containers' doing."""
        if look.pod.is_terminal:
            return None
        if (fenced := self.fence.ending(look.pod.metadata.uid)) is not None:
            self._tell(look.pod, "Warning", fenced.reason, fenced.message)
            return fenced
        if look.pod.is_terminating and self._is_pending(look):
            said = look.pod.status.reason  # by whoever deleted it for a reason of its own
            return status.DELETED if self._fails_pending and not said else None
        left = _until_deadline(look)
        return DEADLINE if left is not None and left <= 0 else None

    @property
    def _fails_pending(self) -> bool:
        """Whether one that never ran fails when it is deleted (KEP-3939, risks)."""
        return pod_replacement.sets_phase(self._switches)

    def _is_pending(self, look: _Look) -> bool:
        """In the API and in truth."""
        if look.pod.status.phase not in ("", PENDING):
            return False
        return status.computed_phase(self._view(look)) == PENDING

    def _view(self, look: _Look, *, gone: bool = False) -> View:
        held: Containers = self._runtime.containers(look.pod.metadata.uid)
        life = look.life
        known = containers.joined(life.recalled, held) if life.recalled else held
        return View(look.pod, life.shape, known, life.waiting, gone)

    async def _act(self, look: _Look) -> float | None:
        """Start or stop what is due; in how many seconds is there more to do?"""
        if not look.is_terminating and not look.life.over:
            waits = await self._run(look)
            view = self._view(look)
            look.life.over = phase.is_over(view.shape, view.seen())
            if not look.life.over:
                deadline = _until_deadline(look)
                return min([*waits, *([] if deadline is None else [deadline])], default=None)
        look.life.waiting.clear()
        return self._stop(look)

    async def _run(self, look: _Look) -> list[float]:
        """Start what may start now, in order; the waits of what may not yet."""
        waits: list[float] = []
        # An agent before this one admitted it, but nothing of it runs: it may have been evicted
        # while no agent was here.
        if not look.life.checked and (wait := await self._check(look)) is not None:
            return [wait]
        if not await self._arm(look, waits):
            return waits
        for container in look.life.shape.init_containers:
            if not self._view(look).is_done(container):
                await self._ensure(look, container, waits)
            # Once initialized, a sidecar that restarts keeps nobody waiting.
            if not self._view(look).is_done(container) and not self._once_initialized(look):
                return waits
        for container in look.life.shape.containers:
            await self._ensure(look, container, waits)
        return waits

    async def _arm(self, look: _Look, waits: list[float]) -> bool:
        """May containers start, as far as a deadline is concerned that they need first?"""
        if not self._is_unarmed(look):
            return True
        uid = look.pod.metadata.uid
        try:
            return await self.fence.arm(uid)
        except StartError as error:
            self._tell(look.pod, "Warning", error.event, error.note)
            waits.append(backoff.start_retry_seconds(uid))
            return False

    def _is_unarmed(self, look: _Look) -> bool:
        """Whether it needs a deadline first, before it may start anything."""
        if not self.fence.is_due(look.pod) or look.is_terminating or look.life.over:
            return False
        # Asking for it once something was started is too late.
        return self.fence.is_promised(look.pod.metadata.uid) or not self._view(look).known

    def _once_initialized(self, look: _Look) -> bool:
        known = self._view(look).known
        return any(each.name in known for each in look.life.shape.containers)

    async def _ensure(self, look: _Look, container: phase.Container, waits: list[float]) -> None:
        """Start a container unless it runs, ended for good, or has to wait."""
        life, name = look.life, container.name
        attempts = self._view(look).known.get(name)
        if (retry_at := life.retry_at.get(name)) is not None and retry_at > look.now:
            waits.append((retry_at - look.now).total_seconds())
            return
        number = 0
        if attempts is not None:
            last = attempts.current
            if last.exit_code is None:
                return
            if not container.restarts(last.exit_code, life.shape.restart_policy):
                return
            left = life.restarts.remaining(name, last.finished_at, look.now)
            if left > 0:
                self._hold_back(look, name)
                waits.append(left)
                return
            life.restarts.restarted(name, look.now)
            number = last.attempt + 1
        await self._start(look, name, number, waits)

    def _hold_back(self, look: _Look, name: str) -> None:
        """A container that keeps failing waits (behaviour D3.1)."""
        if name in look.life.waiting:
            return
        meta = look.pod.metadata
        seconds = backoff.duration(look.life.restarts.seconds(name, look.now))
        whose = f"{meta.name}_{meta.namespace}({meta.uid})"
        text = f"back-off {seconds} restarting failed container={name} pod={whose}"
        look.life.waiting[name] = Waiting("CrashLoopBackOff", text)
        note = f"Back-off restarting failed container {name} in pod {whose}"
        self._tell(look.pod, "Warning", "BackOff", note)

    async def _start(self, look: _Look, name: str, number: int, waits: list[float]) -> None:
        life = look.life
        try:
            await self.permit(look.pod)
            await self._runtime.start(look.pod, name, number)
        except StartError as error:
            if error.reason:
                life.waiting[name] = Waiting(error.reason, str(error))
            wait = error.retry_seconds
            if wait is None:
                wait = backoff.start_retry_seconds(look.pod.metadata.uid, name)
            life.retry_at[name] = look.now + timedelta(seconds=wait)
            waits.append(wait)
            self._tell(look.pod, "Warning", error.event, error.note)
            return
        life.waiting.pop(name, None)
        life.retry_at.pop(name, None)

    def _stop(self, look: _Look) -> float | None:
        """Stop what runs: the regular ones together, then the sidecars from the last (D4.3).

        Their hooks come first, all at once: a sidecar's too, before its turn.
        """
        live = self._view(look).live()
        if not live:
            return None
        uid, left = look.pod.metadata.uid, self._grace_left(look)
        for name in live:
            if self._runtime.prepare_stop(uid, name, left):
                self._tell(look.pod, "Normal", "Killing", f"Stopping container {name}")
        sidecars = [each.name for each in look.life.shape.sidecars() if each.name in live]
        first = [name for name in live if name not in sidecars] or sidecars[-1:]
        for name in first if left > 0 else live:
            self._runtime.stop(uid, name, max(left, MINIMUM_STOP_SECONDS))
        waits = [left] if left > 0 and len(first) < len(live) else []
        return min([*waits, *self._complain(look)], default=None)

    def _complain(self, look: _Look) -> list[float]:
        """Say so when a kill of the node's own takes too long; the kill goes on (D6.6)."""
        when = look.life.complain_at
        if when is None:
            return []
        left = when - self._clock.monotonic()
        if left > 0:
            return [left]
        look.life.complain_at = None
        note = "Container runtime did not kill the pod within specified grace period."
        self._tell(look.pod, "Warning", "ExceededGracePeriod", note)
        return []

    def _grace_left(self, look: _Look) -> float:
        """Seconds until everything is killed; a grace only ever shrinks."""
        life, now = look.life, self._clock.monotonic()
        ending = life.ending
        grace = effective_grace(look.pod, None if ending is None else ending.grace_seconds)
        if life.grace is None or grace < life.grace:
            life.kill_at = now + grace if life.grace is None else min(life.kill_at, now + grace)
            life.grace = grace
        return life.kill_at - now

    async def _report(self, look: _Look) -> Pod | None:
        """Write what is not yet so in the API; what it answered."""
        pod, life = look.pod, look.life
        view = self._view(look)
        if pod.is_terminal and life.sent is None and not self._runtime.containers(pod.metadata.uid):
            return None  # it ended before this worker began
        if (look.is_terminating or life.over) and not view.live():
            view = self._view(look, gone=True)
        reported = status.phase_of(
            view,
            terminating=look.is_terminating,
            ending=life.ending,
            fails_pending=self._fails_pending,
        )
        told = status.body(view, reported, life.ending, life.start_time)
        changed: list[Object] = []
        if life.ending is None or not life.ending.rejected:
            wanted = status.conditions(view, reported)
            if (fenced := self.fence.condition(pod.metadata.uid)) is not None:
                wanted.append(fenced)
            changed = status.changes(pod, wanted, times.format_time(look.now))
            changed += self._disruption(look, reported)
        if told == life.sent and pod.status.phase == reported and not changed:
            return None
        return await self._write(look, told, changed)

    def _disruption(self, look: _Look, reported: str) -> list[Object]:
        """Said together with the end, and by nobody else's end (behaviour D4.5)."""
        ending = look.life.ending
        if ending is None or not ending.disruption or not self._switches.pod_disruption_conditions:
            return []
        if reported not in status.TERMINAL or look.pod.is_terminal:
            return []
        reason = disruption.BY_KUBELET
        made = disruption.condition(look.pod, reason, ending.disruption, now=look.now)
        return [] if made is None else [made]

    async def _write(self, look: _Look, told: Object, changed: list[Object]) -> Pod | None:
        life = look.life
        whole = {**told, "conditions": changed} if changed else told
        try:
            # Of this version only: if somebody called it Failed while this node slept,
            # what the node saw before must not be written over it (behaviour D8.2).
            written = await statuses.patch(self._client, PODS, look.pod, whole, unchanged=True)
        except errors.NotFound:
            return None  # the watch will tell
        except errors.Conflict:
            await self._learn(look)
            return None
        life.sent, life.written = told, written
        return written

    async def _learn(self, look: _Look) -> None:
        """Look again with what others wrote: the watch may be hung, and tell it late."""
        meta = look.pod.metadata
        try:
            found = await self._client.get(PODS, meta.name, namespace=meta.namespace)
        except errors.NotFound:
            return
        if found.metadata.uid == meta.uid:
            look.life.written = found
            self._wake(meta.uid)

    async def _finish(self, look: _Look) -> None:
        """Let the object go, once the API shows how the pod ended (behaviour D4.7)."""
        pod, life = look.pod, look.life
        shown = pod.is_terminal or (not self._fails_pending and self._is_pending(look))
        if life.deleted or not (shown and pod.is_terminating) or self._view(look).live():
            return
        meta = pod.metadata
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        try:
            await self._client.delete(PODS, meta.name, namespace=meta.namespace, options=options)
        except (errors.NotFound, errors.Conflict):
            log.debug("pod %s/%s went by itself", meta.namespace, meta.name)
        life.deleted = True


def effective_grace(pod: Pod, override: int | None = None) -> int:
    """The smallest that anybody asked for, at least a second (behaviour D4.2)."""
    asked = [
        each for each in (pod.metadata.deletion_grace_period_seconds, override) if each is not None
    ]
    if asked:
        return max(1, min(asked))
    return max(1, pod.spec.termination_grace_period_seconds or 0)


def _is_news(pod: Pod, before: Ending, ending: Ending) -> bool:
    """Whether a kill says anything that an earlier one did not: why, or how soon."""
    sooner = effective_grace(pod, ending.grace_seconds) < effective_grace(pod, before.grace_seconds)
    return sooner or ending.reason != before.reason


def _joined(pod: Pod, before: Ending, ending: Ending) -> Ending:
    """Two kills of one pod: the words of the later, the shorter grace (behaviour D4.2)."""
    graces = (effective_grace(pod, each.grace_seconds) for each in (before, ending))
    return replace(ending, grace_seconds=min(graces), insists=before.insists or ending.insists)


def _until_deadline(look: _Look) -> float | None:
    allowed = look.pod.spec.active_deadline_seconds
    if allowed is None or not look.life.start_time:
        return None
    return allowed - (look.now - times.parse(look.life.start_time)).total_seconds()


def _newest(cached: Pod, written: Pod | None) -> Pod:
    """What the last write answered, until the watch has come as far."""
    if written is None:
        return cached
    versions = (each.metadata.resource_version for each in (cached, written))
    seen, known = (int(each) if each.isdigit() else 0 for each in versions)
    return cached if seen >= known else written
