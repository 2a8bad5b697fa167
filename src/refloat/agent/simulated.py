# SPDX-License-Identifier: Apache-2.0
"""Containers that only pretend: they run for so long and end with such a code.

What each does is written in the pod's annotation `refloat.dev/simulate`:

    {"main": [{"seconds": 5, "exitCode": 3}, {"seconds": 1}],
     "main/2": {"seconds": null, "ignoreTerm": true}}

By container: one entry for each attempt, the last of them for all that
follow; a single entry stands for a list of one. `name/2` is for the pod with
completion index 2 and comes before `name`. Attempts are those of the pod, after
one for each pod that its Job, or its index in an Indexed Job, had before: the
Job above fails once and then goes well, whoever starts it anew. An entry has

    startSeconds  1.5 s of pulling and making before it runs (default 0)
    seconds       how long it runs; null: until it is stopped (default 1)
    exitCode      with which it then ends (default 0)
    reason        why, if not Completed or Error: OOMKilled
    stopSeconds   how long it goes on when asked to end (default 0)
    stopExitCode  with which it ends when asked to (default 143, as of SIGTERM)
    ignoreTerm    whether it does not listen, and is killed: 137
    preStopSeconds  how long its preStop hook takes, before it is asked to end (default 0)
    killSeconds   how long it goes on when it is killed (default 0)
    memory, storage, pids  what it takes of its node as long as it runs (`1Gi`, `1Gi`, 20)
    volumes       what is in its emptyDir volumes: {"tmp": {"used": "2Gi", "sizeLimit": "1Gi"}}

What a node has left is its capacity without these; `usage` adds up.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeAlias

import msgspec

from refloat.agent.runtime import Attempts, Containers, Record, StartError
from refloat.api import quantity
from refloat.api.core import Pod
from refloat.base.clock import Clock, Handle
from refloat.policy import pod_state

ANNOTATION = "refloat.dev/simulate"

KILLED = 137  # 128 and SIGKILL

# In the words of the keeper, which nothing that runs everywhere may import.
FENCED, FENCED_MESSAGE = "Fenced", "The agent did not extend the pod's deadline"

# What a hook that took all of the grace leaves at least (behaviour D4.2).
LEAST_GRACE = 2.0

# Jobs and indexes of which the number of pods is remembered; those that had
# their last pod longest ago are forgotten, and begin anew.
MAX_GROUPS = 100_000

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
ExitCode: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Volume(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is in an emptyDir, and how much may be."""

    used: str = "0"
    size_limit: str = ""


class Script(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """What one attempt does; see the module's text."""

    start_seconds: Seconds = 0.0
    seconds: Seconds | None = 1.0
    exit_code: ExitCode = 0
    reason: str = ""
    stop_seconds: Seconds = 0.0
    stop_exit_code: ExitCode = 143
    ignore_term: bool = False
    pre_stop_seconds: Seconds = 0.0
    kill_seconds: Seconds = 0.0
    memory: str = "0"
    storage: str = "0"
    pids: Annotated[int, msgspec.Meta(ge=0)] = 0
    volumes: dict[str, Volume] = {}

    def quantities(self) -> list[str]:
        volumes = self.volumes.values()
        named = [each for volume in volumes for each in (volume.used, volume.size_limit) if each]
        return [self.memory, self.storage, *named]

    @property
    def takes_something(self) -> bool:
        return bool(self.pids or self.volumes) or (self.memory, self.storage) != ("0", "0")


_decode = msgspec.json.Decoder(dict[str, list[Script] | Script]).decode
_DEFAULT = Script()


class Past:
    """How many pods each Job or index had before; shared by the nodes of a process."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, int | None], int] = {}

    def enter(self, pod: Pod) -> int:
        """How many pods there were before this new one; 0 for one that nobody controls.

        A process that was started anew has forgotten. Where a Job counts the
        failures of each index, the pod itself still knows.
        """
        known = pod_state.all_index_failures(pod)
        owner = pod.metadata.controller
        if owner is None:
            return known
        group = (owner.uid, pod_state.completion_index(pod))
        before = max(self._pods.pop(group, 0), known)
        self._pods[group] = before + 1
        if len(self._pods) > MAX_GROUPS:
            del self._pods[next(iter(self._pods))]
        return before


def script(pod: Pod, container: str, attempt: int) -> Script:
    """What this attempt does; raises `StartError` when the annotation says nothing sensible."""
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if text is None:
        return _DEFAULT
    try:
        scripts = _decode(text)
    except msgspec.MsgspecError as error:
        raise StartError(f"annotation {ANNOTATION}: {error}") from error
    found = scripts.get(f"{container}/{pod_state.completion_index(pod)}")
    if found is None:
        found = scripts.get(container, _DEFAULT)
    if not isinstance(found, Script):
        found = found[min(attempt, len(found) - 1)] if found else _DEFAULT
    _check(found)
    return found


def _check(told: Script) -> None:
    for text in told.quantities():
        try:
            quantity.parse(text)
        except quantity.QuantityError as error:
            raise StartError(f"annotation {ANNOTATION}: {text!r}: {error}") from error


@dataclass(slots=True)
class _Container:
    script: Script
    current: Record
    previous: Record | None
    timer: Handle | None = None  # its next step by itself: it starts, or it ends
    stopping: Handle | None = None  # its end, once it was asked to
    stops_at: float | None = None
    hook_over: float | None = None  # when its preStop hook has run


class SimulatedRuntime:
    """The `Runtime` of one simulated node."""

    def __init__(self, clock: Clock, past: Past | None = None) -> None:
        self._clock = clock
        self._past = past if past is not None else Past()
        self._before: dict[str, int] = {}
        self._pods: dict[str, dict[str, _Container]] = {}
        self.measured: dict[str, None] = {}  # pods that say what they take
        self._deadlines: dict[str, float] = {}
        self._fences: dict[str, Handle] = {}
        self._booted_at = clock.now()
        self._changed: Callable[[str], object] = _nobody

    def listen(self, changed: Callable[[str], object]) -> None:
        self._changed = changed

    def pods(self) -> Sequence[str]:
        return list(self._pods)

    def containers(self, uid: str) -> Containers:
        held = self._pods.get(uid)
        if not held:
            return {}
        return {name: Attempts(each.current, each.previous) for name, each in held.items()}

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        uid = pod.metadata.uid
        if self._has_passed(uid):
            raise StartError(f"pod {uid}: its deadline has passed")
        if uid not in self._before:
            self._before[uid] = self._past.enter(pod)
        told = script(pod, container, self._before[uid] + attempt)
        if told.takes_something:
            self.measured[uid] = None
        held = self._pods.setdefault(uid, {})
        before = held.get(container)
        record = Record(attempt, _container_id(uid, container, attempt))
        made = _Container(told, record, before.current if before is not None else None)
        held[container] = made
        if told.start_seconds:
            self._after(made, told.start_seconds, partial(self._begin_and_tell, uid, made))
        else:
            self._begin(uid, made)

    def running(self) -> Iterator[tuple[str, str, Script]]:
        """Pod, container and script of all that runs now."""
        for uid, held in self._pods.items():
            for name, each in held.items():
                if each.current.started_at is not None and not each.current.has_ended:
                    yield uid, name, each.script

    def prepare_stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        each = self._pods.get(uid, {}).get(container)
        if each is None or each.current.has_ended or each.hook_over is not None:
            return False
        if each.current.started_at is None:
            return False
        hook = min(each.script.pre_stop_seconds, max(0.0, grace_seconds))
        each.hook_over = self._clock.monotonic() + hook
        return True

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        each = self._pods.get(uid, {}).get(container)
        if each is None or each.current.has_ended:
            return False
        if each.current.started_at is None:
            self._give_up(uid, container, each)
            return True
        self.prepare_stop(uid, container, grace_seconds)
        over = each.hook_over or 0.0
        hook = min(max(0.0, over - self._clock.monotonic()), grace_seconds)
        left = max(grace_seconds - hook, LEAST_GRACE)
        code, seconds = _end_when_stopped(each.script, left)
        when = self._clock.monotonic() + hook + seconds
        first = each.stops_at is None
        if each.stops_at is None or when < each.stops_at:
            if each.stopping is not None:
                each.stopping.cancel()
            each.stops_at = when
            each.stopping = self._clock.call_at(when, partial(self._end, uid, each, code, ""))
        return first

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._before.pop(uid, None)
        self.measured.pop(uid, None)
        self._forget_deadline(uid)

    @property
    def boot_id(self) -> str:
        return f"{int(self._booted_at.timestamp() * 1e6):x}"

    def deadlines(self) -> Mapping[str, float]:
        return self._deadlines

    async def arm(self, uid: str, at: float) -> None:
        if self._has_passed(uid):
            raise StartError(f"pod {uid}: its deadline has passed")
        self._set_deadline(uid, at)

    def extend(self, at: Mapping[str, float]) -> None:
        for uid, when in at.items():
            if uid in self._deadlines and not self._has_passed(uid):
                self._set_deadline(uid, when)

    def disarm(self, uid: str) -> None:
        self._forget_deadline(uid)

    def crash(self) -> None:
        """The machine loses power: nothing ends, everything is gone, nobody is told."""
        for held in self._pods.values():
            for each in held.values():
                _disarm(each)
        self._pods.clear()
        self._before.clear()
        self.measured.clear()
        for uid in list(self._deadlines):
            self._forget_deadline(uid)
        self._booted_at = self._clock.now()

    def _has_passed(self, uid: str) -> bool:
        return self._deadlines.get(uid, math.inf) <= self._clock.monotonic()

    def _set_deadline(self, uid: str, at: float) -> None:
        self._forget_deadline(uid)
        self._deadlines[uid] = at
        self._fences[uid] = self._clock.call_at(at, partial(self._pass, uid))

    def _forget_deadline(self, uid: str) -> None:
        self._deadlines.pop(uid, None)
        if (fence := self._fences.pop(uid, None)) is not None:
            fence.cancel()

    def _pass(self, uid: str) -> None:
        """The machine ends the pod by itself."""
        self._changed(uid)
        for name, each in list(self._pods.get(uid, {}).items()):
            if each.current.has_ended:
                continue
            if each.current.started_at is None:
                self._give_up(uid, name, each)
                continue
            _disarm(each)
            each.current = replace(each.current, message=FENCED_MESSAGE)
            self._after(
                each, each.script.kill_seconds, partial(self._end, uid, each, KILLED, FENCED)
            )

    def _after(self, each: _Container, seconds: float, step: Callable[[], object]) -> None:
        each.timer = self._clock.call_at(self._clock.monotonic() + seconds, step)

    def _begin_and_tell(self, uid: str, each: _Container) -> None:
        self._begin(uid, each)
        self._changed(uid)

    def _begin(self, uid: str, each: _Container) -> None:
        each.current = replace(each.current, started_at=self._clock.now())
        told = each.script
        if told.seconds is not None:
            end = partial(self._end, uid, each, told.exit_code, told.reason)
            self._after(each, told.seconds, end)

    def _end(self, uid: str, each: _Container, code: int, reason: str) -> None:
        _disarm(each)
        now = self._clock.now()
        each.current = replace(each.current, exit_code=code, finished_at=now, reason=reason)
        self._changed(uid)

    def _give_up(self, uid: str, name: str, each: _Container) -> None:
        _disarm(each)
        if each.previous is not None:
            each.current, each.previous = each.previous, None
        else:
            del self._pods[uid][name]
        self._changed(uid)


def _end_when_stopped(told: Script, grace_seconds: float) -> tuple[int, float]:
    """With which code it ends when it is asked to, and after how many seconds."""
    if told.ignore_term or told.stop_seconds > grace_seconds:
        return KILLED, grace_seconds + told.kill_seconds
    return told.stop_exit_code, told.stop_seconds


def _disarm(each: _Container) -> None:
    for handle in (each.timer, each.stopping):
        if handle is not None:
            handle.cancel()
    each.timer = each.stopping = None


def _container_id(uid: str, container: str, attempt: int) -> str:
    """The same for the same attempt, and for no other."""
    return f"simulated://{hashlib.sha256(f'{uid}/{container}/{attempt}'.encode()).hexdigest()}"


def _nobody(uid: str) -> None:
    """Until somebody listens."""
