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
from refloat.agent.runtime import Attempts, Containers, Runtime, StartError
from refloat.agent.status import Ending
from refloat.api import times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions
from refloat.client.kinds import PODS
from refloat.policy import phase
from refloat.runtime.event_series import EventType
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

# Nobody waits for a pod whose object is gone (behaviour D4.8).
ORPHAN_GRACE = 1

# A container gets at least so long between being asked and being killed (D4.2).
MINIMUM_STOP_SECONDS = 2.0

# Until a start that failed is tried again: what the first back-off is.
START_RETRY_SECONDS = backoff.FIRST_SECONDS

Admit: TypeAlias = Callable[[Pod], Ending | None]
"""Whether the node takes a pod; if not, why."""

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
    start_time: str = ""
    ending: Ending | None = None
    over: bool = False  # by itself: nothing regular runs or will
    grace: int | None = None
    kill_at: float = 0.0
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


def _silent(pod: Pod, event_type: EventType, reason: str, note: str) -> None:
    """Events are for people; a worker does without."""


def _everybody(_: Pod) -> Ending | None:
    return None


class PodWorker:
    """Drives the pods of one node. Whoever calls `reconcile` keeps `pods` up to date."""

    def __init__(
        self,
        client: Client,
        runtime: Runtime,
        *,
        clock: Clock,
        admit: Admit = _everybody,
        tell: Tell = _silent,
    ) -> None:
        self._client = client
        self._runtime = runtime
        self._clock = clock
        self._admit = admit
        self._tell = tell
        self._lives: dict[str, _Life] = {}
        self._active: dict[str, None] = {}
        self.pods: dict[str, Pod] = {}  # what the API has, by uid

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    def active(self) -> int:
        """How many pods were admitted and have not ended."""
        return len(self._active)

    async def reconcile(self, uid: str) -> Result:
        pod = self.pods.get(uid)
        if pod is None:
            return self._clear(uid)
        life = self._lives.get(uid) or self._begin(pod)
        look = _Look(_newest(pod, life.written), life, self._clock.now())
        self._judge(look)
        wait = await self._act(look)
        written = await self._report(look)
        if written is not None:
            look = replace(look, pod=written)
        if look.pod.is_terminal:
            self._active.pop(uid, None)
        await self._finish(look)
        return DONE if wait is None else Result(requeue_after=wait)

    def _begin(self, pod: Pod) -> _Life:
        held = self._runtime.containers(pod.metadata.uid)
        life = _Life(
            containers.shape_of(pod),
            containers.remembered(pod, held),
            admitted=bool(held) or pod.status.start_time is not None,
            start_time=pod.status.start_time or "",
        )
        self._lives[pod.metadata.uid] = life
        if life.admitted:
            self._active[pod.metadata.uid] = None
        return life

    def _clear(self, uid: str) -> Result:
        """The object is gone: so goes the rest, and nothing is written (behaviour D4.8)."""
        self._active.pop(uid, None)
        held = self._runtime.containers(uid)
        live = [name for name, each in held.items() if not each.current.has_ended]
        for name in live:
            self._runtime.stop(uid, name, max(ORPHAN_GRACE, MINIMUM_STOP_SECONDS))
        if not live:
            self._runtime.remove(uid)
            self._lives.pop(uid, None)
        return DONE

    def _judge(self, look: _Look) -> None:
        """May it begin, and must it end?"""
        pod, life = look.pod, look.life
        if not life.start_time:
            life.start_time = times.format_time(look.now)
        if life.ending is not None or look.is_terminating:
            return
        if not life.admitted:
            life.ending = self._admit(pod)
            life.admitted = life.ending is None
            if life.admitted:
                self._active[pod.metadata.uid] = None
        elif (left := _until_deadline(look)) is not None and left <= 0:
            life.ending = DEADLINE

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
        for container in look.life.shape.init_containers:
            if not self._view(look).is_done(container):
                await self._ensure(look, container, waits)
            # Once initialized, a sidecar that restarts keeps nobody waiting.
            if not self._view(look).is_done(container) and not self._once_initialized(look):
                return waits
        for container in look.life.shape.containers:
            await self._ensure(look, container, waits)
        return waits

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
            await self._runtime.start(look.pod, name, number)
        except StartError as error:
            life.waiting[name] = Waiting(error.reason, str(error))
            life.retry_at[name] = look.now + timedelta(seconds=START_RETRY_SECONDS)
            waits.append(START_RETRY_SECONDS)
            self._tell(look.pod, "Warning", "Failed", f"Error: {error}")
            return
        life.waiting.pop(name, None)
        life.retry_at.pop(name, None)

    def _stop(self, look: _Look) -> float | None:
        """Stop what runs: the regular ones together, then the sidecars from the last (D4.3)."""
        live = self._view(look).live()
        if not live:
            return None
        left = self._grace_left(look)
        sidecars = [each.name for each in look.life.shape.sidecars() if each.name in live]
        first = [name for name in live if name not in sidecars] or sidecars[-1:]
        for name in first if left > 0 else live:
            if self._runtime.stop(look.pod.metadata.uid, name, max(left, MINIMUM_STOP_SECONDS)):
                self._tell(look.pod, "Normal", "Killing", f"Stopping container {name}")
        return left if left > 0 and len(first) < len(live) else None

    def _grace_left(self, look: _Look) -> float:
        """Seconds until everything is killed; a grace only ever shrinks."""
        life, now = look.life, self._clock.monotonic()
        grace = effective_grace(look.pod)
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
        reported = status.phase_of(view, terminating=look.is_terminating, ending=life.ending)
        told = status.body(view, reported, life.ending, life.start_time)
        changed: list[Object] = []
        if life.ending is None or not life.ending.rejected:
            wanted = status.conditions(view, reported)
            changed = status.changes(pod, wanted, times.format_time(look.now))
        if told == life.sent and pod.status.phase == reported and not changed:
            return None
        return await self._write(look, told, changed)

    async def _write(self, look: _Look, told: Object, changed: list[Object]) -> Pod | None:
        meta, life = look.pod.metadata, look.life
        try:
            written = await self._client.patch(
                PODS,
                meta.name,
                status.patch(look.pod, told, changed),
                patch_type="strategic",
                namespace=meta.namespace,
                subresource="status",
            )
        except (errors.NotFound, errors.Conflict):
            return None  # gone, or another one of its name: the watch will tell
        life.sent, life.written = told, written
        return written

    async def _finish(self, look: _Look) -> None:
        """Let the object go, once the API shows how the pod ended (behaviour D4.7)."""
        pod, life = look.pod, look.life
        if life.deleted or not (pod.is_terminal and pod.is_terminating) or self._view(look).live():
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
