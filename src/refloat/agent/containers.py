# SPDX-License-Identifier: Apache-2.0
"""The statuses of a pod's containers, from what the runtime knows of them.

Pure: what is, in the words of the API and of `policy.phase`. What the pod
makes of it is in `status`; what is done about it in `worker`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refloat.agent.runtime import Attempts, Containers, Record
from refloat.api import core, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy import phase

UNLOCATED = 137
UNKNOWN = "ContainerStatusUnknown"
GONE_WHEN_TERMINATED = "The container could not be located when the pod was terminated"
GONE_WHILE_RUNNING = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)

CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not started now."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A pod's containers at one moment."""

    pod: Pod
    shape: phase.PodShape
    known: Containers
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    """Those that wait for their next start, and why."""

    gone: bool = False
    """The pod has ended: what was never started never will be (behaviour D5.1)."""

    def is_live(self, name: str) -> bool:
        """Does it run, or is it about to?"""
        attempts = self.known.get(name)
        return attempts is not None and not attempts.current.has_ended

    def live(self) -> list[str]:
        return [name for name in self.known if self.is_live(name)]

    def is_initialized(self) -> bool:
        """Was a regular container ever started, or is nothing in the way of it?"""
        if any(each.name in self.known for each in self.shape.containers):
            return True
        return all(map(self.is_done, self.shape.init_containers))

    def is_done(self, container: phase.Container) -> bool:
        """Whether an init container lets the next one start."""
        attempts = self.known.get(container.name)
        if attempts is None:
            return False
        if container.restart_policy == phase.ALWAYS:
            return attempts.current.started_at is not None and not attempts.current.has_ended
        return attempts.current.exit_code == 0

    def seen(self) -> dict[str, phase.Seen]:
        every = (*self.shape.init_containers, *self.shape.containers)
        return {each.name: self._seen(each.name) for each in every}

    def _seen(self, name: str) -> phase.Seen:
        attempts = self.known.get(name)
        if attempts is None:
            return phase.Seen("waiting")
        current, before = attempts.current, attempts.previous
        if current.has_ended:
            state: phase.State = "waiting" if name in self.waiting else "terminated"
            return phase.Seen(state, current.exit_code)
        if current.started_at is None:
            return phase.Seen("waiting", before.exit_code if before is not None else None)
        return phase.Seen("running", started=True)


def shape_of(pod: Pod) -> phase.PodShape:
    """What the phase depends on in the spec."""
    spec = pod.spec
    return phase.PodShape(
        _containers(spec.containers), _containers(spec.init_containers), spec.restart_policy
    )


def _containers(listed: Sequence[core.Container] | None) -> tuple[phase.Container, ...]:
    return tuple(
        phase.Container(each.name, each.restart_policy, _rules(each.restart_policy_rules))
        for each in listed or ()
    )


def _rules(listed: Sequence[core.RestartRule] | None) -> tuple[phase.RestartRule, ...]:
    """Whatever their action: one that restarts all containers restarts at least its own."""
    return tuple(
        phase.RestartRule(codes.operator, frozenset(codes.values or ()))
        for each in listed or ()
        if (codes := each.exit_codes) is not None
    )


def statuses(view: View) -> list[Object]:
    """`status.containerStatuses`."""
    synthetic = view.gone and view.is_initialized()
    made = []
    for each in view.pod.spec.containers or ():
        status = _status(view, each)
        if synthetic and "terminated" not in status["state"]:
            status["state"] = {"terminated": _unlocated()}
        made.append(status)
    return made


def init_statuses(view: View) -> list[Object]:
    """`status.initContainerStatuses`."""
    made = []
    shapes = {each.name: each for each in view.shape.init_containers}
    for each in view.pod.spec.init_containers or ():
        status = _status(view, each)
        status["ready"] = view.is_done(shapes[each.name])
        made.append(status)
    return made


def _status(view: View, container: core.Container) -> Object:
    name = container.name
    attempts, waiting = view.known.get(name), view.waiting.get(name)
    status: Object = {"name": name, "image": container.image, "imageID": ""}
    if attempts is None:
        default = Waiting(INITIALIZING if view.shape.init_containers else CREATING)
        state, last, count = {"waiting": _waiting(waiting or default)}, None, 0
    else:
        state, last = _states(attempts, waiting)
        count = attempts.current.attempt
        if attempts.current.container_id:
            status["containerID"] = attempts.current.container_id
            status["imageID"] = container.image
    runs = "running" in state
    status |= {"state": state, "lastState": {}, "restartCount": count}
    if last is not None:
        status["lastState"] = {"terminated": _terminated(last)}
    return {**status, "ready": runs, "started": runs}


def _states(attempts: Attempts, waiting: Waiting | None) -> tuple[Object, Record | None]:
    """The state, and the record that the last state tells."""
    current, before = attempts.current, attempts.previous
    if current.has_ended:
        if waiting is not None:
            return {"waiting": _waiting(waiting)}, current
        return {"terminated": _terminated(current)}, before
    if current.started_at is None:
        return {"waiting": _waiting(Waiting(CREATING))}, before
    return {"running": {"startedAt": times.format_time(current.started_at)}}, before


def _waiting(waiting: Waiting) -> Object:
    told: Object = {"reason": waiting.reason}
    if waiting.message:
        told["message"] = waiting.message
    return told


def _terminated(record: Record) -> Object:
    told: dict[str, Any] = {
        "exitCode": record.exit_code,
        "reason": record.reason or ("Error" if record.exit_code else "Completed"),
    }
    if record.message:
        told["message"] = record.message
    for key, when in (("startedAt", record.started_at), ("finishedAt", record.finished_at)):
        if when is not None:
            told[key] = times.format_time(when)
    if record.container_id:
        told["containerID"] = record.container_id
    return told


def _unlocated() -> Object:
    return {"exitCode": UNLOCATED, "reason": UNKNOWN, "message": GONE_WHEN_TERMINATED}


def remembered(pod: Pod, held: Containers) -> dict[str, Attempts]:
    """What the API still knows of containers that the runtime does not (behaviour D5.2)."""
    status = pod.status
    told = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    found = {}
    for each in told:
        record = _recalled(each)
        if record is not None and each.name not in held:
            found[each.name] = Attempts(record)
    return found


def joined(recalled: Containers, held: Containers) -> Containers:
    """What the runtime holds, and before it what only the API remembers."""
    known = dict(recalled)
    for name, each in held.items():
        before = recalled.get(name)
        if before is not None and each.previous is None:
            known[name] = Attempts(each.current, before.current)
        else:
            known[name] = each
    return known


def _recalled(status: core.ContainerStatus) -> Record | None:
    state, count = status.state, status.restart_count
    if (ended := state.terminated) is not None:
        return Record(
            count,
            started_at=times.parse(ended.started_at) if ended.started_at else None,
            exit_code=ended.exit_code,
            finished_at=times.parse(ended.finished_at) if ended.finished_at else None,
            reason=ended.reason,
        )
    if state.running is None:
        return None
    return Record(count, exit_code=UNLOCATED, reason=UNKNOWN, message=GONE_WHILE_RUNNING)
