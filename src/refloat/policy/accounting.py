# SPDX-License-Identifier: Apache-2.0
"""Counting pods so that none is counted twice or never (behaviour A5).

A pod's end is first made durable in the Job's status: its uid in one of the
lists of uncounted pods, or its index. Only then its finalizer is removed, and
only when it is gone the uid moves from the list into the counter. Whoever
crashes between two of these writes, or loses an answer, finds out from the
status and the pods where it was:

1. before the first write          nothing happened;
2. after it                        the uid is listed, the finalizer is there:
                                   it is not listed again, only removed;
3. after the finalizer's removal   the uid is listed and no such finalizer is
                                   there, or no such pod: it is counted;
4. after the second write          the uid is not listed, and a pod without
                                   finalizer is not looked at.

So `plan` and `settle` only compute; there is nothing to remember between
them but what is in the API, save `removing` of `census.observe`, which only
matters while a cache is behind.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from refloat.api import intervals, times
from refloat.api.batch import JobStatus, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.policy import job_conditions, pod_replacement, pod_state
from refloat.policy.census import Census
from refloat.policy.outcome import Outcome, start_time
from refloat.policy.pod_failure import Verdict

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class Settings:
    most_uncounted: int = 500
    """How many pods one sync may have listed or recorded: 500 uids are some 20 KB of status, and
    as many removals of finalizers. The rest comes with the next sync. As in Kubernetes."""


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Counts:
    """Pods as they are after this sync created and deleted some."""

    active: int
    ready: int
    terminating: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written first, and whose finalizers go then."""

    status: JobStatus
    """The status of the first write."""

    write: bool
    """Whether it must be written; if that fails, nothing else is done."""

    removals: tuple[Pod, ...]
    """Pods whose finalizer is removed after the first write."""

    judged: tuple[tuple[Pod, Verdict], ...]
    """Failures that are accounted for in this sync, and what the policy said of each."""

    tracked: frozenset[str]
    """The uids of all pods that have the finalizer now."""

    outcome: Outcome | None
    cut: bool
    """Whether more pods are left for the next sync."""

    terminating: int
    idle: bool
    """Whether the Job never had anything to do: suspended, with no completions."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What is written when the finalizers are gone."""

    status: JobStatus
    write: bool
    finished: bool
    """Whether this write makes the Job finished; events are sent after it."""


def plan(
    census: Census,
    *,
    outcome: Outcome | None,
    counts: Counts,
    now: datetime,
    managed: bool = True,
    settings: Settings = DEFAULTS,
) -> Plan:
    """The first write and the removals.

    `managed` says whether this sync took care of the number of pods: only
    then the conditions of suspension change (A4.13).

    A sync that ends a Job writes such a status once more, before it deletes the
    pods that run: with the decision, and with all pods whose end it knows. If
    the Job fails, the pods that run are among these (A5.3). So a successor
    finds the decision and the counts in the status, whatever became of the
    pods meanwhile. Kubernetes deletes first (behaviour H12).
    """
    tracked = frozenset(pod.metadata.uid for pod in census.tracked)
    before = _normal(census.job.status)
    flushed = _flushed(before, tracked)
    pods = (pod for pod in _ordered(census) if _is_removable(census, pod, outcome))
    scan = _scan(census, flushed, pods, outcome, settings)
    listed = _lists(scan.succeeded, scan.failed)
    status = _with_indexes(census, _replace(flushed, uncounted_terminated_pods=listed))
    status = _with_counts(census, status, counts)
    status = _with_conditions(census, status, outcome, now, managed=managed)
    return Plan(
        status=status,
        write=_needs_write(before, status),
        removals=tuple(scan.removals),
        judged=tuple(scan.judged),
        tracked=tracked,
        outcome=outcome,
        cut=scan.cut,
        terminating=counts.terminating,
        idle=census.terms.suspended and census.terms.completions == 0,
    )


def settle(planned: Plan, removed: Iterable[str], now: datetime) -> Settlement:
    """The second write, once finalizers are removed.

    `removed` are the uids of those that are gone, pods that no longer exist
    included. If one is missing, what is gone is counted all the same, but the
    Job does not finish in this sync.
    """
    gone = frozenset(removed)
    status = _flushed(planned.status, planned.tracked - gone)
    finished = all(pod.metadata.uid in gone for pod in planned.removals) and _may_finish(
        planned, status
    )
    if finished and planned.outcome is not None:
        status = _finished(status, planned, planned.outcome, now)
    return Settlement(status, write=status is not planned.status, finished=finished)


# -- what every pod comes to ------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """The lists as they grow."""

    succeeded: list[str]
    failed: list[str]
    known: frozenset[str]
    """The uids that were listed before: they are not listed again."""

    removals: list[Pod] = field(default_factory=list)
    judged: list[tuple[Pod, Verdict]] = field(default_factory=list)
    indexes: int = 0
    cut: bool = False

    @property
    def uncounted(self) -> int:
        return self.indexes + len(self.succeeded) + len(self.failed)


def _scan(
    census: Census,
    status: JobStatus,
    pods: Iterable[Pod],
    outcome: Outcome | None,
    settings: Settings,
) -> _Scan:
    """List these pods, as many as there is room for; those that are listed need none."""
    listed = status.uncounted_terminated_pods or UncountedTerminatedPods()
    succeeded, failed = list(listed.succeeded or ()), list(listed.failed or ())
    scan = _Scan(succeeded, failed, frozenset(succeeded + failed))
    for pod in pods:
        if pod.metadata.uid not in scan.known:
            if scan.uncounted >= settings.most_uncounted:
                break
            _list(scan, census, pod, outcome)
        scan.removals.append(pod)
    scan.cut = scan.uncounted >= settings.most_uncounted
    return scan


def _list(scan: _Scan, census: Census, pod: Pod, outcome: Outcome | None) -> None:
    """Take down how a pod ended (A5.3).

    A pod that a policy ignores, or that has no index of the Job, is not taken
    down and loses its finalizer all the same (A5.4).
    """
    if _was_taken_down(census, pod):
        return
    if census.terms.succeeds(pod):
        if census.terms.indexed:
            scan.indexes += _is_new_index(census, pod)
        else:
            scan.succeeded.append(pod.metadata.uid)
    elif _is_failure(census, pod, outcome):
        verdict = census.verdict(pod)
        scan.judged.append((pod, verdict))
        if verdict.counts:
            scan.failed.append(pod.metadata.uid)


def _was_taken_down(census: Census, pod: Pod) -> bool:
    """Whether an earlier write did that and the lists do not say so: by its index, or ignored."""
    index = census.terms.index(pod)
    recorded = index is not None and intervals.contains(census.recorded_indexes, index)
    return pod.metadata.uid in census.judged or (recorded and pod_state.has_succeeded(pod))


def _ordered(census: Census) -> Iterable[Pod]:
    """In the order in which their indexes are completed."""
    if not census.terms.indexed:
        return census.tracked
    return sorted(census.tracked, key=_index_order)


def _index_order(pod: Pod) -> int:
    index = pod_state.completion_index(pod)
    return -1 if index is None else index


def _is_removable(census: Census, pod: Pod, outcome: Outcome | None) -> bool:
    """Whether the finalizer has done its duty (A5.2)."""
    if census.terms.deleted or outcome is not None or census.terms.succeeds(pod):
        return True
    if not census.terms.fails(pod):
        return False
    index = census.terms.index(pod)
    kept = None if index is None else census.last_failed.get(index)
    return kept is None or kept.metadata.uid != pod.metadata.uid


def _is_new_index(census: Census, pod: Pod) -> bool:
    index = census.terms.index(pod)
    return index is not None and not intervals.contains(census.recorded_indexes, index)


def _is_failure(census: Census, pod: Pod, outcome: Outcome | None) -> bool:
    """Failed, or ended because the Job failed; not when the Job succeeded (A5.3)."""
    ended = census.terms.fails(pod) or (outcome is not None and not outcome.succeeded)
    return ended and census.terms.belongs(pod)


# -- the status -------------------------------------------------------------------


def _normal(status: JobStatus) -> JobStatus:
    """With lists of uncounted pods, empty ones as None: as this module writes them."""
    listed = status.uncounted_terminated_pods or UncountedTerminatedPods()
    return _replace(
        status,
        uncounted_terminated_pods=_lists(list(listed.succeeded or ()), list(listed.failed or ())),
    )


def _lists(succeeded: list[str], failed: list[str]) -> UncountedTerminatedPods:
    return UncountedTerminatedPods(succeeded=tuple(succeeded) or None, failed=tuple(failed) or None)


def _flushed(status: JobStatus, tracked: AbstractSet[str]) -> JobStatus:
    """Count those whose finalizer is gone (A5.1, A5.10); the same status if there are none."""
    listed = status.uncounted_terminated_pods or UncountedTerminatedPods()
    succeeded = [uid for uid in listed.succeeded or () if uid in tracked]
    failed = [uid for uid in listed.failed or () if uid in tracked]
    more_succeeded = len(listed.succeeded or ()) - len(succeeded)
    more_failed = len(listed.failed or ()) - len(failed)
    if not more_succeeded and not more_failed:
        return status
    return _replace(
        status,
        succeeded=status.succeeded + more_succeeded,
        failed=status.failed + more_failed,
        uncounted_terminated_pods=_lists(succeeded, failed),
    )


def _with_indexes(census: Census, status: JobStatus) -> JobStatus:
    if not census.terms.indexed:
        return status
    failed = census.failed_indexes
    return _replace(
        status,
        succeeded=intervals.count(census.succeeded_indexes),
        completed_indexes=intervals.render(census.succeeded_indexes),
        failed_indexes=None if failed is None else intervals.render(failed),
    )


def _with_counts(census: Census, status: JobStatus, counts: Counts) -> JobStatus:
    reports = pod_replacement.reports_terminating(census.terms.switches)
    return _replace(
        status,
        active=counts.active,
        ready=counts.ready,
        terminating=counts.terminating if reports else None,
    )


def _with_conditions(
    census: Census,
    status: JobStatus,
    outcome: Outcome | None,
    now: datetime,
    *,
    managed: bool,
) -> JobStatus:
    started = start_time(census.job, now)
    conditions = status.conditions
    if outcome is not None:
        if not outcome.recorded:
            wanted = job_conditions.new(outcome.interim, outcome.reason, outcome.message, now=now)
            conditions = job_conditions.ensured(conditions, wanted)
    elif managed:
        suspended = census.terms.suspended
        conditions = job_conditions.suspension(conditions, suspended=suspended, now=now)
        if conditions is not status.conditions:
            started = None if suspended else times.format_time(now)
    return _replace(status, conditions=conditions, start_time=started)


def _needs_write(before: JobStatus, after: JobStatus) -> bool:
    """A time of start alone is no reason; it goes with the next write (A4.14)."""
    return before != _replace(after, start_time=before.start_time)


def _may_finish(planned: Plan, status: JobStatus) -> bool:
    """Whether nobody is left who is uncounted or still runs (A5.11)."""
    listed = status.uncounted_terminated_pods or UncountedTerminatedPods()
    return (
        planned.outcome is not None
        and not planned.cut
        and planned.terminating == 0
        and not listed.succeeded
        and not listed.failed
    )


def _finished(status: JobStatus, planned: Plan, outcome: Outcome, now: datetime) -> JobStatus:
    wanted = job_conditions.new(outcome.terminal, outcome.reason, outcome.message, now=now)
    start = status.start_time
    if start is None and not planned.idle:
        # The last pod ended after the suspension, which took the time of the
        # start away; but what has ended must have started (behaviour B6.5).
        start = times.format_time(now)
    return _replace(
        status,
        start_time=start,
        conditions=job_conditions.ensured(status.conditions, wanted),
        completion_time=wanted.last_transition_time
        if outcome.succeeded
        else status.completion_time,
    )
