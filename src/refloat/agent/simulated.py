# SPDX-License-Identifier: Apache-2.0
"""Simulated containers, which run for some seconds and end with an exit code.

The pod's annotation `refloat.dev/simulate` has the script of each container:

    {"main": [{"seconds": 5, "exitCode": 3}, {"seconds": 1}],
     "main/2": {"seconds": null, "ignoreTerm": true}}

A container has a list with one entry for each attempt; the last entry serves all later
attempts. A single entry is a list of one. `name/2` is for the pod with completion index
2 and overrides `name`. Attempts count over all pods of a Job, or of an index of an
Indexed Job: the Job above fails once and then succeeds, even with new pods. An entry has

    startSeconds  seconds of pull and creation before the container runs (default 0)
    seconds       seconds of the run; null: until it is stopped (default 1)
    exitCode      the exit code after the run (default 0)
    reason        the reason, if not Completed or Error: OOMKilled
    stopSeconds   seconds from SIGTERM to the end (default 0)
    stopExitCode  the exit code after SIGTERM (default 143)
    ignoreTerm    true: only SIGKILL ends the container, with exit code 137
    preStopSeconds  seconds of the preStop hook before SIGTERM (default 0)
    killSeconds   seconds from SIGKILL to the end (default 0)
    memory, storage, pids  usage of the node during the run (`1Gi`, `1Gi`, 20)
    volumes       usage of emptyDir volumes: {"tmp": {"used": "2Gi", "sizeLimit": "1Gi"}}

`usage` subtracts the usage of all containers from the node's capacity.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, TypeAlias

import msgspec

from refloat.agent.runtime import Attempts, ContainerRecord, Containers, StartError
from refloat.api import quantity
from refloat.api.core import Pod
from refloat.base.clock import Clock, Handle
from refloat.policy.job import pod_state

ANNOTATION = "refloat.dev/simulate"

KILLED = 137  # 128 and SIGKILL

# As in the keeper, whose modules import only on Linux.
FENCED, FENCED_MESSAGE = "Fenced", "The agent did not extend the pod's deadline"

# The least time from SIGTERM to SIGKILL after a preStop hook (behaviour D4.2).
LEAST_GRACE = 2.0

# The most Jobs and indexes whose pods are counted; those without a new pod for the longest
# time are dropped and start again at 0.
MAX_GROUPS = 100_000

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
ExitCode: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]


class Volume(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The usage and the limit of an emptyDir."""

    used: str = "0"
    size_limit: str = ""


class Script(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The script of one attempt; the docstring of this module has the fields."""

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
        amounts = [each for volume in volumes for each in (volume.used, volume.size_limit) if each]
        return [self.memory, self.storage, *amounts]

    @property
    def uses_resources(self) -> bool:
        return bool(self.pids or self.volumes) or (self.memory, self.storage) != ("0", "0")


_decode = msgspec.json.Decoder(dict[str, list[Script] | Script]).decode
_DEFAULT = Script()


class PodHistory:
    """Counts the pods of each Job or index; shared by the nodes of a process."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, int | None], int] = {}

    def enter(self, pod: Pod) -> int:
        """Count a new pod. Returns the number of earlier pods; 0 for a pod without a controller.

        A new process has no counts. If a Job counts the failures of each index, the pod's own
        annotation has the number.
        """
        failures = pod_state.all_index_failures(pod)
        owner = pod.metadata.controller
        if owner is None:
            return failures
        group = (owner.uid, pod_state.completion_index(pod))
        before = max(self._pods.pop(group, 0), failures)
        self._pods[group] = before + 1
        if len(self._pods) > MAX_GROUPS:
            del self._pods[next(iter(self._pods))]
        return before


def script(pod: Pod, container: str, attempt: int) -> Script:
    """The script of an attempt; raises `StartError` for an invalid annotation."""
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if text is None:
        return _DEFAULT
    try:
        scripts = _decode(text)
    except msgspec.MsgspecError as error:
        raise StartError(f"annotation {ANNOTATION}: {error}") from error
    entry = scripts.get(f"{container}/{pod_state.completion_index(pod)}")
    if entry is None:
        entry = scripts.get(container, _DEFAULT)
    if not isinstance(entry, Script):
        entry = entry[min(attempt, len(entry) - 1)] if entry else _DEFAULT
    for text in entry.quantities():
        try:
            quantity.parse(text)
        except quantity.QuantityError as error:
            raise StartError(f"annotation {ANNOTATION}: {text!r}: {error}") from error
    return entry


@dataclass(slots=True)
class _Container:
    script: Script
    current: ContainerRecord
    previous: ContainerRecord | None
    timer: Handle | None = None  # the start, or the end of the run
    stopping: Handle | None = None  # the end after `stop`
    stops_at: float | None = None
    hook_over: float | None = None  # the end of the preStop hook


class SimulatedRuntime:
    """The `Runtime` of one simulated node."""

    def __init__(self, clock: Clock, past: PodHistory | None = None) -> None:
        self._clock = clock
        self._past = past if past is not None else PodHistory()
        self._before: dict[str, int] = {}
        self._pods: dict[str, dict[str, _Container]] = {}
        self.measured: dict[str, None] = {}  # pods whose scripts use resources
        self._deadlines: dict[str, float] = {}
        self._fences: dict[str, Handle] = {}
        self._booted_at = clock.now()
        self._changed: Callable[[str], object] = str  # until `listen`

    def listen(self, changed: Callable[[str], object]) -> None:
        self._changed = changed

    def pods(self) -> Sequence[str]:
        return list(self._pods)

    def containers(self, uid: str) -> Containers:
        containers = self._pods.get(uid)
        if not containers:
            return {}
        return {name: Attempts(each.current, each.previous) for name, each in containers.items()}

    async def start(self, pod: Pod, container: str, attempt: int) -> None:
        uid = pod.metadata.uid
        if self._has_passed(uid):
            raise StartError(f"pod {uid}: its deadline has passed")
        if uid not in self._before:
            self._before[uid] = self._past.enter(pod)
        entry = script(pod, container, self._before[uid] + attempt)
        if entry.uses_resources:
            self.measured[uid] = None
        containers = self._pods.setdefault(uid, {})
        before = containers.get(container)
        container_id = hashlib.sha256(f"{uid}/{container}/{attempt}".encode()).hexdigest()
        record = ContainerRecord(attempt, f"simulated://{container_id}")
        new = _Container(entry, record, before.current if before is not None else None)
        containers[container] = new
        if entry.start_seconds:
            self._after(new, entry.start_seconds, partial(self._begin, uid, new, notify=True))
        else:
            self._begin(uid, new)

    def running(self) -> Iterator[tuple[str, str, Script]]:
        """Pod, container name and script of all running containers."""
        for uid, containers in self._pods.items():
            for name, each in containers.items():
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
        rest = max(grace_seconds - hook, LEAST_GRACE)
        code, seconds = each.script.stop_exit_code, each.script.stop_seconds
        if each.script.ignore_term or seconds > rest:
            code, seconds = KILLED, rest + each.script.kill_seconds
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
        """The machine loses power: all containers are gone, without an end or a notification."""
        for containers in self._pods.values():
            for each in containers.values():
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
        def kill() -> None:
            self._changed(uid)
            for name, each in list(self._pods.get(uid, {}).items()):
                if each.current.has_ended:
                    continue
                if each.current.started_at is None:
                    self._give_up(uid, name, each)
                    continue
                _disarm(each)
                each.current = replace(each.current, message=FENCED_MESSAGE)
                end = partial(self._end, uid, each, KILLED, FENCED)
                self._after(each, each.script.kill_seconds, end)

        self._forget_deadline(uid)
        self._deadlines[uid] = at
        self._fences[uid] = self._clock.call_at(at, kill)

    def _forget_deadline(self, uid: str) -> None:
        self._deadlines.pop(uid, None)
        if (fence := self._fences.pop(uid, None)) is not None:
            fence.cancel()

    def _after(self, each: _Container, seconds: float, step: Callable[[], object]) -> None:
        each.timer = self._clock.call_at(self._clock.monotonic() + seconds, step)

    def _begin(self, uid: str, each: _Container, *, notify: bool = False) -> None:
        each.current = replace(each.current, started_at=self._clock.now())
        entry = each.script
        if entry.seconds is not None:
            end = partial(self._end, uid, each, entry.exit_code, entry.reason)
            self._after(each, entry.seconds, end)
        if notify:
            self._changed(uid)

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


def _disarm(each: _Container) -> None:
    for handle in (each.timer, each.stopping):
        if handle is not None:
            handle.cancel()
    each.timer = each.stopping = None
