# SPDX-License-Identifier: Apache-2.0
"""How long a Job waits after failures, and how many it may have (behaviour A11, A12)."""

from datetime import timedelta
from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.policy.job import backoff
from refloat.policy.job.backoff import NO_FAILURES, IndexFailures, Record
from refloat.policy.job.pod_failure import NO_MATCH, Verdict
from tests.cases import cases
from tests.unit.policy.builders import at, condition, container, failed, job, pod, succeeded
from tests.unit.policy.job.syncs import sync

# -- when a pod ended -------------------------------------------------------------

READY_FALSE = condition("Ready", "False", since=7)

ENDS: dict[str, Any] = {
    "the end of the last container": (
        pod(containers=[container("a", 0, ended=5), container("b", 1, ended=9)]),
        9,
    ),
    "containers come before the Ready condition": (
        pod(containers=[container("a", 0, ended=5)], conditions=[READY_FALSE]),
        5,
    ),
    "a container that runs leaves the end to the Ready condition": (
        pod(containers=[container("a", 0, ended=5), container("b")], conditions=[READY_FALSE]),
        7,
    ),
    "so does one without a time of its end (D5.1)": (
        pod(containers=[container("a", 137)], conditions=[READY_FALSE]),
        7,
    ),
    "a sidecar that ends later is the end": (
        pod(
            containers=[container("a", 0, ended=5)],
            init=[container("proxy", 0, ended=8)],
            sidecars=["proxy"],
        ),
        8,
    ),
    "a sidecar that runs on leaves the end unknown": (
        pod(
            containers=[container("a", 0, ended=5)],
            init=[container("proxy")],
            sidecars=["proxy"],
            conditions=[READY_FALSE],
        ),
        7,
    ),
    "quirk: sidecars that ended are the end while regular containers run (H11)": (
        pod(
            containers=[container("a")],
            init=[container("proxy", 0, ended=8)],
            sidecars=["proxy"],
            conditions=[READY_FALSE],
        ),
        8,
    ),
    "plain init containers do not matter": (
        pod(containers=[container("a", 0, ended=5)], init=[container("setup", 0, ended=8)]),
        5,
    ),
    "the Ready condition comes before the deletion (A11.7)": (
        pod(conditions=[READY_FALSE], deleted=40, grace=30),
        7,
    ),
    "the deletion was asked for a grace period before it is due": (
        pod(conditions=[condition("Ready", "True", since=7)], deleted=40, grace=30),
        10,
    ),
    "without a grace period it is due at once": (pod(deleted=40), 40),
    "a Ready condition without a time does not help": (
        pod(conditions=[condition("Ready", "False")], deleted=40),
        40,
    ),
    "at last, the time of its creation (A11.7)": (pod(created=3), 3),
}


@cases("of want", ENDS)
def test_when_a_pod_ended(of: Pod, want: float) -> None:
    """Behaviour A11.6."""
    assert backoff.finish_time(of) == at(want)


def test_a_pod_without_any_time_ended_before_all_others() -> None:
    assert backoff.finish_time(pod(created=None)) < at(-(10**9))


# KEP-3939 counts the delay from when a pod is Failed, or under TerminatingOrFailed from when it is
# terminating. Kubernetes knows neither moment and takes what the pod says (A11.6). Where both
# differ, Refloat does as Kubernetes; these are all the ways, with the second that each counts from.
SIDE_BY_SIDE: dict[str, Any] = {
    "a container fails: both": ("Failed", failed(ended=5), 5, 5),
    "Failed, a drained pod stops: both": ("Failed", failed(ended=25, deleted=40, grace=30), 25, 25),
    "Failed, on a dead node: from when the node was lost": (
        "Failed",
        pod(phase="Failed", conditions=[READY_FALSE], deleted=340, grace=30),
        400,
        7,
    ),
    "Failed, refused by its node: from its creation": (
        "Failed",
        pod(phase="Failed", created=3),
        20,
        3,
    ),
    "TerminatingOrFailed, a pod is deleted: both": (
        "TerminatingOrFailed",
        pod(conditions=[condition("Ready", since=1)], deleted=40, grace=30),
        10,
        10,
    ),
    "TerminatingOrFailed, evicted from a dead node: from when the node was lost": (
        "TerminatingOrFailed",
        pod(conditions=[READY_FALSE], deleted=340, grace=30),
        310,
        7,
    ),
    "TerminatingOrFailed, seen when its containers have ended: from their end": (
        "TerminatingOrFailed",
        pod(containers=[container("a", 1, ended=12)], deleted=40, grace=30),
        10,
        12,
    ),
}


@cases("replacement of kep kubernetes", SIDE_BY_SIDE)
def test_a_delay_counts_from_where_kubernetes_counts_it(
    replacement: str, of: Pod, kep: float, kubernetes: float
) -> None:
    """KEP-3939's words and behaviour A11.6 side by side, for one failure: ten seconds."""
    batch_job = job(podReplacementPolicy=replacement)
    early = sync(batch_job, [of], at(kubernetes + 9))
    due = sync(batch_job, [of], at(kubernetes + 10))
    assert (len(early.created), len(due.created)) == (0, 1)
    by_kep = sync(batch_job, [of], at(kep + 9))
    assert (len(by_kep.created) == 0) is (kep <= kubernetes)


# -- the record -------------------------------------------------------------------

UPDATES: dict[str, Any] = {
    "nothing new changes nothing": (Record(2, at(5)), [], [], Record(2, at(5))),
    "failures add up, and the latest counts": (
        Record(2, at(5)),
        [],
        [failed("a", ended=9), failed("b", ended=7)],
        Record(4, at(9)),
    ),
    "also when it was earlier": (Record(2, at(50)), [], [failed(ended=9)], Record(3, at(9))),
    "a success forgets failures": (Record(2, at(5)), [succeeded(ended=6)], [], NO_FAILURES),
    "failures after the last success count": (
        Record(2, at(5)),
        [succeeded("s", ended=6)],
        [failed("a", ended=7), failed("b", ended=8), failed("c", ended=5)],
        Record(2, at(8)),
    ),
    "a failure at the very moment of the success does not": (
        Record(2, at(5)),
        [succeeded("s", ended=6)],
        [failed("a", ended=6)],
        NO_FAILURES,
    ),
}


@cases("before good bad want", UPDATES)
def test_record_of_failures(before: Record, good: list[Pod], bad: list[Pod], want: Record) -> None:
    """Behaviour A11.2."""
    assert backoff.updated(before, good, bad) == want


@pytest.mark.parametrize(
    ("failures", "want"),
    [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 600), (10**6, 600)],
)
def test_the_delay_doubles_up_to_ten_minutes(failures: int, want: int) -> None:
    """Behaviour A11.4."""
    assert backoff.delay(failures) == timedelta(seconds=want)


@cases(
    "failures now want",
    {
        "what is left of the delay": (1, 104, 6),
        "nothing at its end": (1, 110, 0),
        "never less than nothing": (1, 500, 0),
        "the delay when the failure is in the future": (2, 95, 20),
        "nothing without failures": (0, 100, 0),
    },
)
def test_what_remains_of_a_delay(failures: int, now: float, want: float) -> None:
    wait = backoff.remaining(Record(failures, at(100)), at(now))
    assert wait == timedelta(seconds=want)


@pytest.mark.parametrize(("wait", "want"), [(0.2, 1), (1, 1), (7, 7)])
def test_a_waiting_job_wakes_not_before_a_second(wait: float, want: float) -> None:
    """Behaviour A8.3."""
    assert backoff.wake_after(timedelta(seconds=wait)) == timedelta(seconds=want)


# -- per index --------------------------------------------------------------------

MOST = 2**31 - 1
"""One failure more is a negative number in Kubernetes."""


@pytest.mark.parametrize(
    ("failures", "ignored", "want"),
    [
        (None, None, 10),
        (0, None, 10),
        (1, None, 20),
        (1, 1, 40),
        (9, 9, 600),
        (0, MOST - 1, 600),
        (0, MOST, 10),
        (1, MOST, 10),
        (MOST, MOST, 10),
    ],
)
def test_the_delay_of_an_index_counts_all_its_failures(
    failures: int | None, ignored: int | None, want: float
) -> None:
    """Behaviour A12.8."""
    last = failed(ended=0, failures=failures, ignored=ignored)
    assert backoff.remaining_of_index(last, at(0)) == timedelta(seconds=want)


def test_an_index_that_never_failed_does_not_wait() -> None:
    assert backoff.remaining_of_index(None, at(0)) == timedelta(0)


@cases(
    "indexes ended want_ready want_wait",
    {
        "those that wait do not hold up the others": ([0, 1], {0: 0}, [1], 0),
        "if all wait, until the first": ([0, 1], {0: 0, 1: 4}, [], 5),
        "a delay that is over does not matter": ([0], {0: -20}, [0], 0),
        "nothing to create": ([], {}, [], 0),
    },
)
def test_which_indexes_are_ready(
    indexes: list[int], ended: dict[int, float], want_ready: list[int], want_wait: float
) -> None:
    last = {index: failed(f"p{index}", ended=end) for index, end in ended.items()}
    ready, wait = backoff.split_ready(indexes, last, at(5))
    assert (ready, wait) == (want_ready, timedelta(seconds=want_wait))


IGNORED = Verdict("Ignore", 0)
FAIL_INDEX = Verdict("FailIndex", 0)


@cases(
    "replaced verdict want",
    {
        "the first pod of an index": (None, NO_MATCH, IndexFailures(0, 0)),
        "a failure that counts adds one": (failed(failures=1), NO_MATCH, IndexFailures(2, 0)),
        "an ignored one, too": (failed(failures=1, ignored=2), IGNORED, IndexFailures(1, 3)),
        "no annotation is none": (failed(), NO_MATCH, IndexFailures(1, 0)),
        "nonsense is none": (failed(failures="x", ignored="-1"), NO_MATCH, IndexFailures(1, 0)),
        "too large is none": (failed(failures="2147483648"), NO_MATCH, IndexFailures(1, 0)),
        "largest is kept": (failed(failures="2147483647"), IGNORED, IndexFailures(2**31 - 1, 1)),
        "past the largest comes the smallest": (
            failed(ignored="2147483647"),
            IGNORED,
            IndexFailures(0, -(2**31)),
        ),
        "of those that count, too": (
            failed(failures="2147483647"),
            NO_MATCH,
            IndexFailures(-(2**31), 0),
        ),
    },
)
def test_what_a_replacement_is_told(
    replaced: Pod | None, verdict: Verdict, want: IndexFailures
) -> None:
    """Behaviour A12.7."""
    assert backoff.index_failures_after(replaced, verdict) == want


def test_ignored_failures_are_told_only_if_there_are_any() -> None:
    """Behaviour A8.9."""
    annotation = "batch.kubernetes.io/job-index-failure-count"
    ignored = "batch.kubernetes.io/job-index-ignored-failure-count"
    assert IndexFailures().annotations() == {annotation: "0"}
    assert IndexFailures(1, 2).annotations() == {annotation: "1", ignored: "2"}
    assert IndexFailures(1, -(2**31)).annotations() == {annotation: "1"}


@cases(
    "of verdict limit want",
    {
        "limit 0 bears no failure": (failed(failures=0), NO_MATCH, 0, True),
        "limit 1 bears one": (failed(failures=0), NO_MATCH, 1, False),
        "but not two": (failed(failures=1), NO_MATCH, 1, True),
        "ignored failures never fail it": (failed(failures=5), IGNORED, 1, False),
        "FailIndex fails it at once": (failed(failures=0), FAIL_INDEX, 9, True),
    },
)
def test_when_an_index_fails(of: Pod, verdict: Verdict, limit: int, want: bool) -> None:
    """Behaviour A12.5."""
    assert backoff.fails_index(of, verdict, limit) is want


# -- limits -----------------------------------------------------------------------


@pytest.mark.parametrize(("count", "want"), [(2, False), (3, True)])
def test_a_limit_of_two_bears_two_failures(count: int, want: bool) -> None:
    """Behaviour A12.1."""
    assert backoff.exceeds_limit(count, 2) is want


@pytest.mark.parametrize(
    ("restarts", "limit", "want"),
    [(0, 0, False), (1, 0, True), (1, 2, False), (2, 2, True), (3, 2, True)],
)
def test_restarts_count_as_failures(restarts: int, limit: int, want: bool) -> None:
    """Behaviour A12.2."""
    running = pod(containers=[container("a", restarts=restarts)])
    assert backoff.exceeds_limit_by_restarts([running], limit) is want


def test_restarts_of_all_containers_of_pods_that_are_not_over_add_up() -> None:
    pods = [
        pod("a", "Running", containers=[container("a", restarts=1)]),
        pod("b", "Pending", init=[container("b", restarts=1)]),
        pod("c", "Failed", containers=[container("c", restarts=9)]),
        pod("d", "Succeeded", containers=[container("d", restarts=9)]),
    ]
    assert backoff.exceeds_limit_by_restarts(pods, 2)
    assert not backoff.exceeds_limit_by_restarts(pods, 3)


@pytest.mark.parametrize(
    ("count", "limit", "want"), [(9, None, False), (1, 1, False), (2, 1, True), (1, 0, True)]
)
def test_how_many_indexes_may_fail(count: int, limit: int | None, want: bool) -> None:
    """Behaviour A12.10."""
    assert backoff.exceeds_failed_indexes(count, limit) is want


@cases(
    "now waited want",
    {
        "now": (100, 0, 10),
        "an hour ahead: one delay at most": (-3500, 0, 10),
        "an hour ahead, and known for 4 s": (-3500, 4, 6),
        "an hour ahead, and known for longer than the delay": (-3500, 60, 0),
        "3 s ago, and known now": (103, 0, 7),
        "3 s ago by a clock that was set back, known for 5 s": (103, 5, 5),
        "long ago": (9999, 0, 0),
    },
)
def test_a_failure_in_the_future_is_waited_for_no_longer_than_its_delay(
    now: int, waited: int, want: int
) -> None:
    wait = backoff.remaining(Record(1, at(100)), at(now), waited=timedelta(seconds=waited))
    assert wait == timedelta(seconds=want)
