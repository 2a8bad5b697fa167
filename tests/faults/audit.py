# SPDX-License-Identifier: Apache-2.0
"""Audit records of pods that were ended by force, compared with what the API shows.

A record belongs to one write that succeeded. The pod shows that write: its condition
or the deletion. The budget is judged by the times in these conditions.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from tests.e2e.cluster import Object

FORCED = "KueueForcefullyTerminated"
"""The reason of a condition and of an event, both written once for each pod."""
EVICTED_BY_FORCE = "DeletionByForceEviction"
"""The reason of the condition DisruptionTarget."""
CONDITION = "KueueFailureRecovery"
ANNOTATION = "kueue.x-k8s.io/safe-to-forcefully-terminate"
LABEL = "example.com/delete-after"

MAX_PODS, WINDOW_SECONDS = 1, 2

TERMINATED, DELETED, EVICTED = "terminated", "deleted", "evicted"
ACTIONS = (TERMINATED, DELETED, EVICTED)

POLICY: Object = {
    "annotated": {"forcefulTerminationGracePeriod": "1s"},
    "rules": [
        {
            "terminatePod": {
                "podLabelSelector": {"matchLabels": {LABEL: "1s"}},
                "forcefulTerminationGracePeriod": "1s",
                "deleteAfter": "1s",
            }
        }
    ],
    "budget": {"maxPods": MAX_PODS, "window": f"{WINDOW_SECONDS}s"},
}


def records(logs: Iterable[Path], pods: str) -> list[Object]:
    """All records of writes in these logs, of pods whose key begins so."""
    entries = (line for path in logs for line in path.read_text().splitlines())
    return [
        each
        for each in map(_entry, entries)
        if each.get("action") in ACTIONS and str(each.get("pod", "")).startswith(pods)
    ]


def _entry(line: str) -> Object:
    """A line of a log; one that a process could not finish is empty."""
    with contextlib.suppress(ValueError):
        if line.startswith("{"):
            entry: Object = json.loads(line)
            return entry
    return {}


def is_forced(pod: Object) -> bool:
    return condition(pod) is not None


def is_evicted(pod: Object) -> bool:
    """Whether force eviction made the pod Failed."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each.get("reason") == EVICTED_BY_FORCE for each in conditions)


def condition(pod: Object) -> Object | None:
    """The condition that only recovery writes."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == CONDITION), None)


def false_records(
    entries: list[Object], pods: Mapping[str, Object], deleted: Collection[str]
) -> Iterator[str]:
    """One record for each pod and action, and each is of a write that the pod shows."""
    for (uid, action), times in Counter((each["uid"], each["action"]) for each in entries).items():
        if times > 1:
            yield f"{times} records say that {uid} was {action}"
        if not _shows(action, pods.get(uid, {}), is_gone=uid in deleted):
            yield f"a record says that {uid} was {action}; the API shows {pods.get(uid)}"


def _shows(action: str, pod: Object, *, is_gone: bool) -> bool:
    is_failed = pod.get("status", {}).get("phase") == "Failed"
    if action == TERMINATED:
        return is_failed and is_forced(pod)
    if action == DELETED:
        meta = pod.get("metadata", {})
        return is_gone or bool(meta.get("deletionGracePeriodSeconds") == 0)
    return is_evicted(pod)


def unrecorded(entries: list[Object], pods: Mapping[str, Object]) -> Iterator[str]:
    """Names of pods that were ended by force, without a record."""
    recorded = {each["uid"] for each in entries if each["action"] == TERMINATED}
    for uid, pod in pods.items():
        if is_forced(pod) and uid not in recorded:
            yield pod["metadata"]["name"]


def false_force(pods: Mapping[str, Object]) -> Iterator[str]:
    """Only pods that opted in are ended by force, and never more of them than the budget has."""
    forced = [pod for pod in pods.values() if is_forced(pod)]
    for pod in forced:
        meta = pod["metadata"]
        if ANNOTATION not in meta.get("annotations", {}) and LABEL not in meta.get("labels", {}):
            yield f"{meta['name']} was ended by force, and has not opted in"
    moments = sorted(_moment(pod) for pod in forced)
    for first, later in zip(moments, moments[MAX_PODS:], strict=False):
        if (later - first).total_seconds() < WINDOW_SECONDS:
            yield f"more than {MAX_PODS} pods ended by force from {first} to {later}"


def _moment(pod: Object) -> datetime:
    target = condition(pod)
    assert target is not None
    return datetime.fromisoformat(target["lastTransitionTime"])
