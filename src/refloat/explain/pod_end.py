# SPDX-License-Identifier: Apache-2.0
"""How a pod ended: its cause, and a clause that names container, exit code and reason.

The first source that says something decides: the conditions of recovery and disruption, the
pod's reason, then the containers.
"""

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from refloat.api import structs
from refloat.api.core import FAILED, SUCCEEDED, ContainerStatus, Pod
from refloat.api.events import Event
from refloat.explain.codes import Cause
from refloat.policy.recovery import zombie
from refloat.policy.scheduling import disruption_target

# An exit code above this names a signal: 128 + its number.
SIGNAL_BASE = 128

_DISRUPTIONS = {
    "PreemptionByScheduler": (Cause.PREEMPTED, "preempted for a pod of higher priority"),
    "EvictionByEvictionAPI": (Cause.API_EVICTION, "evicted through the API (kubectl drain)"),
    "DeletionByTaintManager": (Cause.TAINT_EVICTION, "evicted by a NoExecute taint"),
    "DeletionByPodGC": (Cause.NODE_GONE, "its node is gone"),
    "DeletionByForceEviction": (Cause.FORCE_EVICTION, "force eviction of a node declared down"),
}
_BY_KUBELET = {
    "Evicted": (Cause.NODE_PRESSURE, "evicted because the node ran low"),
    "Terminated": (Cause.NODE_SHUTDOWN, "ended by the shutdown of the node"),
    "Preempting": (Cause.PREEMPTED_BY_NODE, "removed by the kubelet for a critical pod"),
}
_REASONS = {
    "Evicted": (Cause.STORAGE_LIMIT, "evicted for what it used itself"),
    "DeadlineExceeded": (Cause.DEADLINE, "ran longer than its own activeDeadlineSeconds"),
    "Terminated": (Cause.NODE_SHUTDOWN, "ended by the shutdown of the node"),
    "NodeShutdown": (Cause.NODE_SHUTDOWN, "refused because the node shuts down"),
    "Shutdown": (Cause.NODE_SHUTDOWN, "ended by the shutdown of the node"),
    "NodeLost": (Cause.NODE_GONE, "its node is lost"),
    "Preempting": (Cause.PREEMPTED_BY_NODE, "removed by the kubelet for a critical pod"),
    "SelfFenced": (Cause.SELF_FENCED, "ended by its node, which had lost the API server"),
    "Deleted": (Cause.DELETED, "deleted before its containers ran"),
}
_STARTS = frozenset(
    ("StartError", "ContainerCannotRun", "RunContainerError", "CreateContainerError")
)
# Reasons with which the kubelet refuses a pod; `OutOf` is followed by the resource.
_REFUSALS = frozenset(
    (
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "Taint",
        "AppArmor",
        "SysctlForbidden",
        "TopologyAffinityError",
        "InitContainerRestartForbidden",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodFeatureUnsupported",
        "PodTrust",
    )
)

# A readiness probe kills nothing.
_KILLING_PROBE = re.compile("(Liveness|Startup) probe (failed|errored)")


@dataclass(frozen=True, slots=True)
class PodEnd:
    cause: Cause
    how: str
    """A clause without a subject, as `container main: exit code 3`."""


def of(pod: Pod, events: Iterable[Event] = ()) -> PodEnd | None:
    """How the pod ended; of a deleted pod that still runs, what ends it. None if it goes on.

    `events` of the pod show why its kubelet killed a container.
    """
    if pod.status.phase == SUCCEEDED:
        return PodEnd(Cause.COMPLETED, "completed")
    if pod.status.phase != FAILED and not pod.is_terminating:
        return None
    end = _decided(pod) or _containers(pod)
    if end is not None and (pod.status.phase == FAILED or end.cause != Cause.EXIT_CODE):
        killed = end.cause in (Cause.SIGNAL, Cause.EXIT_CODE)
        return PodEnd(end.cause, end.how + _killed_for(events)) if killed else end
    if pod.is_terminating:
        return PodEnd(Cause.DELETED, "deleted" if pod.is_terminal else "being deleted")
    return PodEnd(Cause.UNKNOWN, "failed without an exit code or a reason")


def _killed_for(events: Iterable[Event]) -> str:
    for event in events:
        if event.reason == "FailedPostStartHook":
            return ", after its postStart hook failed"
        match = _KILLING_PROBE.match(event.note) if event.reason == "Unhealthy" else None
        if match is not None:
            return f", after its {match[1].lower()} probe failed"
    return ""


def _decided(pod: Pod) -> PodEnd | None:
    """What a controller or the kubelet decided about the pod."""
    status = pod.status
    forced = structs.find(status.conditions, zombie.CONDITION)
    if forced is not None and forced.status == "True":
        return PodEnd(Cause.RECOVERY, f"on the lost node {pod.spec.node_name}")
    target = structs.find(status.conditions, disruption_target.TARGET)
    if target is not None and target.status == "True":
        end = disruption(target.reason, status.reason)
        if end is None:
            return PodEnd(Cause.DELETED, f"disrupted: {target.reason}")
        return PodEnd(end.cause, _with_detail(end.how, status.message))
    end = by_reason(status.reason)
    return None if end is None else PodEnd(end.cause, _with_detail(end.how, status.message))


def by_reason(reason: str) -> PodEnd | None:
    """By the reason of the pod's status."""
    if reason in _REFUSALS or reason.startswith("OutOf"):
        return PodEnd(Cause.ADMISSION, f"refused: {reason}")
    words = _REASONS.get(reason)
    return None if words is None else PodEnd(*words)


def disruption(reason: str, status_reason: str) -> PodEnd | None:
    """By the reason of the condition DisruptionTarget and that of the pod's status."""
    words = _DISRUPTIONS.get(reason)
    if reason == disruption_target.BY_KUBELET:
        words = _BY_KUBELET.get(status_reason, (Cause.NODE_PRESSURE, "ended by the kubelet"))
    return None if words is None else PodEnd(*words)


def _containers(pod: Pod) -> PodEnd | None:
    """The container that was killed for memory, else the first that failed."""
    failures = [
        status
        for statuses in (pod.status.container_statuses, pod.status.init_container_statuses)
        for status in statuses or ()
        if status.state.terminated is not None
        and (status.state.terminated.exit_code or status.state.terminated.reason == "OOMKilled")
    ]
    ends = [container_end(each) for each in failures]
    killed = (end for end in ends if end.cause == Cause.OOM)
    return next(killed, None) or next(iter(ends), None)


def container_end(status: ContainerStatus) -> PodEnd:
    """How a container that has terminated ended."""
    ended = status.state.terminated
    assert ended is not None
    end = by_exit(status.name, ended.exit_code, ended.reason, ended.signal or 0)
    if end.cause == Cause.START_ERROR:
        return PodEnd(end.cause, _with_detail(end.how, getattr(ended, "message", "")))
    return end


def by_exit(container: str, code: int, reason: str = "", number: int = 0) -> PodEnd:
    """By the exit code of a container, its reason, and the signal if a runtime reports one."""
    name = f"container {container}"
    if reason == "OOMKilled":
        return PodEnd(Cause.OOM, f"{name}: out of memory (OOMKilled, exit code {code})")
    if reason in _STARTS:
        return PodEnd(Cause.START_ERROR, f"{name} did not start ({reason}, exit code {code})")
    if reason == "ContainerStatusUnknown":
        return PodEnd(Cause.UNKNOWN, f"{name}: the node does not know how it ended")
    if (number := number or code - SIGNAL_BASE) > 0 and (name_ := signal_name(number)):
        return PodEnd(Cause.SIGNAL, f"{name}: {name_} (exit code {code})")
    return PodEnd(Cause.EXIT_CODE, f"{name}: exit code {code}")


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; empty for a number that is no signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


# The kubelet's own text may have lines of stack; the first sentence names the reason.
_MAX_DETAIL = 160


def _with_detail(text: str, detail: str) -> str:
    line = " ".join(detail.split()).rstrip(".")
    if not line:
        return text
    return f"{text}: {line if len(line) <= _MAX_DETAIL else line[: _MAX_DETAIL - 1] + '…'}"
