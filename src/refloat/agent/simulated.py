# SPDX-License-Identifier: Apache-2.0
"""Containers that only pretend: they run for so long and end with such a code.

What each does is written in the pod's annotation `refloat.dev/simulate`:

    {"main": [{"seconds": 5, "exitCode": 3}, {"seconds": 1}],
     "main/2": {"seconds": null, "ignoreTerm": true}}

By container: one entry for each attempt, the last of them for all that
follow; a single entry stands for a list of one. `name/2` is for the pod with
completion index 2 and comes before `name`. Attempts are those within the pod,
and where a Job counts the failures of each index, those of the index too. An
entry has

    startSeconds  1.5 s of pulling and making before it runs (default 0)
    seconds       how long it runs; null: until it is stopped (default 1)
    exitCode      with which it then ends (default 0)
    reason        why, if not Completed or Error: OOMKilled
    stopSeconds   how long it goes on when asked to end (default 0)
    stopExitCode  with which it ends when asked to (default 143, as of SIGTERM)
    ignoreTerm    whether it does not listen, and is killed: 137
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeAlias

import msgspec

from refloat.agent.runtime import Attempts, Containers, Record, StartError
from refloat.api.core import Pod
from refloat.base.clock import Clock, Handle
from refloat.policy import pod_state

ANNOTATION = "refloat.dev/simulate"

KILLED = 137  # 128 and SIGKILL

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
ExitCode: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]


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


_decode = msgspec.json.Decoder(dict[str, list[Script] | Script]).decode
_DEFAULT = Script()


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
    if isinstance(found, Script):
        return found
    number = attempt + pod_state.all_index_failures(pod)
    return found[min(number, len(found) - 1)] if found else _DEFAULT


@dataclass(slots=True)
class _Container:
    script: Script
    current: Record
    previous: Record | None
    timer: Handle | None = None  # its next step by itself: it starts, or it ends
    stopping: Handle | None = None  # its end, once it was asked to
    stops_at: float | None = None


class SimulatedRuntime:
    """The `Runtime` of one simulated node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, dict[str, _Container]] = {}
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
        told = script(pod, container, attempt)
        uid = pod.metadata.uid
        held = self._pods.setdefault(uid, {})
        before = held.get(container)
        record = Record(attempt, _container_id(uid, container, attempt))
        made = _Container(told, record, before.current if before is not None else None)
        held[container] = made
        if told.start_seconds:
            self._after(made, told.start_seconds, partial(self._begin_and_tell, uid, made))
        else:
            self._begin(uid, made)

    def stop(self, uid: str, container: str, grace_seconds: float) -> bool:
        each = self._pods.get(uid, {}).get(container)
        if each is None or each.current.has_ended:
            return False
        if each.current.started_at is None:
            self._give_up(uid, container, each)
            return True
        code, seconds = _end_when_stopped(each.script, grace_seconds)
        when = self._clock.monotonic() + seconds
        first = each.stops_at is None
        if each.stops_at is None or when < each.stops_at:
            if each.stopping is not None:
                each.stopping.cancel()
            each.stops_at = when
            each.stopping = self._clock.call_at(when, partial(self._end, uid, each, code, ""))
        return first

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def crash(self) -> None:
        """The machine loses power: nothing ends, everything is gone, nobody is told."""
        for held in self._pods.values():
            for each in held.values():
                _disarm(each)
        self._pods.clear()

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
        return KILLED, grace_seconds
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
