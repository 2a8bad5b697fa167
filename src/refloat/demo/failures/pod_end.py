# SPDX-License-Identifier: Apache-2.0
"""The end of a pod in the words of a table, with all that a user or a policy can see.

Pure. Names and amounts differ from run to run, so they are replaced by `POD`, `NODE`,
`NAMESPACE` and `N`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from refloat.api.meta import Object
from refloat.apiserver.tables.pods import PODS
from refloat.demo.objects import TRACKING
from refloat.scenario.namespace import ScenarioEvent

TERMINAL = ("Succeeded", "Failed")

DISRUPTION = "DisruptionTarget"

_STATUS = [column["name"] for column in PODS.columns].index("Status")

# For ages, which are in other columns.
_EPOCH = datetime.fromtimestamp(0, UTC)

_AMOUNT = re.compile(r"(Threshold quantity: |available: |was using )\d+(?:[KMGT]i|k|M)?")


@dataclass(frozen=True, slots=True)
class End:
    """The last state of a pod, and the state of its Job."""

    status: str = ""
    """The column STATUS of the server's table."""
    phase: str = ""
    reason: str = ""
    message: str = ""
    container: str = ""
    """The state of the container, with exit code and reason."""
    disruption: str = ""
    """The reason of the condition DisruptionTarget."""
    because: str = ""
    """The message of the condition DisruptionTarget."""
    conditions: str = ""
    """All other conditions."""
    job: str = ""
    replaced: str = ""
    """Whether there was a second pod, and when."""


TITLES = {
    "status": "STATUS",
    "phase": "phase",
    "reason": "reason",
    "message": "message",
    "container": "container",
    "disruption": "DisruptionTarget",
    "because": "its message",
    "conditions": "other conditions",
    "job": "the Job",
    "replaced": "replaced",
}

FIELDS = tuple(field.name for field in fields(End))


def observe(pods: Sequence[ScenarioEvent], job: Object, name: str) -> End:
    """The end of a pod, from all events of the pods of its Job."""
    last = [event for event in pods if event.name == name][-1]
    status = last.object["status"]
    conditions = status.get("conditions") or []
    target: Object = next((c for c in conditions if c["type"] == DISRUPTION), {})
    others = [
        f"{each['type']}={each['status']}" + (f" ({each['reason']})" if each.get("reason") else "")
        for each in conditions
        if each["type"] != DISRUPTION
    ]
    words = _Words(last.object)
    return End(
        status=PODS.cells(last.object, _EPOCH)[_STATUS],
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        message=words.plain(status.get("message", "")),
        container=", ".join(map(_container, status.get("containerStatuses") or ())) or "none",
        disruption=target.get("reason", "") if target.get("status") == "True" else "none",
        because=words.plain(target.get("message", "")),
        conditions=", ".join(sorted(others)),
        job=words.plain(verdict(job)),
        replaced=_replaced(pods, name),
    )


class _Words:
    """Replaces the names and amounts of this run in texts."""

    def __init__(self, pod: Object) -> None:
        meta = pod["metadata"]
        self._names = {
            meta["name"]: "POD",
            meta["namespace"]: "NAMESPACE",
            pod["spec"].get("nodeName", ""): "NODE",
        }

    def plain(self, text: str) -> str:
        for name, word in self._names.items():
            if name:
                text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", word, text)
        return _AMOUNT.sub(r"\1N", text).strip()


def _container(container: Object) -> str:
    """The state of a container, such as `terminated 137 Error`."""
    for state, detail in (container.get("state") or {}).items():
        parts = [state]
        if "exitCode" in detail:
            parts.append(str(detail["exitCode"]))
        if detail.get("reason"):
            parts.append(detail["reason"])
        return " ".join(parts)
    return "unknown"


def verdict(job: Object) -> str:
    """The result of a Job."""
    status: dict[str, Any] = job.get("status") or {}
    for kind in ("Complete", "Failed"):
        for condition in status.get("conditions") or ():
            if (condition["type"], condition["status"]) == (kind, "True"):
                text = f"{kind}: {condition.get('reason', '')}"
                return f"{text}: {condition['message']}" if kind == "Failed" else text
    return f"goes on, failed {status.get('failed', 0)}"


def is_over(job: Object) -> bool:
    return not verdict(job).startswith("goes on")


def is_terminal(pod: Object) -> bool:
    return pod["status"].get("phase") in TERMINAL


def is_counted(pod: ScenarioEvent) -> bool:
    """Whether the Job has counted the pod and removed its finalizer."""
    return pod.is_gone or TRACKING not in (pod.object["metadata"].get("finalizers") or ())


def is_counting(job: Object) -> bool:
    """Whether the Job has ended pods that are not yet in its counters."""
    uncounted = (job.get("status") or {}).get("uncountedTerminatedPods") or {}
    return any(uncounted.values())


def job_of(pod: Object) -> str:
    """The name of the pod's Job."""
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get("batch.kubernetes.io/job-name", ""))


def replacement(pods: Sequence[ScenarioEvent], name: str) -> ScenarioEvent | None:
    """The first event of another pod of the same Job."""
    job = next(job_of(event.object) for event in pods if event.name == name)
    return next(
        (event for event in pods if event.name != name and job_of(event.object) == job), None
    )


def _replaced(pods: Sequence[ScenarioEvent], name: str) -> str:
    second = replacement(pods, name)
    if second is None:
        return "no"
    end = next((event for event in pods if event.name == name and is_terminal(event.object)), None)
    is_later = end is not None and second.revision > end.revision
    return "after its end" if is_later else "before its end"
