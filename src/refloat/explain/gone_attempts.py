# SPDX-License-Identifier: Apache-2.0
"""Attempts of which only events are left: Kubernetes' own Job controller keeps no record.

The events of a Job name each pod that its controller created or deleted; the events of that pod
say where it ran and what ended it. The API server drops events after an hour.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.events import Event
from refloat.explain import explain_context
from refloat.explain.codes import Cause
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Attempt
from refloat.policy.job import attempts, job_spec

# Pods that are gone and whose events are read: one request each.
MAX_PODS = 10

_CREATION, _DELETION = "SuccessfulCreate", "SuccessfulDelete"

# Reason and start of the note of an event of the pod, and the end that it announces.
_ENDS = (
    ("Preempted", "", Cause.PREEMPTED, "preempted for a pod of higher priority"),
    ("TaintManagerEviction", "Marking", Cause.TAINT_EVICTION, "evicted by a NoExecute taint"),
    ("Evicted", "The node was low", Cause.NODE_PRESSURE, "evicted because the node ran low"),
    ("Evicted", "", Cause.STORAGE_LIMIT, "evicted for what it used itself"),
    ("Killing", "", Cause.DELETED, "deleted; no event says by whom"),
)


def names(job: Job, pods: Sequence[Pod], events: Iterable[Event]) -> list[str]:
    """The pods that are gone and in no record, the oldest first."""
    known = {pod.metadata.name for pod in pods}
    known |= {str(each.get("pod")) for each in attempts.recorded(job.metadata.annotations)}
    ours = (each for each in events if each.regarding.uid in ("", job.metadata.uid))
    created = sorted(
        (each for each in ours if each.reason == _CREATION), key=explain_context.last_seen
    )
    named = map(_named, created)
    return list(dict.fromkeys(name for name in named if name and name not in known))[-MAX_PODS:]


def rows(job: Job, pods: Sequence[Pod], context: ExplainContext, uncounted: int) -> list[Attempt]:
    """The gone pods whose events say how they ended.

    `uncounted` is how many failures the Job has counted that nothing else explains.
    """
    events = context.events_of("Job", job)
    created = {_named(each): each for each in events if each.reason == _CREATION}
    deleted = {_named(each): each for each in events if each.reason == _DELETION}
    is_failed = job_spec.decided(job) is not None
    attempts_: list[Attempt] = []
    for name in names(job, pods, events):
        key = explain_context.event_key("Pod", job.metadata.namespace, name)
        row = _row(name, context.events.get(key, ()))
        if name in deleted:
            end, how = _time(deleted[name]), "deleted by the Job controller"
            row = replace(row or Attempt(name, exists=False), cause=Cause.DELETED, how=how, end=end)
        if row is None:
            continue
        if uncounted > 0 and (name not in deleted or is_failed):
            row, uncounted = replace(row, counted=True), uncounted - 1
        attempts_.append(replace(row, start=row.start or _time(created[name])))
    return attempts_


def _named(event: Event) -> str:
    """The pod in `Created pod: train-x7k2p`."""
    return event.note.rpartition(": ")[2]


def _row(name: str, events: Sequence[Event]) -> Attempt | None:
    """None if no event says that the pod ended."""
    ends = (
        (event, cause, how)
        for reason, start, cause, how in _ENDS
        for event in events
        if event.reason == reason and event.note.startswith(start)
    )
    if (first := next(ends, None)) is None:
        return None
    end, cause, how = first
    scheduled = next((each for each in events if each.reason == "Scheduled"), None)
    node = scheduled.note.rpartition(" to ")[2] if scheduled is not None else ""
    detail = f": {' '.join(end.note.split())}" if end.reason == "Evicted" else ""
    began = None if scheduled is None else _time(scheduled)
    return Attempt(name, None, 1, node, began, _time(end), cause, how + detail, exists=False)


def _time(event: Event) -> datetime | None:
    text = explain_context.last_seen(event)
    return times.parse(text) if text else None
