# SPDX-License-Identifier: Apache-2.0
"""What a node says of a pod: phase, conditions, container statuses.

Pure. Of the conditions it writes only its own (behaviour D7.1), and only those
that are not so already; a strategic merge leaves all others alone. When it is
written is `worker`'s business.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from refloat.agent import containers
from refloat.agent.containers import View
from refloat.api import structs
from refloat.api.core import FAILED, RUNNING, SUCCEEDED, Pod
from refloat.api.meta import Object
from refloat.policy import phase

TERMINAL = (SUCCEEDED, FAILED)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the node itself ends a pod, in the words of its status."""

    reason: str
    message: str
    rejected: bool = False
    """It was never admitted: nothing is said of containers and conditions."""

    insists: bool = True
    """It failed whatever its containers say. Else one whose containers all end well succeeds."""

    disruption: str = ""
    """The text of its DisruptionTarget, if it ends for the node's sake (behaviour F)."""

    grace_seconds: int | None = None
    """How long it may take, if that is less than what others allow."""


DELETED = Ending("Deleted", "Deleted while pending")
"""In KEP-3329's words; Kubernetes leaves both empty (docs/compatibility.md)."""


Condition: TypeAlias = tuple[str, bool, str, str]
"""Type, status, reason, message."""


def computed_phase(view: View, *, terminating: bool = False) -> str:
    """What the containers make of it."""
    return phase.compute(
        view.shape, view.seen(), terminating=terminating, initialized=view.is_initialized()
    )


def phase_of(
    view: View, *, terminating: bool, ending: Ending | None, fails_pending: bool = True
) -> str:
    """The phase to report; terminal only when nothing runs (behaviour D4.5).

    `fails_pending` is whether one that never ran fails when it is deleted.
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


def body(view: View, reported: str, ending: Ending | None, start_time: str) -> Object:
    """The status but for its conditions."""
    told: Object = {"phase": reported, "startTime": start_time}
    if generation := view.pod.metadata.generation:
        told["observedGeneration"] = generation
    # Somebody else's end is kept, with its reason (D2.9).
    ours = view.pod.status.phase != FAILED or view.pod.status.reason == (ending and ending.reason)
    if ending is not None and reported == FAILED and ours:
        told |= {"reason": ending.reason, "message": ending.message}
    if ending is not None and ending.rejected:
        return told
    if view.pod.spec.init_containers:
        told["initContainerStatuses"] = containers.init_statuses(view)
    told["containerStatuses"] = containers.statuses(view)
    return told


def conditions(view: View, reported: str) -> list[Condition]:
    """The conditions that a node owns, as they should be."""
    ready = _readiness(view, reported)
    started = any(
        attempts.current.started_at is not None and not attempts.current.has_ended
        for attempts in view.known.values()
    )
    sandbox = started or (bool(view.known) and reported not in TERMINAL)
    return [
        ("PodReadyToStartContainers", sandbox, "", ""),
        _initialized(view, reported),
        ("Ready", *ready),
        ("ContainersReady", *ready),
        ("PodScheduled", True, "", ""),
    ]


def _initialized(view: View, reported: str) -> Condition:
    if reported == SUCCEEDED:
        return ("Initialized", True, "PodCompleted", "")
    shape = view.shape
    # A sidecar that restarts later does not take it back.
    if any(each.name in view.known for each in shape.containers):
        return ("Initialized", True, "", "")
    missing = [each.name for each in shape.init_containers if not view.is_done(each)]
    if not missing:
        return ("Initialized", True, "", "")
    text = f"containers with incomplete status: [{' '.join(missing)}]"
    return ("Initialized", False, "ContainersNotInitialized", text)


def _readiness(view: View, reported: str) -> tuple[bool, str, str]:
    """Of the containers and of the pod, which has no gates here (behaviour D4.6)."""
    if reported == SUCCEEDED:
        return False, "PodCompleted", ""
    if reported == FAILED:
        return False, "PodFailed", ""
    seen = view.seen()
    shape = view.shape
    asked = (*shape.sidecars(), *shape.containers)
    unready = [each.name for each in asked if seen[each.name].state != "running"]
    if unready:
        text = f"containers with unready status: [{' '.join(unready)}]"
        return False, "ContainersNotReady", text
    return True, "", ""


def changes(pod: Pod, wanted: Iterable[Condition], now: str) -> list[Object]:
    """Those of the conditions that the API does not have like this."""
    held, generation = pod.status.conditions, pod.metadata.generation
    return [
        _written(each, structs.find(held, each[0]), generation, now)
        for each in wanted
        if not _is_so(each, structs.find(held, each[0]), generation)
    ]


def _is_so(wanted: Condition, held: structs.Condition | None, generation: int) -> bool:
    if held is None:
        return False
    _, status, reason, message = wanted
    return (
        held.status == str(status)
        and (held.reason, held.message) == (reason, message)
        and held.observed_generation == generation
    )


def _written(
    wanted: Condition, held: structs.Condition | None, generation: int, now: str
) -> Object:
    name, status, reason, message = wanted
    made: Object = {"type": name, "status": str(status), "observedGeneration": generation}
    # What is null goes away in a merge; what was never there need not.
    for key, text, before in (
        ("reason", reason, held.reason if held is not None else ""),
        ("message", message, held.message if held is not None else ""),
    ):
        if text or before:
            made[key] = text or None
    if held is None or held.status != str(status):
        made["lastTransitionTime"] = now
    return made
