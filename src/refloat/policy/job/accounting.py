# SPDX-License-Identifier: Apache-2.0
"""Counting pods so that none is counted twice or never (behaviour A5).

A pod's end is first made durable in the Job's status: its uid in one of the lists of uncounted
pods, or its index. Only then its finalizer is removed, and only after that the uid moves from
the list into the counter. A process that starts after a crash or a lost answer between two of
these writes finds the progress in the status and the pods:

1. before the first write          nothing happened;
2. after the first write           the uid is listed, the finalizer is there:
                                   the uid is not listed again, the finalizer is removed;
3. after the finalizer's removal   the uid is listed and no such finalizer is
                                   there, or no such pod: the pod is counted;
4. after the second write          the uid is not listed, and a pod without
                                   finalizer is ignored.

So `plan` and `settle` only compute. Between them nothing is remembered that is not in the API,
except `removing` of `observed.observe`, which matters only while a cache is behind.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from refloat.api import index_intervals, times
from refloat.api.batch import JobStatus, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.policy.job import job_conditions, pod_replacement, pod_state
from refloat.policy.job.observed import ObservedJob
from refloat.policy.job.outcome import Outcome, start_time
from refloat.policy.job.pod_failure import Verdict

_replace = msgspec.structs.replace


@dataclass(frozen=True, slots=True)
class AccountingSettings:
    most_uncounted: int = 500
    """How many pods one sync may have listed or recorded: 500 uids are about 20 KB of status, and
    as many removals of finalizers. The next sync takes the rest. As in Kubernetes."""


DEFAULTS = AccountingSettings()


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of pods after this sync has created and deleted pods."""

    active: int
    ready: int
    terminating: int


@dataclass(frozen=True, slots=True)
class StatusPlan:
    """The first write, and the pods that then lose their finalizers."""

    status: JobStatus
    """The status of the first write."""

    write: bool
    """Whether the status must be written; if the write fails, the sync ends."""

    removals: tuple[Pod, ...]
    """Pods whose finalizer is removed after the first write."""

    judged: tuple[tuple[Pod, Verdict], ...]
    """Failures that this sync accounts for, with the policy's verdict on each."""

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
    """The second write, after the finalizers are gone."""

    status: JobStatus
    write: bool
    finished: bool
    """Whether this write finishes the Job; events are sent after the write."""


def plan(
    observed: ObservedJob,
    *,
    outcome: Outcome | None,
    counts: Counts,
    now: datetime,
    managed: bool = True,
    settings: AccountingSettings = DEFAULTS,
) -> StatusPlan:
    """The first write and the removals.

    With `managed` this sync managed the number of pods: only then the conditions of suspension
    change (A4.13).

    A sync that ends a Job writes such a status before it deletes the running pods: with the
    decision, and with all pods whose end the sync knows. If the Job fails, the running pods are
    among these (A5.3). So the next process finds the decision and the counts in the status,
    whatever happens to the pods. Kubernetes deletes first (behaviour H12).
    """
    tracked = frozenset(pod.metadata.uid for pod in observed.tracked)
    before = observed.job.status
    # Empty lists as None, as the first write has them.
    before = _replace(before, uncounted_terminated_pods=_lists(*_uncounted(before)))
    flushed = _flushed(before, tracked)
    scan = _scan(observed, flushed, outcome, settings)
    uncounted = _lists(scan.succeeded, scan.failed)
    status = _replace(flushed, uncounted_terminated_pods=uncounted)
    status = _observed_status(observed, status, outcome, counts, now, managed=managed)
    return StatusPlan(
        status=status,
        # A start time alone is no reason to write; the next write has it (A4.14).
        write=before != _replace(status, start_time=before.start_time),
        removals=tuple(scan.removals),
        judged=tuple(scan.judged),
        tracked=tracked,
        outcome=outcome,
        cut=scan.cut,
        terminating=counts.terminating,
        idle=observed.spec.suspended and observed.spec.completions == 0,
    )


def settle(planned: StatusPlan, removed: Iterable[str], now: datetime) -> Settlement:
    """The second write, once finalizers are removed.

    `removed` are the uids of pods without finalizer, deleted pods included. If one is missing, the
    others are counted, but the Job does not finish in this sync.
    """
    uids = frozenset(removed)
    status, outcome = _flushed(planned.status, planned.tracked - uids), planned.outcome
    # No pod may be uncounted or still terminate (A5.11).
    if (
        outcome is None
        or planned.cut
        or planned.terminating > 0
        or any(_uncounted(status))
        or not all(pod.metadata.uid in uids for pod in planned.removals)
    ):
        return Settlement(status, write=status is not planned.status, finished=False)
    condition = job_conditions.new(outcome.terminal, outcome.reason, outcome.message, now=now)
    start, completion = status.start_time, status.completion_time
    if start is None and not planned.idle:
        # The last pod ended after the suspension, which cleared the start time; but a Job that has
        # ended must have started (behaviour B6.5).
        start = times.format_time(now)
    if outcome.succeeded:
        # The API refuses a completion before the start. If the clock was set back, the Job would
        # stay unfinished until the clock has reached the start again.
        completion = max(condition.last_transition_time or "", start or "")
    status = _replace(
        status,
        start_time=start,
        conditions=job_conditions.ensured(status.conditions, condition),
        completion_time=completion,
    )
    return Settlement(status, write=True, finished=True)


# -- how each pod is listed ------------------------------------------------------


@dataclass(slots=True)
class _Scan:
    """The lists while they grow."""

    succeeded: list[str]
    failed: list[str]
    known: frozenset[str]
    """The uids that an earlier write has listed."""

    removals: list[Pod] = field(default_factory=list)
    judged: list[tuple[Pod, Verdict]] = field(default_factory=list)
    indexes: int = 0
    cut: bool = False

    @property
    def uncounted(self) -> int:
        return self.indexes + len(self.succeeded) + len(self.failed)


def _scan(
    observed: ObservedJob,
    status: JobStatus,
    outcome: Outcome | None,
    settings: AccountingSettings,
) -> _Scan:
    """List pods up to the bound; pods that are listed already need no room."""
    succeeded, failed = _uncounted(status)
    scan = _Scan(succeeded, failed, frozenset(succeeded + failed))
    spec, pods = observed.spec, observed.tracked
    if spec.indexed:  # in the order in which the indexes are completed
        numbered = [(pod_state.completion_index(pod), pod) for pod in pods]
        numbered.sort(key=lambda each: -1 if each[0] is None else each[0])
        pods = tuple(pod for _, pod in numbered)
    # A finalizer is needed until the pod has ended, and that of the last failure of an index until
    # its replacement is there (A5.2).
    last_failed_uids = {pod.metadata.uid for pod in observed.last_failed.values()}
    is_over = spec.deleted or outcome is not None
    for pod in pods:
        has_failed = spec.fails(pod) and pod.metadata.uid not in last_failed_uids
        if not (is_over or spec.succeeds(pod) or has_failed):
            continue
        if pod.metadata.uid not in scan.known:
            if scan.uncounted >= settings.most_uncounted:
                break
            _list(scan, observed, pod, outcome)
        scan.removals.append(pod)
    scan.cut = scan.uncounted >= settings.most_uncounted
    return scan


def _list(scan: _Scan, observed: ObservedJob, pod: Pod, outcome: Outcome | None) -> None:
    """Note how a pod ended (A5.3).

    A pod that a policy ignores, or that has no index of the Job, is not noted, but still loses its
    finalizer (A5.4). A pod that an earlier write has noted is skipped: the lists do not show a pod
    that was ignored or that succeeded with its index.
    """
    spec, index = observed.spec, observed.spec.index(pod)
    recorded = index is not None and index_intervals.contains(observed.recorded_indexes, index)
    if pod.metadata.uid in observed.judged or (recorded and pod_state.has_succeeded(pod)):
        return
    # Also pods that ended because the Job failed; not when the Job succeeded (A5.3).
    is_failure = spec.fails(pod) or (outcome is not None and not outcome.succeeded)
    if spec.succeeds(pod):
        if spec.indexed:
            scan.indexes += index is not None and not recorded
        else:
            scan.succeeded.append(pod.metadata.uid)
    elif is_failure and spec.belongs(pod):
        verdict = observed.verdict(pod)
        scan.judged.append((pod, verdict))
        if verdict.counts:
            scan.failed.append(pod.metadata.uid)


# -- the status -------------------------------------------------------------------


def _uncounted(status: JobStatus) -> tuple[list[str], list[str]]:
    """The uids of the listed pods: successes and failures."""
    lists = status.uncounted_terminated_pods or UncountedTerminatedPods()
    return list(lists.succeeded or ()), list(lists.failed or ())


def _lists(succeeded: list[str], failed: list[str]) -> UncountedTerminatedPods:
    return UncountedTerminatedPods(succeeded=tuple(succeeded) or None, failed=tuple(failed) or None)


def _flushed(status: JobStatus, tracked: AbstractSet[str]) -> JobStatus:
    """Count listed pods without finalizer (A5.1, A5.10); the same status if there are none."""
    old_succeeded, old_failed = _uncounted(status)
    succeeded = [uid for uid in old_succeeded if uid in tracked]
    failed = [uid for uid in old_failed if uid in tracked]
    if (succeeded, failed) == (old_succeeded, old_failed):
        return status
    return _replace(
        status,
        succeeded=status.succeeded + len(old_succeeded) - len(succeeded),
        failed=status.failed + len(old_failed) - len(failed),
        uncounted_terminated_pods=_lists(succeeded, failed),
    )


def _observed_status(
    observed: ObservedJob,
    status: JobStatus,
    outcome: Outcome | None,
    counts: Counts,
    now: datetime,
    *,
    managed: bool,
) -> JobStatus:
    """The status with the counts and the conditions of this sync."""
    reports = pod_replacement.reports_terminating(observed.spec.job_gates)
    started, conditions = start_time(observed.job, now), status.conditions
    if outcome is not None:
        if not outcome.recorded:
            condition = job_conditions.new(
                outcome.interim, outcome.reason, outcome.message, now=now
            )
            conditions = job_conditions.ensured(conditions, condition)
    elif managed:
        suspended = observed.spec.suspended
        conditions = job_conditions.suspension(conditions, suspended=suspended, now=now)
        if conditions is not status.conditions:
            started = None if suspended else times.format_time(now)
    status = _replace(
        status,
        active=counts.active,
        ready=counts.ready,
        terminating=counts.terminating if reports else None,
        conditions=conditions,
        start_time=started,
    )
    if not observed.spec.indexed:
        return status
    failed = observed.failed_indexes
    return _replace(
        status,
        succeeded=index_intervals.count(observed.succeeded_indexes),
        completed_indexes=index_intervals.render(observed.succeeded_indexes),
        failed_indexes=None if failed is None else index_intervals.render(failed),
    )
