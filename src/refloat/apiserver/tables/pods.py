# SPDX-License-Identifier: Apache-2.0
"""Pods as rows: above all the one word that sums up all of a pod's state.

A pod is first judged by its initialization. While an init container stands
in the way, the others do not count. After that the first container that
waits or has ended names the state, and a deletion overrules everything.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from refloat.api import conditions, printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

Status: TypeAlias = dict[str, Any]

# Written when the node of a pod was given up as lost.
_NODE_LOST = "NodeLost"

_GATED = "SchedulingGated"

_FINISHED = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}

_COLUMNS = (
    NAME,
    column("Ready", "Containers that are ready, of all that should be."),
    column("Status", "The state of the pod in one word."),
    column("Restarts", "Restarts of its containers, and when the last one was."),
    AGE,
    column("IP", "The first address of the pod.", wide=True),
    column("Node", "The node that the pod is bound to.", wide=True),
    column("Nominated Node", "The node where room is being made for the pod.", wide=True),
    column("Readiness Gates", "Readiness gates that are open, of all.", wide=True),
)


def _cells(pod: Object, now: datetime) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    inits = spec.get("initContainers") or ()
    sidecars = frozenset(each["name"] for each in inits if each.get("restartPolicy") == "Always")
    visited, obstacle = _initialization(status, sidecars, len(inits))
    held = _is_held(status, obstacle)
    started = () if held else status.get("containerStatuses") or ()
    counted = visited if held else _sidecars(visited, sidecars, started)
    ready = sum(1 for each in visited if _is_up(each, sidecars) and each.get("ready"))
    ready += sum(1 for each in started if _is_running_ready(each))
    return [
        name(pod),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        _state(pod, status, started, obstacle),
        _restarts(counted, now),
        age(pod, now),
        _address(status) or printing.NONE,
        spec.get("nodeName") or printing.NONE,
        status.get("nominatedNodeName") or printing.NONE,
        _readiness_gates(spec, status),
    ]


def _initialization(
    status: Status, sidecars: frozenset[str], total: int
) -> tuple[list[Status], str]:
    """The init containers that had their turn, and what the last one waits for."""
    visited: list[Status] = []
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        visited.append(each)
        if obstacle := _obstacle(each, sidecars, f"{index}/{total}"):
            return visited, f"Init:{obstacle}"
    return visited, ""


def _obstacle(container: Status, sidecars: frozenset[str], progress: str) -> str:
    """Why initialization cannot go past this container; empty when it can."""
    state = container.get("state") or {}
    ended = state.get("terminated")
    if _has_succeeded(ended) or _is_up(container, sidecars):
        return ""
    if ended is not None:
        return _ending(ended)
    reason: str = (state.get("waiting") or {}).get("reason", "")
    return progress if reason in ("", "PodInitializing") else reason


def _has_succeeded(ended: Status | None) -> bool:
    return ended is not None and not ended.get("exitCode")


def _is_up(container: Status, sidecars: frozenset[str]) -> bool:
    """A sidecar that has started: initialization goes on beside it."""
    if container["name"] not in sidecars or not container.get("started"):
        return False
    return not _has_succeeded((container.get("state") or {}).get("terminated"))


def _is_held(status: Status, obstacle: str) -> bool:
    """An init container that restarts after the pod was initialized holds nothing up."""
    return bool(obstacle) and not conditions.is_true(status.get("conditions") or [], "Initialized")


def _sidecars(
    visited: Iterable[Status], sidecars: frozenset[str], started: Sequence[Status]
) -> list[Status]:
    """What counts for the restarts once initialization is over."""
    return [each for each in visited if each["name"] in sidecars] + list(started)


def _state(pod: Object, status: Status, started: Sequence[Status], obstacle: str) -> str:
    phase, reason = status.get("phase", ""), status.get("reason", "")
    if pod["metadata"].get("deletionTimestamp"):
        if reason == _NODE_LOST:
            return "Unknown"
        if phase not in _FINISHED:
            return "Terminating"
    word = _first_stop(started) or obstacle or _unstarted(status) or reason or phase
    return _nuanced(status, started) or word if word == "Completed" else word


def _unstarted(status: Status) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == _GATED:
            return _GATED
    return ""


def _first_stop(started: Sequence[Status]) -> str:
    return next(filter(None, map(_stop, started)), "")


def _stop(container: Status) -> str:
    """Why a container does not run; empty when it runs or nobody knows."""
    state = container.get("state") or {}
    reason: str = (state.get("waiting") or {}).get("reason", "")
    if reason:
        return reason
    return "" if (ended := state.get("terminated")) is None else _ending(ended)


def _ending(ended: Status) -> str:
    if reason := ended.get("reason"):
        return str(reason)
    if signal := ended.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _nuanced(status: Status, started: Sequence[Status]) -> str:
    """What is truer than `Completed` when that holds for some containers only."""
    running = any(_is_running_ready(each) for each in started)
    if running and _is_ready(status):
        return "Running"
    failure = next((_stop(each) for each in started if _has_failed(each)), "")
    return failure or ("NotReady" if running else "")


def _is_ready(status: Status) -> bool:
    return any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )


def _has_failed(container: Status) -> bool:
    state = container.get("state") or {}
    if (state.get("waiting") or {}).get("reason"):
        return False
    return bool((state.get("terminated") or {}).get("exitCode"))


def _is_running_ready(container: Status) -> bool:
    if not container.get("ready") or _stop(container):
        return False
    return (container.get("state") or {}).get("running") is not None


def _restarts(counted: Sequence[Status], now: datetime) -> str:
    count = sum(each.get("restartCount", 0) for each in counted)
    # Timestamps of one format: their texts are ordered as their times are.
    last = max((_previous_end(each) for each in counted), default="") if count else ""
    return f"{count} ({printing.age(last, now)} ago)" if last else str(count)


def _previous_end(container: Status) -> str:
    ended = (container.get("lastState") or {}).get("terminated") or {}
    return ended.get("finishedAt") or ""


def _address(status: Status) -> str:
    addresses = status.get("podIPs")
    text: str = addresses[0].get("ip", "") if addresses else status.get("podIP", "")
    return text


def _readiness_gates(spec: Status, status: Status) -> str:
    gates = spec.get("readinessGates")
    if not gates:
        return printing.NONE
    known = status.get("conditions") or []
    met = sum(1 for gate in gates if conditions.is_true(known, gate["conditionType"]))
    return f"{met}/{len(gates)}"


def _row_conditions(pod: Object) -> list[dict[str, str]] | None:
    phase = (pod.get("status") or {}).get("phase")
    if phase not in _FINISHED:
        return None
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _FINISHED[phase]}]


PODS = Printer(_COLUMNS, _cells, _row_conditions)
