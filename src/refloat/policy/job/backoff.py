# SPDX-License-Identifier: Apache-2.0
"""How long a Job waits after failures, and how many failures it may have (behaviour A11, A12).

The delay of a whole Job comes from a `Record` in the memory of the controller, which a restart
loses. The delay of a single index comes from its last failed pod. This module compares the
limits; `outcome` decides what happens when one is exceeded.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from refloat.api import structs, times
from refloat.api.core import PENDING, RUNNING, ContainerStatus, Pod
from refloat.policy.job import pod_failure, pod_state
from refloat.policy.job.pod_failure import Verdict

# A pod without any time counts as ended before all others.
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class BackoffSettings:
    first: timedelta = timedelta(seconds=10)
    """The delay after one failure; each further failure doubles it. As in Kubernetes."""

    longest: timedelta = timedelta(minutes=10)
    """The longest delay. As in Kubernetes."""

    shortest_wake: timedelta = timedelta(seconds=1)
    """The shortest wait: events of pods are gathered for as long."""


DEFAULTS = BackoffSettings()


@dataclass(frozen=True, slots=True)
class Record:
    """The failures of a Job since its last success."""

    failures: int = 0
    last_failure: datetime | None = None


NO_FAILURES = Record()


def updated(record: Record, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> Record:
    """The record after these pods ended (behaviour A11.2).

    Failures that a policy ignores are included: they count for no limit, but a pod that fails at
    once should not be started again at once (A11.3).
    """
    if not succeeded and not failed:
        return record
    ends = [finish_time(pod) for pod in failed]
    if not succeeded:
        return Record(record.failures + len(ends), max(ends))
    last_success = max(finish_time(pod) for pod in succeeded)
    later = [end for end in ends if end > last_success]
    return Record(len(later), max(later, default=None))


def delay(failures: int, settings: BackoffSettings = DEFAULTS) -> timedelta:
    if failures == 0:
        return ZERO
    # Above every longest delay, and no further: the number of failures is unbounded, two to its
    # power must not be. A number that has overflowed is negative, and has the first delay.
    factor = 1 << min(max(failures - 1, 0), 24)
    return min(settings.first * factor, settings.longest)


@dataclass(frozen=True, slots=True)
class Waited:
    """How long this process has known failures, by its monotonic clock.

    If the wall clock was set back, a failure lies in the future. Then the times of pods are
    useless, and a Job must not wait until the clock reaches them again.
    """

    job: timedelta = ZERO
    """Of the Job's record of failures."""

    pods: Mapping[str, timedelta] = field(default_factory=dict)
    """Of failed pods, by uid."""


UNKNOWN = Waited()
"""For a process that has just started, which waits the whole delay at most."""


def remaining(
    record: Record, now: datetime, settings: BackoffSettings = DEFAULTS, waited: timedelta = ZERO
) -> timedelta:
    """How long the Job must not create pods: at most the delay minus `waited`."""
    if record.failures == 0 or record.last_failure is None:
        return ZERO
    whole = delay(record.failures, settings)
    return max(ZERO, min(whole - (now - record.last_failure), whole - waited))


def remaining_of_index(
    last_failed: Pod | None,
    now: datetime,
    settings: BackoffSettings = DEFAULTS,
    waited: Waited = UNKNOWN,
) -> timedelta:
    """How long the Job must not create a pod for the index of its last failed pod (A12.8)."""
    if last_failed is None:
        return ZERO
    failures = _int32(_all_failures(last_failed) + 1)
    elapsed = waited.pods.get(last_failed.metadata.uid, ZERO)
    return remaining(Record(failures, finish_time(last_failed)), now, settings, elapsed)


def split_ready(
    indexes: Iterable[int],
    last_failed: Mapping[int, Pod],
    now: datetime,
    settings: BackoffSettings = DEFAULTS,
    waited: Waited = UNKNOWN,
) -> tuple[list[int], timedelta]:
    """The indexes whose delay is over; if there is none, how long until the first is.

    Indexes that wait keep their places among those to create: later indexes do not replace them
    (behaviour A7.7).
    """
    ready: list[int] = []
    waits: list[timedelta] = []
    for index in indexes:
        wait = remaining_of_index(last_failed.get(index), now, settings, waited)
        if wait > ZERO:
            waits.append(wait)
        else:
            ready.append(index)
    return ready, ZERO if ready else min(waits, default=ZERO)


def wake_after(wait: timedelta, settings: BackoffSettings = DEFAULTS) -> timedelta:
    """When to sync a Job again that must not create pods for `wait` (A8.3)."""
    return max(wait, settings.shortest_wake)


# -- when a pod ended -------------------------------------------------------------


def finish_time(pod: Pod) -> datetime:
    """When a pod ended, from the best source (behaviour A11.6): the end of its last container.

    Sidecars end last, so a running sidecar leaves the end unknown. When regular containers still
    run and all sidecars have ended, the end of the sidecars counts, as in Kubernetes, though
    that is probably a mistake there.
    """
    end = _latest(None, pod.status.container_statuses or ())
    if pod.status.init_container_statuses:
        names = pod_state.sidecars(pod)
        beside = [each for each in pod.status.init_container_statuses if each.name in names]
        end = _latest(end, beside)
    if end is not None:
        return end
    ready = structs.find(pod.status.conditions, "Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time:
        return times.parse(ready.last_transition_time)
    if due := _time(pod.metadata.deletion_timestamp):
        # The timestamp is when the deletion is due, not when it was requested.
        return due - times.span(pod.metadata.deletion_grace_period_seconds or 0)
    return _time(pod.metadata.creation_timestamp) or _LONG_AGO


def _latest(latest: datetime | None, statuses: Iterable[ContainerStatus]) -> datetime | None:
    for status in statuses:
        termination = status.state.terminated
        end = _time(termination.finished_at) if termination is not None else None
        if end is None:
            return None
        latest = end if latest is None else max(latest, end)
    return latest


def _time(text: str | None) -> datetime | None:
    return times.parse(text) if text else None


# -- limits -----------------------------------------------------------------------


def exceeds_limit(failed: int, limit: int) -> bool:
    return failed > limit


def exceeds_limit_by_restarts(pods: Iterable[Pod], limit: int) -> bool:
    """Whether containers were restarted too often in pods that are not over (A12.2).

    Only for templates with OnFailure. The comparison differs from the one for failed pods, as in
    Kubernetes: a limit of 3 allows two restarts.
    """
    total = restarts(pods)
    return total > 0 if limit == 0 else total >= limit


def restarts(pods: Iterable[Pod]) -> int:
    """How often containers were restarted in pods that are not over."""
    return sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in (RUNNING, PENDING)
        for statuses in (pod.status.init_container_statuses, pod.status.container_statuses)
        for status in statuses or ()
    )


def fails_index(pod: Pod, verdict: Verdict, limit: int) -> bool:
    """Whether the failure of this pod is the end of its index (A12.5)."""
    if verdict.action == pod_failure.FAIL_INDEX:
        return True
    return verdict.counts and pod_state.index_failures(pod) >= limit


def exceeds_failed_indexes(failed: int, limit: int | None) -> bool:
    return limit is not None and failed > limit


@dataclass(frozen=True, slots=True)
class IndexFailures:
    """The failures of a new pod's predecessors, for its annotations (A8.9)."""

    counted: int = 0
    ignored: int = 0

    def annotations(self) -> dict[str, str]:
        annotations = {pod_state.INDEX_FAILURES: str(self.counted)}
        if self.ignored > 0:
            annotations[pod_state.INDEX_IGNORED_FAILURES] = str(self.ignored)
        return annotations


def index_failures_after(replaced: Pod | None, verdict: Verdict) -> IndexFailures:
    """The failures of an index, the pod that is replaced included (A12.7)."""
    if replaced is None:
        return IndexFailures()
    failures = pod_state.index_failures(replaced)
    ignored = pod_state.index_ignored_failures(replaced)
    if verdict.counts:
        return IndexFailures(_int32(failures + 1), ignored)
    return IndexFailures(failures, _int32(ignored + 1))


def is_later_failure(pod: Pod, than: Pod) -> bool:
    """Which of two failed pods of an index knows of more failures (A12.9)."""
    more = _all_failures(pod) >= _all_failures(than)
    return more and finish_time(pod) >= finish_time(than)


def _all_failures(pod: Pod) -> int:
    return _int32(pod_state.all_index_failures(pod))


def _int32(number: int) -> int:
    """Kubernetes counts with 32 bits: after the largest number comes the smallest."""
    return (number + 2**31) % 2**32 - 2**31
