# SPDX-License-Identifier: Apache-2.0
"""Who is there, and what is new: all that a sync observes, gathered once.

Counting what was observed is done here (behaviour A3, A4.9, A7.1-A7.5, A12.5,
A12.9); what follows from the counts is decided by `outcome` and `scaling`, and
what is written by `accounting`.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from refloat.api import intervals
from refloat.api.batch import Job, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.api.intervals import Interval
from refloat.policy import backoff, backoff_policy, pod_failure, pod_state
from refloat.policy import terms as job_terms
from refloat.policy.pod_failure import Verdict
from refloat.policy.switches import ALL_ON, Switches
from refloat.policy.terms import Terms

NOBODY: frozenset[str] = frozenset()


class Verdicts:
    """What the policy says of each pod, asked once per pod."""

    __slots__ = ("_judge", "_known")

    def __init__(self, judge: pod_failure.Judge | backoff_policy.Judge) -> None:
        self._judge = judge
        self._known: dict[str, Verdict] = {}

    def of(self, pod: Pod) -> Verdict:
        known = self._known.get(pod.metadata.uid)
        if known is None:
            known = self._known[pod.metadata.uid] = self._judge.judge(pod)
        return known


@dataclass(frozen=True, slots=True)
class Census:
    """A Job and its pods, at one moment."""

    job: Job
    terms: Terms
    pods: tuple[Pod, ...]
    tracked: tuple[Pod, ...]
    """Pods that carry the finalizer and are not known to have lost it since."""

    active: tuple[Pod, ...]
    ready: int
    terminating: tuple[Pod, ...]
    new_succeeded: tuple[Pod, ...]
    """Ended well, and in no list or counter of the status yet (A3.7)."""

    new_failed: tuple[Pod, ...]
    """Likewise, for failures; those that a policy ignores among them."""

    succeeded: int
    """Successes so far: of pods, or of indexes in an Indexed Job (A4.9)."""

    failed: int
    """Failures of pods so far that count towards the limit."""

    recorded_indexes: list[Interval]
    """Indexes that the status says have succeeded, as far as the Job has them."""

    succeeded_indexes: list[Interval]
    failed_indexes: list[Interval] | None
    """None unless failures are limited per index."""

    last_failed: dict[int, Pod]
    """Per index, the failed pod that must stay until its replacement is there (A12.9)."""

    record: backoff.Record
    """The record of failures, these pods included; to be kept after the first write."""

    verdicts: Verdicts
    judged: AbstractSet[str]
    """The uids of failures that an earlier write of this sync has accounted for: an ignored one is
    in no list, and is not to be reported twice."""

    def verdict(self, pod: Pod) -> Verdict:
        """What the Job's policy for failures says of it."""
        return self.verdicts.of(pod)


def observe(
    job: Job,
    pods: Sequence[Pod],
    *,
    switches: Switches = ALL_ON,
    removing: AbstractSet[str] = NOBODY,
    record: backoff.Record = backoff.NO_FAILURES,
) -> Census:
    """Take stock of a Job's pods.

    `pods` are all that the Job owns, save those that are settled
    (`pod_state.is_settled`). `removing` has the uids of those whose finalizer
    was removed although the cache may still show it: without it, a stale pod
    would be counted twice.
    """
    terms = job_terms.of(job, switches)
    verdicts = Verdicts(terms.judge)
    tracked = tuple(
        pod for pod in pods if pod_state.is_tracked(pod) and pod.metadata.uid not in removing
    )
    active = tuple(pod for pod in pods if pod_state.is_active(pod))
    new_succeeded, new_failed = _new(job, terms, tracked)
    recorded, succeeded_indexes = _succeeded_indexes(job, terms, pods)
    failed_indexes = _failed_indexes(job, terms, pods, succeeded_indexes, verdicts)
    return Census(
        job=job,
        terms=terms,
        pods=tuple(pods),
        tracked=tracked,
        active=active,
        ready=sum(pod_state.is_ready(pod) for pod in active),
        terminating=tuple(pod for pod in pods if pod_state.is_terminating(pod)),
        new_succeeded=new_succeeded,
        new_failed=new_failed,
        succeeded=_succeeded(job, terms, new_succeeded, succeeded_indexes),
        failed=_failed(job, new_failed, verdicts),
        recorded_indexes=recorded,
        succeeded_indexes=succeeded_indexes,
        failed_indexes=failed_indexes,
        last_failed=_last_failed(terms, tracked, active, succeeded_indexes, failed_indexes),
        record=backoff.updated(record, new_succeeded, new_failed),
        verdicts=verdicts,
        judged=NOBODY,
    )


def uncounted(job: Job) -> UncountedTerminatedPods:
    return job.status.uncounted_terminated_pods or UncountedTerminatedPods()


def _new(job: Job, terms: Terms, tracked: Sequence[Pod]) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
    """Pods that ended and are in no list yet.

    One that is listed as failed is no success, even when it ended well since:
    it would be both (A5.5). Kubernetes takes it for a success here, too, and
    may complete a Job that is one success short.
    """
    listed = uncounted(job)
    failed = frozenset(listed.failed or ())
    either = failed.union(listed.succeeded or ())
    ended = [pod for pod in tracked if pod.metadata.uid not in either and terms.belongs(pod)]
    return (
        tuple(pod for pod in ended if terms.succeeds(pod)),
        tuple(pod for pod in ended if terms.fails(pod)),
    )


def _succeeded(job: Job, terms: Terms, new: Sequence[Pod], indexes: list[Interval]) -> int:
    if terms.indexed:
        return intervals.count(indexes)
    return job.status.succeeded + len(new) + len(uncounted(job).succeeded or ())


def _failed(job: Job, new: Sequence[Pod], verdicts: Verdicts) -> int:
    counted = sum(verdicts.of(pod).counts for pod in new)
    return job.status.failed + counted + len(uncounted(job).failed or ())


# -- indexes ----------------------------------------------------------------------


def _succeeded_indexes(
    job: Job, terms: Terms, pods: Sequence[Pod]
) -> tuple[list[Interval], list[Interval]]:
    """Before, and now: a success is known by its index, which may be said twice (A7.4).

    An index that has failed stays failed, and so does a pod: the API refuses
    a status in which an index is both.
    """
    if not terms.indexed or terms.completions is None:
        return [], []
    before = intervals.parse(job.status.completed_indexes, terms.completions)
    failed_pods = frozenset(uncounted(job).failed or ())
    failed_before = _recorded_failed(job, terms)
    new = [
        index
        for pod in pods
        if terms.succeeds(pod)
        and pod_state.is_tracked(pod)
        and pod.metadata.uid not in failed_pods
        and (index := terms.index(pod)) is not None
        and not intervals.contains(failed_before, index)
    ]
    return before, intervals.union(before, intervals.of(new))


def _recorded_failed(job: Job, terms: Terms) -> list[Interval]:
    if terms.backoff_limit_per_index is None or terms.completions is None:
        return []
    return intervals.parse(job.status.failed_indexes or "", terms.completions)


def _failed_indexes(
    job: Job,
    terms: Terms,
    pods: Sequence[Pod],
    succeeded: list[Interval],
    verdicts: Verdicts,
) -> list[Interval] | None:
    """Those of before and those of now: once failed, an index stays so (A12.6).

    The write that lists a failure has its index too, if that has failed. So a
    pod in the list adds none: it may have run, and been listed because the Job
    failed.
    """
    limit = terms.backoff_limit_per_index
    if limit is None:
        return None
    listed = frozenset(uncounted(job).failed or ())
    new = [
        index
        for pod in pods
        if pod_state.is_tracked(pod)
        and terms.fails(pod)
        and pod.metadata.uid not in listed
        and (index := terms.index(pod)) is not None
        and not intervals.contains(succeeded, index)
        and backoff.fails_index(pod, verdicts.of(pod), limit)
    ]
    return intervals.union(_recorded_failed(job, terms), intervals.of(new))


def _last_failed(
    terms: Terms,
    tracked: Sequence[Pod],
    active: Sequence[Pod],
    succeeded: list[Interval],
    failed: list[Interval] | None,
) -> dict[int, Pod]:
    """The pods that hand their failure counts to their replacements."""
    if failed is None:
        return {}
    over = intervals.union(succeeded, failed)
    running = {terms.index(pod) for pod in active}
    found: dict[int, Pod] = {}
    for pod in tracked:
        index = terms.index(pod)
        if index is None or not terms.fails(pod):
            continue
        if index in running or intervals.contains(over, index):
            continue
        if index not in found or backoff.is_later_failure(pod, found[index]):
            found[index] = pod
    return found
