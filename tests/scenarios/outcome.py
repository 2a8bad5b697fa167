# SPDX-License-Identifier: Apache-2.0
"""What is left of a scenario, without what differs from run to run.

Times and uids go; pods are called `<pod 0/1>` for the second (from 0) of
completion index 0, in the order of their creation. Those without an index are
alike, and which of them starts first is chance: they are called `<pod 1>`, in
the order of how they ended. In events all are `<pod>`, because a name may be
used again, and then two events are one. What remains is what two controllers
must agree on to the letter.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from refloat.api import conditions
from refloat.api.meta import Object
from refloat.scenario.namespace import JOB, ScenarioNamespace, index_of

# What Refloat alone writes, on purpose and in the same way each time.
_OUR_ANNOTATIONS = ("refloat.dev/simulate", "refloat.dev/attempts")

# The longest delay with which events are written.
EVENTS_SECONDS = 30.0
MORE_EVENTS_SECONDS = 3.0
CREATED = "SuccessfulCreate"

# The conditions of Jobs that have events.
_ANNOUNCED = ("Complete", "Failed", "Suspended")

_NUMBERED = re.compile(r"<pod [^>]*>")

_COUNTS = ("active", "ready", "terminating", "succeeded", "failed")
_TEXTS = ("completedIndexes", "failedIndexes")


def times_told(event: Object) -> int:
    """How often an event happened, by either of the two APIs of events."""
    count: int = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    return count


def told_by(condition: Object) -> str:
    """The reason of the event about a Job's condition."""
    if condition["type"] == "Suspended":
        return "Suspended" if condition["status"] == "True" else "Resumed"
    return "Completed" if condition["type"] == "Complete" else str(condition["reason"])


def _ending(pod: Object, deleted: set[str]) -> tuple[str, ...]:
    """What distinguishes pods without an index; nothing for those with one."""
    if index_of(pod) is not None:
        return ()
    status = pod.get("status") or {}
    there = "gone" if pod["metadata"]["uid"] in deleted else "there"
    return status.get("phase", ""), there, str(_containers(status))


class Names:
    """Stable names for whatever has a different one in each run."""

    def __init__(self, ns: ScenarioNamespace) -> None:
        self.pods: dict[str, str] = {}
        """By uid."""
        replaced = {ns.name: "<ns>"}
        numbers: Counter[int | None] = Counter()
        for pod in sorted(ns.pods.values(), key=lambda each: _ending(each, ns.gone)):
            meta, index = pod["metadata"], index_of(pod)
            number = numbers[index]
            numbers[index] += 1
            own = f"<pod {number}>" if index is None else f"<pod {index}/{number}>"
            self.pods[meta["uid"]] = own
            replaced[meta["name"]] = own
            replaced[meta["uid"]] = own
        replaced |= dict.fromkeys(ns.job_uids, "<job>")
        longest = sorted(replaced, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest)))
        self._replaced = replaced

    def text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._replaced[found[0]], text)

    def anonymous(self, text: str) -> str:
        """With no number for any pod."""
        return _NUMBERED.sub("<pod>", self.text(text))

    def texts(self, texts: Mapping[str, str] | None) -> dict[str, str]:
        return {key: self.text(value) for key, value in sorted((texts or {}).items())}


async def observe(ns: ScenarioNamespace, name: str = JOB) -> Object:
    """The record of a Job, all pods and the events, once all events are written."""
    return of(ns, await _settled_events(ns), name)


def of(ns: ScenarioNamespace, events: list[Object], name: str = JOB) -> Object:
    names = Names(ns)
    job = ns.jobs.get(name)
    return {
        "job": None if job is None else job_record(job, names),
        "pods": _pods(ns, names),
        "events": _events(events, names),
        "notes": ns.notes,
    }


async def _settled_events(ns: ScenarioNamespace) -> list[Object]:
    """All events: the controllers write them late."""
    clock = ns.cluster.clock
    deadline = clock.monotonic() + EVENTS_SECONDS
    before: list[Object] = []
    while True:
        events = await ns.events()
        if (_has_all(ns, events) and events == before) or clock.monotonic() > deadline:
            return events
        before = events
        await clock.sleep(MORE_EVENTS_SECONDS)


def _has_all(ns: ScenarioNamespace, events: list[Object]) -> bool:
    """Whether there is an event for each created pod and each condition that has one."""
    creations = sum("generateName" in pod["metadata"] for pod in ns.pods.values())
    recorded = sum(times_told(each) for each in events if each["reason"] == CREATED)
    reasons = {each.get("reason") for each in events}
    announced = {
        told_by(each)
        for job in ns.jobs.values()
        for each in conditions.of(job)
        if each["type"] in _ANNOUNCED
    }
    return recorded >= creations and announced <= reasons


def job_record(job: Object, names: Names) -> Object:
    status: Object = job.get("status") or {}
    uncounted: Object = status.get("uncountedTerminatedPods") or {}
    record: Object = {
        "conditions": [_condition(each, names) for each in status.get("conditions") or ()],
        "started": "startTime" in status,
        "completed": "completionTime" in status,
        "deleting": "deletionTimestamp" in job["metadata"],
        "uncounted": {
            which: sorted(map(names.text, uids)) for which, uids in sorted(uncounted.items())
        },
        "tracked": "uncountedTerminatedPods" in status,
    }
    record |= {field: status.get(field, 0) for field in _COUNTS}
    record |= {field: status.get(field) for field in _TEXTS}
    return record


def _condition(condition: Object, names: Names) -> Object:
    return {
        "type": condition["type"],
        "status": condition["status"],
        "reason": condition.get("reason", ""),
        "message": names.text(condition.get("message", "")),
    }


def _pods(ns: ScenarioNamespace, names: Names) -> Object:
    """By stable name; of those that are gone only that they were there, and how they ended."""
    records = {}
    for uid, pod in ns.pods.items():
        end = {"gone": True, "phase": pod.get("status", {}).get("phase", "")}
        records[names.pods[uid]] = end if uid in ns.gone else _pod(pod, names)
    return dict(sorted(records.items()))


def _pod(pod: Object, names: Names) -> Object:
    meta, status, spec = pod["metadata"], pod.get("status") or {}, pod["spec"]
    annotations = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if key not in _OUR_ANNOTATIONS
    }
    return {
        "gone": False,
        "phase": status.get("phase", ""),
        "reason": status.get("reason", ""),
        "deleting": "deletionTimestamp" in meta,
        "conditions": {
            each["type"]: [each["status"], each.get("reason", "")]
            for each in sorted(status.get("conditions") or (), key=lambda one: str(one["type"]))
        },
        "containers": _containers(status),
        "finalizers": meta.get("finalizers") or [],
        "labels": names.texts(meta.get("labels")),
        "annotations": names.texts(annotations),
        "owners": [_owner(each) for each in meta.get("ownerReferences") or ()],
        "generateName": meta.get("generateName", ""),
        "hostname": spec.get("hostname", ""),
        "env": [
            [each["name"], each.get("env") or []]
            for each in (*(spec.get("initContainers") or ()), *spec["containers"])
        ],
    }


def _containers(status: Object) -> Object:
    """The state of each container: its exit code if the container has ended, and its restarts."""
    every = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    states: Object = {}
    for each in every:
        state: Object = each.get("state") or {}
        termination: Object = state.get("terminated") or {}
        word: Any = termination.get("exitCode") if termination else next(iter(state), "waiting")
        states[each["name"]] = [word, each.get("restartCount", 0)]
    return states


def _owner(reference: Object) -> Object:
    return {
        "kind": reference["kind"],
        "name": reference["name"],
        "controller": reference.get("controller", False),
        "blockOwnerDeletion": reference.get("blockOwnerDeletion", False),
    }


def _events(events: list[Object], names: Names) -> list[Object]:
    """Each different event once, with its count."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for each in events:
        what = (each.get("type", ""), each.get("reason", ""), names.anonymous(each.get("note", "")))
        # How often a create fails depends on how long the scenario runs.
        counts[what] = (
            1 if each.get("reason") == "FailedCreate" else counts[what] + times_told(each)
        )
    return [
        {"type": kind, "reason": reason, "note": note, "count": count}
        for (kind, reason, note), count in sorted(counts.items())
    ]
