# SPDX-License-Identifier: Apache-2.0
"""What must hold after a run, judged by the files of the containers and by the API.

Each check returns the violations as texts; none raises, so that a run
reports all of them. What is allowed depends on what the cluster has on record, never on
how fast the machine was: a node that was recorded as NotReady may lose the pods, and a
container that ended without any record of a deletion was killed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tests.e2e.cluster import Object
from tests.faults import audit
from tests.faults.containers import ContainerRun

NOT_READY = "NodeNotReady"
BY_TAINT = "DeletionByTaintManager"
CREATED, NOT_CREATED = "SuccessfulCreate", "FailedCreate"
LOST = ("ContainerStatusUnknown", 137)
"""How a node reports a container that ended with the keeper."""

MISSING = "not on record"
"""Part of a violation that may still go away: events are written behind."""


@dataclass
class JobsHistory:
    """All facts about a finished run."""

    runs: Mapping[str, ContainerRun]
    """The containers that started, by the uid of their pod."""
    pods: Mapping[str, Object]
    """Every pod that ever was, as last seen, by uid."""
    deleted_while_running: Mapping[str, Object]
    jobs: list[Object]
    """As they were when they had ended."""
    events: list[Object]
    deleted_jobs: set[str] = field(default_factory=set)
    """Names of Jobs that the scenario deleted: their pods may be stopped."""
    every_event: bool = True
    """Whether each event and audit record must exist: no process that writes them was killed."""
    lost_keepers: set[str] = field(default_factory=set)
    """Nodes whose keeper the scenario killed: the containers end too, and results are lost."""
    gone: set[str] = field(default_factory=set)
    """The uids of pods whose objects are gone."""
    records: list[Object] = field(default_factory=list)
    """The audit records of pods of this run."""


def all_of(history: JobsHistory) -> list[str]:
    """All violations of a run."""
    checks = (
        overlaps,
        miscounts,
        unstarted,
        killed,
        unread,
        restarted,
        strays,
        false_records,
        false_force,
    )
    return [each for check in checks for each in check(history)]


def overlaps(history: JobsHistory) -> Iterator[str]:
    """Two pods of one index never run at once, unless the first was safe to end by force."""
    by_index: dict[tuple[str, int], list[ContainerRun]] = {}
    for run in history.runs.values():
        by_index.setdefault((run.job, run.index), []).append(run)
    for (job, index), runs in by_index.items():
        for before, after in pairwise(sorted(runs, key=lambda each: each.starts[0])):
            is_safe = audit.is_forced(history.pods.get(before.uid, {}))
            if after.starts[0] < before.last and not is_safe:
                yield (
                    f"{job} index {index}: {after.uid} started at {after.starts[0]}, "
                    f"{before.uid} wrote until {before.last}"
                )


def miscounts(history: JobsHistory) -> Iterator[str]:
    """Each pod that existed is counted once, by the right result, and no other pod is."""
    for job in history.jobs:
        name, status = job["metadata"]["name"], job["status"]
        phases = Counter(each["status"].get("phase") for each in _pods_of(history, job).values())
        succeeded = phases.pop("Succeeded", 0)
        count = (status.get("succeeded", 0), status.get("failed", 0))
        if count != (succeeded, phases.total()):
            yield (
                f"{name}: status has {count[0]} succeeded and {count[1]} failed, "
                f"{succeeded} pods succeeded and {phases.total()} did not"
            )
        successes = sum(1 for run in history.runs.values() if run.job == name and run.code == 0)
        if count[0] > successes:
            yield f"{name}: {count[0]} succeeded, {successes} containers did"
        if any((status.get("uncountedTerminatedPods") or {}).values()):
            yield f"{name}: has ended and still has pods to count"
        yield from _uncounted_indexes(history, job)


def unstarted(history: JobsHistory) -> Iterator[str]:
    """A pod that failed before a container ran has a deletion or a refusal on record.

    This pod counts as failed, as in Kubernetes: a node can be lost before the pod starts there.
    """
    for job in history.jobs:
        for uid, pod in _pods_of(history, job).items():
            if pod["status"].get("phase") != "Failed" or uid in history.runs:
                continue
            has_reason = pod["status"].get("reason") or _is_lost_with_keeper(history, pod)
            if uid not in history.deleted_while_running and not has_reason:
                yield f"{pod['metadata']['name']} failed, no container ran: {_brief(pod)}"


def _uncounted_indexes(history: JobsHistory, job: Object) -> Iterator[str]:
    """An index is complete if and only if one container with that index succeeded."""
    name = job["metadata"]["name"]
    complete = _indexes(job["status"].get("completedIndexes", ""))
    well = {run.index for run in history.runs.values() if run.job == name and run.code == 0}
    for index in sorted(complete - well):
        yield f"{name} index {index} is complete, and no container of it ended well"


def _indexes(text: str) -> set[int]:
    """The indexes of `0-2,5`."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes |= set(range(int(first), int(last or first) + 1))
    return indexes


def killed(history: JobsHistory) -> Iterator[str]:
    """A container that did not end by itself has a deletion on record as the reason."""
    for uid, run in history.runs.items():
        if run.code is None and not run.is_alive() and not _may_end(history, uid, run):
            pod = history.pods.get(uid, {})
            yield (
                f"{run.job} index {run.index}: container of {uid} ended without a reason on "
                f"record; the pod's status is {_brief(pod)}"
            )


def _may_end(history: JobsHistory, uid: str, run: ContainerRun) -> bool:
    current = history.pods.get(uid, {})
    if run.job in history.deleted_jobs or audit.is_evicted(current):
        return True
    if _is_lost_with_keeper(history, current):
        return True
    pod = history.deleted_while_running.get(uid)
    if pod is None:
        return False
    conditions = pod["status"].get("conditions") or ()
    by_taint = any(each.get("reason") == BY_TAINT for each in conditions)
    return not by_taint or pod["spec"].get("nodeName") in _lost_nodes(history)


def _is_lost_with_keeper(history: JobsHistory, pod: Object) -> bool:
    """Whether the node reports a lost container, and the keeper there was killed."""
    if pod.get("spec", {}).get("nodeName") not in history.lost_keepers:
        return False
    states = [each.get("state", {}) for each in pod["status"].get("containerStatuses") or ()]
    ends = [each.get("terminated", {}) for each in states]
    return any((each.get("reason"), each.get("exitCode")) == LOST for each in ends)


def unread(history: JobsHistory) -> Iterator[str]:
    """A pod ends as the container did, unless a deletion or the loss of the keeper came first."""
    for uid, run in history.runs.items():
        pod = history.pods.get(uid, {})
        is_open = uid in history.deleted_while_running or _is_lost_with_keeper(history, pod)
        if run.code is None or is_open or run.job in history.deleted_jobs:
            continue
        phase = "Failed" if run.code else "Succeeded"
        if pod.get("status", {}).get("phase") != phase:
            yield f"{run.job} index {run.index}: {uid} ended with {run.code}: {_brief(pod)}"


def _lost_nodes(history: JobsHistory) -> set[str]:
    """Nodes of which the server recorded that they were not ready."""
    return {
        each["involvedObject"]["name"] for each in history.events if each["reason"] == NOT_READY
    }


def _brief(pod: Object) -> str:
    status = pod.get("status", {})
    states = [each.get("state") for each in status.get("containerStatuses") or ()]
    return f"{status.get('phase')} {status.get('reason', '')} {states}"


def restarted(history: JobsHistory) -> Iterator[str]:
    """A container runs once, and only of a pod that existed: no Job here has restarts."""
    for uid, run in history.runs.items():
        if len(run.starts) > 1:
            yield f"{run.job} index {run.index}: {uid} started {len(run.starts)} times"
        if uid not in history.pods:
            yield f"{run.job} index {run.index}: {uid} ran, and the API never had this pod"


def strays(history: JobsHistory) -> Iterator[str]:
    """No process runs on after the Job has ended."""
    over = {each["metadata"]["name"] for each in history.jobs} | history.deleted_jobs
    for uid, run in history.runs.items():
        if run.job in over and run.is_alive():
            yield f"{run.job} index {run.index}: a process of {run.pids} of {uid} still runs"


def false_records(history: JobsHistory) -> Iterator[str]:
    """Events match the facts: as many creations as pods, each of a pod that existed."""
    for job in history.jobs:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        events = [each for each in history.events if each["involvedObject"].get("uid") == uid]
        # By uid: after a restart the controller may use the name of a pod that is gone again.
        pods = _pods_of(history, job)
        names = {each["metadata"]["name"] for each in pods.values()}
        yield from (f"{name}: {each}" for each in _false_creations(events, names))
        times = sum(_times(each) for each in events if each["reason"] == CREATED)
        if times > len(pods):
            yield f"{name}: events report {times} creations, {len(pods)} pods existed"
        if times < len(pods) and history.every_event:
            yield f"{name}: {len(pods) - times} creations are {MISSING}"


def _false_creations(events: list[Object], pods: set[str]) -> Iterator[str]:
    """One event may stand for many creations, and then names the first of these pods."""
    for each in events:
        names = set(re.findall(r"[a-z0-9.-]+", each["message"]))
        if each["reason"] == CREATED and not names & pods:
            yield f"an event tells of a pod that never existed: {each['message']}"
        if each["reason"] == NOT_CREATED and names & pods:
            yield f"an event says that a pod does not exist, which does: {each['message']}"


def false_force(history: JobsHistory) -> Iterator[str]:
    """Records and events of forced ends are true and complete, and each end was allowed."""
    yield from audit.false_force(history.pods)
    yield from audit.false_records(history.records, history.pods, history.gone)
    events: Counter[str] = Counter()
    for each in history.events:
        if each["reason"] == audit.FORCED:
            events[each["involvedObject"].get("uid", "")] += _times(each)
    for uid, pod in history.pods.items():
        times = events[uid]
        if times > 1 or (times and not audit.is_forced(pod)):
            yield f"{times} events say that {uid} was forced: {_brief(pod)}"
        if audit.is_forced(pod) and not times and history.every_event:
            yield f"the forced end of {uid} is {MISSING} of events"
    if history.every_event:
        for name in audit.unrecorded(history.records, history.pods):
            yield f"the forced end of {name} is {MISSING} of the audit"


def _times(event: Object) -> int:
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or 1)


def _pods_of(history: JobsHistory, job: Object) -> dict[str, Object]:
    uid = job["metadata"]["uid"]
    return {
        key: pod
        for key, pod in history.pods.items()
        if any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())
    }
