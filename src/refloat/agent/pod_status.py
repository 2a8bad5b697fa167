# SPDX-License-Identifier: Apache-2.0
"""The status of a pod as its node reports it: phase, conditions, container statuses.

Pure. A node writes only its own conditions (behaviour D7.1), and only those that
differ; a strategic merge keeps all others. `pod_worker` decides when to write.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.agent import container_status
from refloat.agent.container_status import View
from refloat.api import structs
from refloat.api.core import FAILED, RUNNING, SUCCEEDED, Pod
from refloat.api.meta import Object
from refloat.policy.node import phase

TERMINAL = (SUCCEEDED, FAILED)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the node ends a pod: reason and message of the pod's status."""

    reason: str
    message: str
    rejected: bool = False
    """The pod was never admitted: its status has no containers and no conditions."""

    insists: bool = True
    """The pod fails whatever its exit codes are. If False, exit codes 0 make it succeed."""

    disruption: str = ""
    """The message of DisruptionTarget, if the pod ends for the node (behaviour F)."""

    grace_seconds: int | None = None
    """The grace, if it is shorter than the pod's own."""


DELETED = Ending("Deleted", "Deleted while pending")
"""The words of KEP-3329; Kubernetes leaves both empty (docs/compatibility.md)."""


Condition: TypeAlias = tuple[str, bool, str, str]
"""Type, status, reason, message."""


def computed_phase(view: View, *, terminating: bool = False) -> str:
    """The phase that follows from the containers alone."""
    return phase.compute(
        view.shape, view.observe(), terminating=terminating, initialized=view.is_initialized()
    )


def phase_of(
    view: View, *, terminating: bool, ending: Ending | None, fails_pending: bool = True
) -> str:
    """The phase to report; terminal only when nothing runs (behaviour D4.5).

    `fails_pending`: whether a pod that never ran fails when it is deleted.
    """
    computed = computed_phase(view, terminating=terminating)
    before = view.pod.status.phase
    if view.live():
        return phase.advance(before, before if computed in TERMINAL else computed)
    if ending is not None and (ending.insists or computed not in TERMINAL):
        computed = FAILED
    elif view.gone and computed not in TERMINAL and (fails_pending or before == RUNNING):
        computed = FAILED  # D4.7
    return phase.advance(before, computed)


def body(view: View, pod_phase: str, ending: Ending | None, start_time: str) -> Object:
    """The status without its conditions."""
    status: Object = {"phase": pod_phase, "startTime": start_time}
    if generation := view.pod.metadata.generation:
        status["observedGeneration"] = generation
    # A pod that another component marked Failed keeps that component's reason (D2.9).
    ours = view.pod.status.phase != FAILED or view.pod.status.reason == (ending and ending.reason)
    if ending is not None and pod_phase == FAILED and ours:
        status |= {"reason": ending.reason, "message": ending.message}
    if ending is not None and ending.rejected:
        return status
    if view.pod.spec.init_containers:
        status["initContainerStatuses"] = container_status.init_statuses(view)
    status["containerStatuses"] = container_status.statuses(view)
    return status


def conditions(view: View, pod_phase: str) -> list[Condition]:
    """The conditions that the node owns, for this phase."""
    ready = _readiness(view, pod_phase)
    runs = any(
        attempts.current.started_at is not None and not attempts.current.has_ended
        for attempts in view.containers.values()
    )
    sandbox = runs or (bool(view.containers) and pod_phase not in TERMINAL)
    shape = view.shape
    missing = [each.name for each in shape.init_containers if not view.is_done(each)]
    if pod_phase == SUCCEEDED:
        initialized = (True, "PodCompleted", "")
    # A sidecar that restarts later does not change the condition.
    elif not missing or any(each.name in view.containers for each in shape.containers):
        initialized = (True, "", "")
    else:
        text = f"containers with incomplete status: [{' '.join(missing)}]"
        initialized = (False, "ContainersNotInitialized", text)
    return [
        ("PodReadyToStartContainers", sandbox, "", ""),
        ("Initialized", *initialized),
        ("Ready", *ready),
        ("ContainersReady", *ready),
        ("PodScheduled", True, "", ""),
    ]


def _readiness(view: View, pod_phase: str) -> tuple[bool, str, str]:
    """Status, reason and message of Ready and ContainersReady; no readiness gates (D4.6)."""
    if pod_phase == SUCCEEDED:
        return False, "PodCompleted", ""
    if pod_phase == FAILED:
        return False, "PodFailed", ""
    states = view.observe()
    every = (*view.shape.sidecars(), *view.shape.containers)
    unready = [each.name for each in every if states[each.name].state != "running"]
    if unready:
        text = f"containers with unready status: [{' '.join(unready)}]"
        return False, "ContainersNotReady", text
    return True, "", ""


def changes(pod: Pod, conditions: Iterable[Condition], now: str) -> list[Object]:
    """The conditions that differ from those in the API, as a strategic merge patch."""
    pairs = ((each, structs.find(pod.status.conditions, each[0])) for each in conditions)
    generation = pod.metadata.generation
    return [
        _patch(each, before, generation, now)
        for each, before in pairs
        if before is None
        or (before.status, before.reason, before.message) != (str(each[1]), *each[2:])
        or before.observed_generation != generation
    ]


def _patch(
    condition: Condition, before: structs.Condition | None, generation: int, now: str
) -> Object:
    name, status, reason, message = condition
    patch: Object = {"type": name, "status": str(status), "observedGeneration": generation}
    # A merge removes a field that is null; a field that was never set needs none.
    for key, text, old in (
        ("reason", reason, before.reason if before is not None else ""),
        ("message", message, before.message if before is not None else ""),
    ):
        if text or old:
            patch[key] = text or None
    if before is None or before.status != str(status):
        patch["lastTransitionTime"] = now
    return patch
