# SPDX-License-Identifier: Apache-2.0
"""The attempts of a Job: one row for each pod that exists or is on record, oldest first.

Pods come from the API. Pods that are gone come from the annotation `refloat.dev/attempts`,
which only Refloat's Job controller writes. Users may write that annotation too, so the rows
that it gives are shown and decide nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.events import Event
from refloat.api.meta import Object
from refloat.explain import pod_end
from refloat.explain.codes import Cause
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Attempt, count
from refloat.explain.pod_end import PodEnd
from refloat.policy.job import attempts, backoff, pod_state
from refloat.policy.job.observed import ObservedJob
from refloat.policy.job.pod_failure import IGNORE, Verdict
from refloat.policy.recovery import zombie

_NEVER = datetime.max.replace(tzinfo=UTC)


def ends_of_gone(job: Job, pods: Sequence[Pod]) -> list[datetime]:
    """When the pods ended that are on record and no longer exist."""
    uids = {pod.metadata.uid for pod in pods}
    ends = [
        _time(entry.get("finished"))
        for entry in attempts.recorded(job.metadata.annotations)
        if entry.get("uid") not in uids
    ]
    return [end for end in ends if end is not None]


def rows(
    job: Job, pods: Sequence[Pod], observed: ObservedJob, context: ExplainContext
) -> tuple[Attempt, ...]:
    """All attempts that are known."""
    entries = {str(each.get("uid")): each for each in attempts.recorded(job.metadata.annotations)}
    uids = {pod.metadata.uid for pod in pods}
    rows_ = [_recorded(each) for uid, each in entries.items() if uid not in uids]
    rows_ += [
        replace(
            _of_pod(pod, observed, context.events_of("Pod", pod)),
            log=_log(entries.get(pod.metadata.uid, {})),
        )
        for pod in pods
    ]
    return numbered(rows_)


def numbered(rows_: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The oldest first, with the number of each within its index."""
    counts: Counter[int | None] = Counter()
    attempts_ = []
    for row in sorted(rows_, key=lambda row: row.start or row.end or _NEVER):
        counts[row.index] += 1
        attempts_.append(replace(row, number=counts[row.index]))
    return tuple(attempts_)


def _log(entry: Object) -> str:
    text = entry.get("log")
    return text if isinstance(text, str) else ""


def _of_pod(pod: Pod, observed: ObservedJob, events: Iterable[Event]) -> Attempt:
    end = pod_end.of(pod, events)
    failed = observed.spec.fails(pod)
    verdict = observed.verdict(pod) if failed else None
    started = pod.status.start_time or pod.metadata.creation_timestamp
    return Attempt(
        pod=pod.metadata.name,
        index=pod_state.completion_index(pod),
        node=pod.spec.node_name,
        start=times.parse(started) if started else None,
        end=backoff.finish_time(pod) if pod.is_terminal else None,
        cause=None if end is None else end.cause,
        how="" if end is None else end.how,
        rule="" if verdict is None else rule_text(verdict),
        counted=None if verdict is None else verdict.counts,
    )


def rule_text(verdict: Verdict) -> str:
    """`rule 1: FailJob`; empty if no rule matched."""
    return f"rule {verdict.rule}: {verdict.action}" if verdict.action else ""


def _recorded(entry: Object) -> Attempt:
    """A pod that is gone; any field may be missing or of another type."""
    action = entry.get("action")
    rule = f"rule {entry.get('rule')}: {action}" if isinstance(action, str) and action else ""
    index, node, end = entry.get("index"), entry.get("node"), _end(entry)
    return Attempt(
        pod=str(entry.get("pod", "")),
        index=index if isinstance(index, int) else None,
        node=node if isinstance(node, str) else "",
        start=_time(entry.get("started")),
        end=_time(entry.get("finished")),
        cause=end.cause,
        how=end.how,
        rule=rule,
        counted=action != IGNORE,
        exists=False,
        log=_log(entry),
    )


def _end(entry: Object) -> PodEnd:
    """As for a pod that exists: the disruption, the pod's reason, then the container."""
    if entry.get("jobFailed"):
        return PodEnd(Cause.DELETED, f"deleted because the Job failed ({entry['jobFailed']})")
    disruption, reason = str(entry.get("disruption", "")), str(entry.get("reason", ""))
    if disruption == zombie.CONDITION:
        return PodEnd(Cause.RECOVERY, f"on the lost node {entry.get('node', '')}")
    if (end := pod_end.disruption(disruption, reason)) is not None:
        return end
    if (end := pod_end.by_reason(reason)) is not None:
        return end
    code = entry.get("exitCode")
    if isinstance(code, int):
        container_reason = str(entry.get("containerReason", ""))
        return pod_end.by_exit(str(entry.get("container", "")), code, container_reason)
    known = [str(entry[key]) for key in ("condition", "reason") if entry.get(key)]
    return PodEnd(Cause.UNKNOWN, ", ".join(known) or "failed")


def _time(text: object) -> datetime | None:
    try:
        return times.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None


def budget(observed: ObservedJob, *, ends: bool) -> str:
    """How many failures were counted, and how many the Job has left unless it ends anyway."""
    spec = observed.spec
    if spec.backoff_limit_per_index is None:
        left = spec.backoff_limit - observed.failed
        counted = count(observed.failed, "failure")
        if spec.restarts_containers and not ends:
            # The Job fails with as many restarts, and with more failed pods, than the limit.
            restarts = backoff.restarts(observed.pods)
            counted += f" and {count(restarts, 'restart')}"
            left = min(left, max(spec.backoff_limit, 1) - 1 - restarts)
        text = f"{counted} counted, backoffLimit {spec.backoff_limit}"
        return text if ends else f"{text}{_left(left)}"
    failed = 0
    for first, last in observed.failed_indexes or ():
        failed += last - first + 1
    text = f"{count(failed, 'index')} failed, backoffLimitPerIndex {spec.backoff_limit_per_index}"
    if spec.max_failed_indexes is not None:
        left = spec.max_failed_indexes - failed
        text += f", maxFailedIndexes {spec.max_failed_indexes}"
        text += "" if ends else _left(left)
    return text


def _left(left: int) -> str:
    """What the next failure does; nothing once the limit is exceeded."""
    if left > 0:
        return f": {left} more will not fail the Job"
    return ": the next one fails the Job" if left == 0 else ""
