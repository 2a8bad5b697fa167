# SPDX-License-Identifier: Apache-2.0
"""How a pod ended, in the words of a table: what a person or a policy could go by.

Pure. Names and measured amounts differ from run to run; here they are `POD`,
`NODE`, `NAMESPACE` and `N`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from refloat.demo.objects import TRACKING, Object
from refloat.demo.view import Seen

TERMINAL = ("Succeeded", "Failed")

DISRUPTION = "DisruptionTarget"

_AMOUNT = re.compile(r"(Threshold quantity: |available: |was using )\d+(?:[KMGT]i|k|M)?")


@dataclass(frozen=True, slots=True)
class End:
    """What is left of a pod, and what its Job makes of it."""

    status: str = ""
    """kubectl's STATUS, as the server lays it out."""
    phase: str = ""
    reason: str = ""
    message: str = ""
    container: str = ""
    """Its state, with exit code and reason."""
    disruption: str = ""
    """The reason of the condition DisruptionTarget."""
    because: str = ""
    """Its message."""
    conditions: str = ""
    """All others."""
    job: str = ""
    replaced: str = ""
    """Whether, and when, there was a second pod."""


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

FIELDS = tuple(each.name for each in fields(End))


def observe(pods: Sequence[Seen], job: Seen, name: str) -> End:
    """How a pod ended, of all that was seen of the pods of its Job."""
    last = [each for each in pods if each.name == name][-1]
    status = last.object["status"]
    told = status.get("conditions") or []
    target: Object = next((each for each in told if each["type"] == DISRUPTION), {})
    words = _Words(last.object)
    return End(
        status=last.cells["Status"],
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        message=words.plain(status.get("message", "")),
        container=", ".join(map(_container, status.get("containerStatuses") or ())) or "none",
        disruption=target.get("reason", "") if target.get("status") == "True" else "none",
        because=words.plain(target.get("message", "")),
        conditions=", ".join(sorted(_conditions(told))),
        job=words.plain(verdict(job.object)),
        replaced=_replaced(pods, name),
    )


class _Words:
    """Takes out of texts what is of this run alone."""

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


def _container(told: Object) -> str:
    """Such as `terminated 137 Error`."""
    for state, detail in (told.get("state") or {}).items():
        parts = [state]
        if "exitCode" in detail:
            parts.append(str(detail["exitCode"]))
        if detail.get("reason"):
            parts.append(detail["reason"])
        return " ".join(parts)
    return "unknown"


def _conditions(told: Sequence[Object]) -> Iterator[str]:
    for each in told:
        if each["type"] != DISRUPTION:
            reason = each.get("reason")
            yield f"{each['type']}={each['status']}" + (f" ({reason})" if reason else "")


def verdict(job: Object) -> str:
    """What has become of a Job."""
    status: dict[str, Any] = job.get("status") or {}
    for kind in ("Complete", "Failed"):
        for each in status.get("conditions") or ():
            if (each["type"], each["status"]) == (kind, "True"):
                text = f"{kind}: {each.get('reason', '')}"
                return f"{text}: {each['message']}" if kind == "Failed" else text
    return f"goes on, failed {status.get('failed', 0)}"


def is_over(job: Object) -> bool:
    return not verdict(job).startswith("goes on")


def is_terminal(pod: Object) -> bool:
    return pod["status"].get("phase") in TERMINAL


def is_counted(seen: Seen) -> bool:
    """Has the Job let go of it?"""
    return seen.is_gone or TRACKING not in (seen.object["metadata"].get("finalizers") or ())


def is_counting(job: Object) -> bool:
    """Is there a pod that it has seen end and not yet put into its numbers?"""
    found = (job.get("status") or {}).get("uncountedTerminatedPods") or {}
    return any(found.values())


def job_of(seen: Seen) -> str:
    """The name of the Job that a pod is of."""
    labels = seen.object["metadata"].get("labels") or {}
    return str(labels.get("batch.kubernetes.io/job-name", ""))


def replacement(pods: Sequence[Seen], name: str) -> Seen | None:
    """The first that was seen of another pod of the same Job."""
    job = next(job_of(each) for each in pods if each.name == name)
    return next((each for each in pods if each.name != name and job_of(each) == job), None)


def _replaced(pods: Sequence[Seen], name: str) -> str:
    second = replacement(pods, name)
    if second is None:
        return "no"
    ended = next((each for each in pods if each.name == name and is_terminal(each.object)), None)
    is_later = ended is not None and second.revision > ended.revision
    return "after its end" if is_later else "before its end"
