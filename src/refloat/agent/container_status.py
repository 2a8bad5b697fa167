# SPDX-License-Identifier: Apache-2.0
"""The statuses of a pod's containers, computed from the records of the runtime.

Pure. `pod_status` computes the status of the pod, `pod_worker` acts on it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from refloat.agent.runtime import Attempts, ContainerRecord, Containers
from refloat.api import core, times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.node import phase

UNLOCATED = 137
UNKNOWN = "ContainerStatusUnknown"
GONE_WHEN_TERMINATED = "The container could not be located when the pod was terminated"
GONE_WHILE_RUNNING = (
    "The container could not be located when the pod was deleted.  The container used to be Running"
)

CREATING, INITIALIZING = "ContainerCreating", "PodInitializing"


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why a container does not start now."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """A pod's containers at one moment."""

    pod: Pod
    shape: phase.PodShape
    containers: Containers
    waiting: Mapping[str, WaitingReason] = field(default_factory=dict)
    """Containers that wait for their next start, and why."""

    gone: bool = False
    """The pod has ended: no further container starts (behaviour D5.1)."""

    def is_live(self, name: str) -> bool:
        """Whether the container runs or is about to run."""
        attempts = self.containers.get(name)
        return attempts is not None and not attempts.current.has_ended

    def live(self) -> list[str]:
        return [name for name in self.containers if self.is_live(name)]

    def is_initialized(self) -> bool:
        """Whether a regular container has started or may start."""
        if any(each.name in self.containers for each in self.shape.containers):
            return True
        return all(map(self.is_done, self.shape.init_containers))

    def is_done(self, container: phase.ContainerShape) -> bool:
        """Whether an init container lets the next one start."""
        attempts = self.containers.get(container.name)
        if attempts is None:
            return False
        if container.restart_policy == phase.ALWAYS:
            return attempts.current.started_at is not None and not attempts.current.has_ended
        return attempts.current.exit_code == 0

    def observe(self) -> dict[str, phase.ObservedContainer]:
        """The state of each container, as the phase is computed from it."""
        every = (*self.shape.init_containers, *self.shape.containers)
        return {each.name: self._observe(each.name) for each in every}

    def _observe(self, name: str) -> phase.ObservedContainer:
        attempts = self.containers.get(name)
        if attempts is None:
            return phase.ObservedContainer("waiting")
        current, before = attempts.current, attempts.previous
        if current.has_ended:
            state: phase.State = "waiting" if name in self.waiting else "terminated"
            return phase.ObservedContainer(state, current.exit_code)
        if current.started_at is None:
            return phase.ObservedContainer(
                "waiting", before.exit_code if before is not None else None
            )
        return phase.ObservedContainer("running", started=True)


def shape_of(pod: Pod) -> phase.PodShape:
    """The part of the spec that the phase depends on."""
    spec = pod.spec
    return phase.PodShape(
        _containers(spec.containers), _containers(spec.init_containers), spec.restart_policy
    )


def _containers(containers: Sequence[core.Container] | None) -> tuple[phase.ContainerShape, ...]:
    shapes = []
    for each in containers or ():
        # All rules with exit codes: also "restart all containers" restarts its own container.
        rules = tuple(
            phase.RestartRule(codes.operator, frozenset(codes.values or ()))
            for rule in each.restart_policy_rules or ()
            if (codes := rule.exit_codes) is not None
        )
        shapes.append(phase.ContainerShape(each.name, each.restart_policy, rules))
    return tuple(shapes)


def statuses(view: View) -> list[Object]:
    """`status.containerStatuses`."""
    result = [_status(view, each) for each in view.pod.spec.containers or ()]
    if view.gone and view.is_initialized():
        end = {"exitCode": UNLOCATED, "reason": UNKNOWN, "message": GONE_WHEN_TERMINATED}
        for status in result:
            if "terminated" not in status["state"]:
                status["state"] = {"terminated": dict(end)}
    return result


def init_statuses(view: View) -> list[Object]:
    """`status.initContainerStatuses`."""
    shapes = {each.name: each for each in view.shape.init_containers}
    return [
        {**_status(view, each), "ready": view.is_done(shapes[each.name])}
        for each in view.pod.spec.init_containers or ()
    ]


def _status(view: View, container: core.Container) -> Object:
    name = container.name
    attempts, waiting = view.containers.get(name), view.waiting.get(name)
    status: Object = {"name": name, "image": container.image, "imageID": ""}
    if attempts is None:
        default = WaitingReason(INITIALIZING if view.shape.init_containers else CREATING)
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


def _states(
    attempts: Attempts, waiting: WaitingReason | None
) -> tuple[Object, ContainerRecord | None]:
    """The state, and the record for `lastState`."""
    current, before = attempts.current, attempts.previous
    if current.has_ended:
        if waiting is not None:
            return {"waiting": _waiting(waiting)}, current
        return {"terminated": _terminated(current)}, before
    if current.started_at is None:
        return {"waiting": _waiting(WaitingReason(CREATING))}, before
    return {"running": {"startedAt": times.format_time(current.started_at)}}, before


def _waiting(waiting: WaitingReason) -> Object:
    state: Object = {"reason": waiting.reason}
    if waiting.message:
        state["message"] = waiting.message
    return state


def _terminated(record: ContainerRecord) -> Object:
    state: dict[str, Any] = {
        "exitCode": record.exit_code,
        "reason": record.reason or ("Error" if record.exit_code else "Completed"),
    }
    if record.message:
        state["message"] = record.message
    for key, when in (("startedAt", record.started_at), ("finishedAt", record.finished_at)):
        if when is not None:
            state[key] = times.format_time(when)
    if record.container_id:
        state["containerID"] = record.container_id
    return state


def recall(pod: Pod, containers: Containers) -> dict[str, Attempts]:
    """Containers that the API has and the runtime does not (behaviour D5.2)."""
    status = pod.status
    every = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return {
        each.name: Attempts(record)
        for each in every
        if (record := _record(each)) is not None and each.name not in containers
    }


def join(recalled: Containers, containers: Containers) -> Containers:
    """The containers of the runtime, with those that only the API has as earlier attempts."""
    result = dict(recalled)
    for name, each in containers.items():
        before = recalled.get(name)
        if before is not None and each.previous is None:
            result[name] = Attempts(each.current, before.current)
        else:
            result[name] = each
    return result


def _record(status: core.ContainerStatus) -> ContainerRecord | None:
    state, count = status.state, status.restart_count
    if (end := state.terminated) is not None:
        return ContainerRecord(
            count,
            started_at=times.parse(end.started_at) if end.started_at else None,
            exit_code=end.exit_code,
            finished_at=times.parse(end.finished_at) if end.finished_at else None,
            reason=end.reason,
        )
    if state.running is None:
        return None
    return ContainerRecord(count, exit_code=UNLOCATED, reason=UNKNOWN, message=GONE_WHILE_RUNNING)
