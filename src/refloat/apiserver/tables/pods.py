# SPDX-License-Identifier: Apache-2.0
"""Pods as rows; the column Status sums up a pod's state in one word.

While an init container blocks the others, its state is the pod's. After that, the
first container that waits or has ended decides. A deletion overrides all states.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

from refloat.api import conditions, printing
from refloat.api.meta import Object
from refloat.apiserver.tables.columns import AGE, NAME, Cells, Printer, age, column, name

Status: TypeAlias = dict[str, Any]

# The reason of pods on lost nodes.
_NODE_LOST = "NodeLost"

_GATED = "SchedulingGated"

# The conditions of the rows of finished pods, by phase.
_FINISHED = {
    phase: [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
    for phase, message in (
        ("Succeeded", "The pod has completed successfully."),
        ("Failed", "The pod failed."),
    )
}

_COLUMNS = (
    NAME,
    column("Ready", "Ready containers, of all containers."),
    column("Status", "The state of the pod in one word."),
    column("Restarts", "Restarts of containers, and the time of the last one."),
    AGE,
    column("IP", "The first address of the pod.", wide=True),
    column("Node", "The node that the pod is bound to.", wide=True),
    column("Nominated Node", "The node where preemption makes room for the pod.", wide=True),
    column("Readiness Gates", "Open readiness gates, of all.", wide=True),
)


def _cells(pod: Object, now: datetime) -> Cells:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    inits = spec.get("initContainers") or ()
    sidecars = frozenset(each["name"] for each in inits if each.get("restartPolicy") == "Always")
    visited, obstacle = _initialization(status, sidecars, len(inits))
    pod_conditions = conditions.of(pod)
    # An init container that restarts later does not block an initialized pod.
    is_blocked = bool(obstacle) and not conditions.is_true(pod_conditions, "Initialized")
    started = () if is_blocked else status.get("containerStatuses") or ()
    # After the initialization, the restarts of other init containers do not count.
    restarting = visited if is_blocked else [each for each in visited if each["name"] in sidecars]
    ready = sum(1 for each in visited if _is_up(each, sidecars) and each.get("ready"))
    ready += sum(1 for each in started if _is_running_ready(each))
    addresses, gates = status.get("podIPs"), spec.get("readinessGates") or ()
    open_gates = sum(conditions.is_true(pod_conditions, each["conditionType"]) for each in gates)
    return [
        name(pod),
        f"{ready}/{len(spec.get('containers') or ()) + len(sidecars)}",
        _state(pod, status, started, obstacle),
        _restarts([*restarting, *started], now),
        age(pod, now),
        (addresses[0].get("ip", "") if addresses else status.get("podIP")) or printing.NONE,
        spec.get("nodeName") or printing.NONE,
        status.get("nominatedNodeName") or printing.NONE,
        f"{open_gates}/{len(gates)}" if gates else printing.NONE,
    ]


def _initialization(
    status: Status, sidecars: frozenset[str], total: int
) -> tuple[list[Status], str]:
    """The init containers up to the first that blocks, and the reason why this one does."""
    visited: list[Status] = []
    for index, each in enumerate(status.get("initContainerStatuses") or ()):
        visited.append(each)
        state = each.get("state") or {}
        termination = state.get("terminated")
        if _has_succeeded(termination) or _is_up(each, sidecars):
            continue
        if termination is not None:
            return visited, f"Init:{_ending(termination)}"
        reason = (state.get("waiting") or {}).get("reason", "")
        if reason in ("", "PodInitializing"):
            reason = f"{index}/{total}"
        return visited, f"Init:{reason}"
    return visited, ""


def _has_succeeded(termination: Status | None) -> bool:
    return termination is not None and not termination.get("exitCode")


def _is_up(container: Status, sidecars: frozenset[str]) -> bool:
    """Whether this is a started sidecar, which does not block the initialization."""
    if container["name"] not in sidecars or not container.get("started"):
        return False
    return not _has_succeeded((container.get("state") or {}).get("terminated"))


def _state(pod: Object, status: Status, started: Sequence[Status], obstacle: str) -> str:
    phase, reason = status.get("phase", ""), status.get("reason", "")
    if pod["metadata"].get("deletionTimestamp"):
        if reason == _NODE_LOST:
            return "Unknown"
        if phase not in _FINISHED:
            return "Terminating"
    first_stop = next(filter(None, map(_stop, started)), "")
    is_gated = any(
        each.get("type") == "PodScheduled" and each.get("reason") == _GATED
        for each in status.get("conditions") or ()
    )
    word = first_stop or obstacle or (_GATED if is_gated else reason or phase)
    if word != "Completed":
        return word
    # Other containers may still run or have failed.
    running = any(_is_running_ready(each) for each in started)
    if running and _is_ready(status):
        return "Running"
    failure = next((_stop(each) for each in started if _has_failed(each)), "")
    return failure or ("NotReady" if running else word)


def _stop(container: Status) -> str:
    """Why a container does not run; empty if it runs or if the state is unknown."""
    state = container.get("state") or {}
    reason: str = (state.get("waiting") or {}).get("reason", "")
    if reason:
        return reason
    return "" if (termination := state.get("terminated")) is None else _ending(termination)


def _ending(termination: Status) -> str:
    if reason := termination.get("reason"):
        return str(reason)
    if signal := termination.get("signal"):
        return f"Signal:{signal}"
    return f"ExitCode:{termination.get('exitCode', 0)}"


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


def _restarts(containers: Sequence[Status], now: datetime) -> str:
    count = sum(each.get("restartCount", 0) for each in containers)
    ends = (((each.get("lastState") or {}).get("terminated") or {}) for each in containers)
    # Timestamps of one format: the order of the texts is that of the times.
    last = max((end.get("finishedAt") or "" for end in ends), default="") if count else ""
    return f"{count} ({printing.age(last, now)} ago)" if last else str(count)


PODS = Printer(
    _COLUMNS, _cells, lambda pod: _FINISHED.get((pod.get("status") or {}).get("phase", ""))
)
