# SPDX-License-Identifier: Apache-2.0
"""Which pods a Job needs more, or has too many of (behaviour A7, A8, A9, A14)."""

from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.policy.job import observed, scaling, victims
from refloat.policy.job.backoff import IndexFailures, Record
from tests.cases import cases
from tests.unit.policy.builders import (
    at,
    condition,
    container,
    failed,
    indexed,
    job,
    on_codes,
    pod,
    policy,
    succeeded,
)


def plan(of: Job, *pods: Pod, now: float = 1000, record: Record | None = None) -> scaling.PodPlan:
    return scaling.plan(observed.observe(of, pods, record=record or Record()), at(now))


def indexes(found: scaling.PodPlan) -> list[int | None]:
    return [new.index for new in found.create]


# -- creation ---------------------------------------------------------------------


def test_missing_pods_are_created() -> None:
    pod_plan = plan(job(parallelism=3, completions=9), pod("a"))
    assert (len(pod_plan.create), pod_plan.action) == (2, "pods_created")


def test_nothing_is_done_when_all_are_there() -> None:
    pod_plan = plan(job(parallelism=1, completions=9), pod("a"))
    assert pod_plan == scaling.PodPlan("tracking")


def test_no_more_than_500_are_created_at_once() -> None:
    """Behaviour A1.5."""
    assert len(plan(job(parallelism=2000, completions=2000)).create) == 500
    assert len(plan(indexed(2000)).create) == 500


def test_nothing_is_created_after_a_recent_failure() -> None:
    """Behaviour A8.3, A11.5: not even what a scale-up would add."""
    batch_job = job(parallelism=3, completions=9)
    pod_plan = plan(batch_job, failed("a", ended=95), pod("b"), now=100)
    assert (pod_plan.create, pod_plan.wait, pod_plan.action) == (
        (),
        timedelta(seconds=5),
        "pods_created",
    )


def test_a_short_wait_lasts_a_second() -> None:
    pod_plan = plan(job(), failed(ended=90.0), now=99.9)
    assert pod_plan.wait == timedelta(seconds=1)


def test_failures_are_remembered() -> None:
    record = Record(3, at(100))
    assert plan(job(), now=139, record=record).wait == timedelta(seconds=1)
    assert len(plan(job(), now=140, record=record).create) == 1


def test_ignored_failures_delay_all_the_same() -> None:
    """Behaviour A11.3, H4."""
    batch_job = job(podFailurePolicy=policy(on_codes("Ignore", "In", 1)))
    assert plan(batch_job, failed(ended=99), now=100).wait == timedelta(seconds=9)


def test_indexes_are_created_in_order() -> None:
    batch_job = indexed(6, parallelism=4, status={"completedIndexes": "1", "succeeded": 1})
    assert indexes(plan(batch_job, pod("a", index=2))) == [0, 3, 4]


def test_a_work_queue_creates_nothing_after_its_first_success() -> None:
    """Behaviour A6.2."""
    pod_plan = plan(job(parallelism=3), succeeded("a"), pod("b"))
    assert pod_plan == scaling.PodPlan("tracking")


@pytest.mark.parametrize(("policy_of", "want"), [("Failed", [1]), ("TerminatingOrFailed", [0, 1])])
def test_an_index_with_a_terminating_pod(policy_of: str, want: list[int]) -> None:
    """Behaviour A7.6."""
    batch_job = indexed(2, podReplacementPolicy=policy_of)
    assert indexes(plan(batch_job, pod("a", index=0, deleted=0))) == want


def test_under_failed_a_terminating_pod_of_no_index_takes_a_place() -> None:
    """Behaviour A8.2: the number is of all terminating pods."""
    batch_job = indexed(2, podReplacementPolicy="Failed")
    assert indexes(plan(batch_job, pod("a", deleted=0))) == [0]


# -- creation, with failures limited per index ------------------------------------


def test_a_replacement_is_told_of_its_predecessors() -> None:
    batch_job = indexed(2, backoffLimitPerIndex=5)
    old = failed("a", index=0, failures=1)
    pod_plan = plan(batch_job, old, pod("b", index=1))
    assert pod_plan.create == (scaling.NewPod(0, IndexFailures(2, 0), old),)


def test_a_first_pod_is_told_that_there_were_none() -> None:
    pod_plan = plan(indexed(1, backoffLimitPerIndex=5))
    assert pod_plan.create == (scaling.NewPod(0, IndexFailures(0, 0)),)


def test_without_such_a_limit_nothing_is_told() -> None:
    assert plan(indexed(1)).create == (scaling.NewPod(0),)


def test_failed_indexes_are_not_tried_again() -> None:
    batch_job = indexed(3, backoffLimitPerIndex=0, status={"failedIndexes": "1"})
    assert indexes(plan(batch_job, failed("a", index=0))) == [2]


def test_an_index_in_back_off_does_not_hold_up_the_others() -> None:
    batch_job = indexed(2, backoffLimitPerIndex=5)
    assert indexes(plan(batch_job, failed("a", index=0, ended=99), now=100)) == [1]


def test_quirk_an_index_in_back_off_keeps_its_place() -> None:
    """Behaviour A7.7, H3: with parallelism 1, index 1 waits for index 0."""
    batch_job = indexed(2, parallelism=1, backoffLimitPerIndex=5)
    pod_plan = plan(batch_job, failed("a", index=0, ended=99), now=100)
    assert (pod_plan.create, pod_plan.wait) == ((), timedelta(seconds=9))


def test_the_record_of_the_job_does_not_delay_indexes() -> None:
    """Behaviour A11: not used with a limit per index."""
    batch_job = indexed(1, backoffLimitPerIndex=5)
    assert indexes(plan(batch_job, now=100, record=Record(5, at(100)))) == [0]


# -- deletion ---------------------------------------------------------------------


def test_too_many_are_deleted() -> None:
    pod_plan = plan(job(parallelism=1, completions=9), pod("a", created=0), pod("b", created=5))
    assert [each.metadata.uid for each in pod_plan.delete] == ["b"]
    assert pod_plan.action == "pods_deleted"


def test_no_more_are_kept_than_are_needed_still() -> None:
    batch_job = job(parallelism=3, completions=3, status={"succeeded": 2})
    pod_plan = plan(batch_job, pod("a", created=0), pod("b", created=1), pod("c", created=2))
    assert [each.metadata.uid for each in pod_plan.delete] == ["c", "b"]


def test_no_more_than_500_are_deleted_at_once() -> None:
    pods = [pod(f"p{number}") for number in range(600)]
    assert len(plan(job(parallelism=0, completions=9), *pods).delete) == 500


def test_a_suspended_job_deletes_all_of_them_at_once() -> None:
    """Behaviour A1.5, A14.1."""
    pods = [pod(f"p{number}") for number in range(600)]
    pod_plan = plan(job(parallelism=600, completions=900, suspend=True), *pods)
    assert (len(pod_plan.delete), pod_plan.action) == (600, "pods_deleted")


def test_a_suspended_job_creates_nothing() -> None:
    assert plan(job(suspend=True)).create == ()


MISPLACED: dict[str, Any] = {
    "no index": ([pod("a")], ["a"]),
    "no number": ([pod("a", index="x")], ["a"]),
    "a negative index": ([pod("a", index=-1)], ["a"]),
    "an index beyond the last": ([pod("a", index=3)], ["a"]),
    "two of one index": ([pod("a", index=1, created=0), pod("b", index=1, created=5)], ["b"]),
    "an index of the Job": ([pod("a", index=2)], []),
}


@cases("pods want", MISPLACED)
def test_pods_that_must_not_be_there_are_deleted(pods: list[Pod], want: list[str]) -> None:
    """Behaviour A7.8, although there are too few."""
    pod_plan = plan(indexed(3), *pods)
    assert [each.metadata.uid for each in pod_plan.delete] == want


def test_misplaced_pods_count_towards_those_to_be_deleted() -> None:
    """Behaviour A9.4."""
    pods = [pod("a", index=0), pod("b", index=1), pod("c")]
    pod_plan = plan(indexed(9, parallelism=2), *pods)
    assert [each.metadata.uid for each in pod_plan.delete] == ["c"]


def test_a_sync_that_deletes_creates_nothing() -> None:
    """Behaviour A8.2."""
    pod_plan = plan(indexed(9), pod("a"))
    assert (len(pod_plan.delete), pod_plan.create) == (1, ())


# -- victims ----------------------------------------------------------------------

READY = condition("Ready", "True", since=50)

ORDER: dict[str, Any] = {
    "one without a node, before one with": (pod(node=""), pod()),
    "Pending before Running": (pod(phase="Pending"), pod(phase="Running")),
    "Pending before Unknown": (pod(phase="Pending"), pod(phase="Unknown")),
    "Unknown before Running": (pod(phase="Unknown"), pod(phase="Running")),
    "not ready before ready": (pod(), pod(conditions=[READY])),
    "ready for less time before longer": (
        pod(conditions=[condition("Ready", since=60)]),
        pod(conditions=[READY]),
    ),
    "unknown time first": (pod(conditions=[condition("Ready")]), pod(conditions=[READY])),
    "the most restarts of a container, not their sum": (
        pod(containers=[container("a", restarts=2)], created=0),
        pod(containers=[container("a", restarts=1), container("b", restarts=1)], created=5),
    ),
    "then those of sidecars": (
        pod(init=[container("s", restarts=2)], sidecars=["s"]),
        pod(init=[container("s", restarts=1)], sidecars=["s"], created=5),
    ),
    "newer before older": (pod(created=5), pod(created=0)),
    "no time of creation first": (pod(created=None), pod(created=5)),
    "the node comes before the phase": (
        pod(node="", phase="Running", conditions=[READY]),
        pod(phase="Pending"),
    ),
}


@cases("first second", ORDER)
def test_who_is_deleted_first(first: Pod, second: Pod) -> None:
    """Behaviour A9.3."""
    assert victims.in_order([second, first]) == [first, second]
    assert victims.in_order([first, second]) == [first, second]


def test_restarts_of_plain_init_containers_do_not_matter() -> None:
    often = pod("a", init=[container("setup", restarts=9)])
    assert victims.in_order([pod("b"), often])[0].metadata.uid == "b"


@pytest.mark.parametrize(("twice", "want"), [(False, 0), (True, 2)])
def test_only_pods_that_share_an_index_are_ranked(
    monkeypatch: pytest.MonkeyPatch, *, twice: bool, want: int
) -> None:
    """Nothing is to be deleted at most syncs, and a large Job is looked at often."""
    rank = Mock(wraps=victims._rank)
    monkeypatch.setattr(victims, "_rank", rank)
    pods = [pod(f"u{index}", index=index) for index in range(5)]
    pod_plan = plan(indexed(5), *pods, *([pod("again", index=3)] if twice else []))
    assert (rank.call_count, len(pod_plan.delete)) == (want, int(twice))
