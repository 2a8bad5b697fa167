# SPDX-License-Identifier: Apache-2.0
"""All that a sync observes: the pods of the Job, and what is new.

This module counts (behaviour A3, A4.9, A7.1-A7.5, A12.5, A12.9); `outcome` and `scaling` decide,
and `accounting` plans the writes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from refloat.api import index_intervals
from refloat.api.batch import Job, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.api.index_intervals import Interval
from refloat.policy.job import backoff, job_spec, pod_state
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.job.job_spec import EffectiveSpec
from refloat.policy.job.pod_failure import PolicyMatcher, Verdict

NO_UIDS: frozenset[str] = frozenset()


class Verdicts:
    """The policy's verdicts, computed once per pod."""

    __slots__ = ("_known", "_matcher")

    def __init__(self, matcher: PolicyMatcher) -> None:
        self._matcher = matcher
        self._known: dict[str, Verdict] = {}

    def of(self, pod: Pod) -> Verdict:
        verdict = self._known.get(pod.metadata.uid)
        if verdict is None:
            verdict = self._known[pod.metadata.uid] = self._matcher.match(pod)
        return verdict


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """A Job and its pods, at one moment."""

    job: Job
    spec: EffectiveSpec
    pods: tuple[Pod, ...]
    tracked: tuple[Pod, ...]
    """Pods that have the finalizer and have not lost it since."""

    active: tuple[Pod, ...]
    ready: int
    terminating: tuple[Pod, ...]
    new_succeeded: tuple[Pod, ...]
    """Pods that ended well, and are in no list or counter of the status yet (A3.7)."""

    new_failed: tuple[Pod, ...]
    """The same for failures, including those that a policy ignores."""

    succeeded: int
    """Successes so far: of pods, or of indexes in an Indexed Job (A4.9)."""

    failed: int
    """Failures of pods so far that count towards the limit."""

    recorded_indexes: list[Interval]
    """Succeeded indexes in the status, as far as the Job has them."""

    succeeded_indexes: list[Interval]
    failed_indexes: list[Interval] | None
    """None unless failures are limited per index."""

    last_failed: dict[int, Pod]
    """Per index, the failed pod that must stay until its replacement is there (A12.9)."""

    record: backoff.Record
    """The record of failures, these pods included; to be kept after the first write."""

    verdicts: Verdicts
    judged: AbstractSet[str]
    """The uids of failures that an earlier write of this sync has accounted for: an ignored failure
    is in no list, and must not be reported twice."""

    def verdict(self, pod: Pod) -> Verdict:
        """The verdict of the Job's policy on this pod."""
        return self.verdicts.of(pod)


def observe(
    job: Job,
    pods: Sequence[Pod],
    *,
    job_gates: JobGates = ALL_ON,
    removing: AbstractSet[str] = NO_UIDS,
    record: backoff.Record = backoff.NO_FAILURES,
) -> ObservedJob:
    """Observe the pods of a Job.

    `pods` are all pods that the Job owns, except settled ones (`pod_state.is_settled`). `removing`
    has the uids of pods whose finalizer was removed although the cache may still show it: otherwise
    a stale pod would be counted twice.
    """
    spec = job_spec.of(job, job_gates)
    verdicts = Verdicts(spec.matcher)
    tracked = tuple(
        pod for pod in pods if pod_state.is_tracked(pod) and pod.metadata.uid not in removing
    )
    active = tuple(pod for pod in pods if pod_state.is_active(pod))
    lists = uncounted(job)
    # A pod that is listed as failed is no success, even if it ended well since: it would be both
    # (A5.5). Kubernetes counts such a pod as a success here, too, and may complete a Job that is
    # one success short.
    listed_uids = frozenset((*(lists.succeeded or ()), *(lists.failed or ())))
    new = [pod for pod in tracked if pod.metadata.uid not in listed_uids and spec.belongs(pod)]
    new_succeeded = tuple(pod for pod in new if spec.succeeds(pod))
    new_failed = tuple(pod for pod in new if spec.fails(pod))
    recorded, succeeded_indexes, failed_indexes = _indexes(job, spec, pods, verdicts)
    succeeded = job.status.succeeded + len(new_succeeded) + len(lists.succeeded or ())
    new_failures = sum(verdicts.of(pod).counts for pod in new_failed)
    return ObservedJob(
        job=job,
        spec=spec,
        pods=tuple(pods),
        tracked=tracked,
        active=active,
        ready=sum(pod_state.is_ready(pod) for pod in active),
        terminating=tuple(pod for pod in pods if pod_state.is_terminating(pod)),
        new_succeeded=new_succeeded,
        new_failed=new_failed,
        succeeded=index_intervals.count(succeeded_indexes) if spec.indexed else succeeded,
        failed=job.status.failed + new_failures + len(lists.failed or ()),
        recorded_indexes=recorded,
        succeeded_indexes=succeeded_indexes,
        failed_indexes=failed_indexes,
        last_failed=_last_failed(spec, tracked, active, succeeded_indexes, failed_indexes),
        record=backoff.updated(record, new_succeeded, new_failed),
        verdicts=verdicts,
        judged=NO_UIDS,
    )


def uncounted(job: Job) -> UncountedTerminatedPods:
    return job.status.uncounted_terminated_pods or UncountedTerminatedPods()


# -- indexes ----------------------------------------------------------------------


def _indexes(
    job: Job, spec: EffectiveSpec, pods: Sequence[Pod], verdicts: Verdicts
) -> tuple[list[Interval], list[Interval], list[Interval] | None]:
    """The succeeded indexes of before and of now, and the failed ones of now.

    An index succeeds once, even if several pods report it (A7.4). An index that has failed stays
    failed (A12.6), and so does a pod: the API refuses a status in which an index is both.

    The write that lists a failure has its failed index, too. So a pod in the list adds no index: it
    may have run, and been listed because the Job failed.
    """
    limit = spec.backoff_limit_per_index
    if not spec.indexed or spec.completions is None:
        return [], [], None if limit is None else []
    before = index_intervals.parse(job.status.completed_indexes, spec.completions)
    old_failed: list[Interval] = []
    if limit is not None:
        old_failed = index_intervals.parse(job.status.failed_indexes or "", spec.completions)
    ends = _ended(job, spec, pods, spec.succeeds, but=old_failed)
    succeeded = index_intervals.union(before, index_intervals.of(index for index, _ in ends))
    if limit is None:
        return before, succeeded, None
    ends = _ended(job, spec, pods, spec.fails, but=succeeded)
    new = [index for index, pod in ends if backoff.fails_index(pod, verdicts.of(pod), limit)]
    return before, succeeded, index_intervals.union(old_failed, index_intervals.of(new))


def _ended(
    job: Job,
    spec: EffectiveSpec,
    pods: Iterable[Pod],
    has_ended: Callable[[Pod], bool],
    *,
    but: list[Interval],
) -> Iterator[tuple[int, Pod]]:
    """Pods that are not counted or listed as failed, with their indexes, except those of `but`."""
    failed_uids = frozenset(uncounted(job).failed or ())
    for pod in pods:
        if not (has_ended(pod) and pod_state.is_tracked(pod)) or pod.metadata.uid in failed_uids:
            continue
        index = spec.index(pod)
        if index is not None and not index_intervals.contains(but, index):
            yield index, pod


def _last_failed(
    spec: EffectiveSpec,
    tracked: Sequence[Pod],
    active: Sequence[Pod],
    succeeded: list[Interval],
    failed: list[Interval] | None,
) -> dict[int, Pod]:
    """The pods that hand their failure counts to their replacements."""
    if failed is None:
        return {}
    over = index_intervals.union(succeeded, failed)
    running = {spec.index(pod) for pod in active}
    by_index: dict[int, Pod] = {}
    for pod in tracked:
        index = spec.index(pod)
        if index is None or not spec.fails(pod):
            continue
        if index in running or index_intervals.contains(over, index):
            continue
        if index not in by_index or backoff.is_later_failure(pod, by_index[index]):
            by_index[index] = pod
    return by_index
