# SPDX-License-Identifier: Apache-2.0
"""What is written, whose finalizers go, and in which order (behaviour A5)."""

from dataclasses import replace
from typing import Any

import pytest

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import accounting, observed, outcome
from refloat.policy.job.accounting import AccountingSettings, Counts, StatusPlan
from refloat.policy.job.outcome import Outcome
from tests.cases import cases
from tests.unit.policy.builders import (
    at,
    container,
    failed,
    indexed,
    job,
    on_codes,
    pod,
    policy,
    succeeded,
    text,
)
from tests.unit.policy.job.syncs import sync

NONE = Counts(0, 0, 0)
GOOD = Outcome(True, "SuccessPolicy", "Matched rules at index 0")
BAD = Outcome(False, "DeadlineExceeded", "Job was active longer than specified deadline")


def plan(
    of: Job,
    *pods: Pod,
    ends: Outcome | None = None,
    counts: Counts = NONE,
    removing: frozenset[str] = frozenset(),
    **more: Any,
) -> StatusPlan:
    observation = observed.observe(of, pods, removing=removing)
    return accounting.plan(observation, outcome=ends, counts=counts, now=at(9), **more)


def listed(status: JobStatus) -> tuple[list[str], list[str]]:
    uncounted = status.uncounted_terminated_pods
    assert uncounted is not None
    return list(uncounted.succeeded or ()), list(uncounted.failed or ())


def released(found: StatusPlan) -> list[str]:
    return [each.metadata.uid for each in found.removals]


def uncounted(*, good: tuple[str, ...] = (), bad: tuple[str, ...] = (), **more: Any) -> Object:
    return {"uncountedTerminatedPods": {"succeeded": list(good), "failed": list(bad)}, **more}


IGNORE_3 = policy(on_codes("Ignore", "In", 3))

# The Job, its pod, how the Job ends; then the lists of uncounted succeeded and
# failed pods, and whether the pod's finalizer goes.
FATES: dict[str, Any] = {
    "a success is listed (A5.3)": (job(), succeeded(), None, (["u"], []), True),
    "a failure is listed (A5.3)": (job(), failed(), None, ([], ["u"]), True),
    "a running pod is left alone (A5.2)": (job(), pod(), None, ([], []), False),
    "one without finalizer, too (A5.2)": (job(), failed(tracked=False), None, ([], []), False),
    "a deleted pod is a failure under TerminatingOrFailed (A16.1)": (
        job(podReplacementPolicy="TerminatingOrFailed"),
        pod(deleted=0),
        None,
        ([], ["u"]),
        True,
    ),
    "a deleted pod is waited for under Failed (A16.2)": (
        job(podReplacementPolicy="Failed"),
        pod(deleted=0),
        None,
        ([], []),
        False,
    ),
    "an ignored failure is not listed, and goes (A5.4)": (
        job(podFailurePolicy=IGNORE_3),
        failed(exit_code=3),
        None,
        ([], []),
        True,
    ),
    "a listed pod is not listed again (A5.3)": (
        job(status=uncounted(bad=("u",))),
        failed(),
        None,
        ([], ["u"]),
        True,
    ),
    "listed as failed it stays so, though it succeeded (A5.5)": (
        job(status=uncounted(bad=("u",))),
        succeeded(deleted=0),
        None,
        ([], ["u"]),
        True,
    ),
    "listed as succeeded it stays so": (
        job(status=uncounted(good=("u",))),
        succeeded(),
        None,
        (["u"], []),
        True,
    ),
    "when the Job fails, running pods failed (A5.3)": (job(), pod(), BAD, ([], ["u"]), True),
    "when it succeeds, they are not counted (A17.4)": (job(), pod(), GOOD, ([], []), True),
    "when it succeeds, failed ones are (A5.3)": (job(), failed(), GOOD, ([], ["u"]), True),
    "when it fails, ignored ones are not counted either (A5.3)": (
        job(podFailurePolicy=IGNORE_3),
        pod(containers=[container("main", 3)]),
        BAD,
        ([], []),
        True,
    ),
    "a deleted Job lets go of all (A20.1)": (job(deleted=True), pod(), None, ([], []), True),
    "and still counts failures": (job(deleted=True), failed(), None, ([], ["u"]), True),
    "Indexed: no uid is listed (A5.3)": (indexed(3), succeeded(index=1), None, ([], []), True),
    "Indexed: a failure is listed": (indexed(3), failed(index=1), None, ([], ["u"]), True),
    "Indexed: no such index (A5.4)": (indexed(3), failed(index=7), None, ([], []), True),
    "Indexed: no index (A5.4)": (indexed(3), failed(), None, ([], []), True),
    "per index: the last failure stays until it is replaced (A12.9)": (
        indexed(3, backoffLimitPerIndex=2),
        failed(index=1, failures=0),
        None,
        ([], []),
        False,
    ),
    "per index: not when the index has failed (A12.9)": (
        indexed(3, backoffLimitPerIndex=0),
        failed(index=1, failures=0),
        None,
        ([], ["u"]),
        True,
    ),
    "per index: not when the Job is over (A5.2)": (
        indexed(3, backoffLimitPerIndex=2),
        failed(index=1, failures=0),
        BAD,
        ([], ["u"]),
        True,
    ),
}


@cases("of one ends want want_released", FATES)
def test_what_becomes_of_a_pod(
    of: Job, one: Pod, ends: Outcome | None, want: tuple[list[str], list[str]], want_released: bool
) -> None:
    status_plan = plan(of, one, ends=ends)
    assert listed(status_plan.status) == want
    assert released(status_plan) == (["u"] if want_released else [])


def test_a_failure_is_counted_when_its_replacement_is_there() -> None:
    """Behaviour A12.9."""
    batch_job = indexed(1, backoffLimitPerIndex=2)
    old, new = failed("old", index=0, failures=0), pod("new", index=0, failures=1)
    assert listed(plan(batch_job, old).status) == ([], [])
    assert listed(plan(batch_job, old, new).status) == ([], ["old"])


def test_of_two_failures_of_an_index_the_later_stays() -> None:
    batch_job = indexed(1, backoffLimitPerIndex=5)
    older = failed("older", index=0, failures=0, ended=1)
    later = failed("later", index=0, failures=1, ended=2)
    assert released(plan(batch_job, later, older)) == ["older"]
    assert released(plan(batch_job, older, later)) == ["older"]


def test_pods_that_are_being_released_are_not_seen_again() -> None:
    """Behaviour A3.7, A10.4: the cache shows a finalizer that is gone."""
    status_plan = plan(job(), failed("a"), removing=frozenset("a"))
    assert (listed(status_plan.status), released(status_plan)) == (([], []), [])


def test_what_was_judged_is_told_with_its_verdict() -> None:
    batch_job = job(podFailurePolicy=IGNORE_3)
    status_plan = plan(
        batch_job, failed("a", exit_code=3), failed("b", exit_code=1), succeeded("c")
    )
    actions = [(each.metadata.uid, verdict.action) for each, verdict in status_plan.judged]
    assert actions == [("a", "Ignore"), ("b", "")]


def test_what_was_listed_before_is_not_told_again() -> None:
    assert plan(job(status=uncounted(bad=("a",))), failed("a")).judged == ()


# -- counters ---------------------------------------------------------------------


def test_uids_without_finalizer_are_counted_first() -> None:
    """Behaviour A5.1: of pods that are gone, that lost the finalizer, or are losing it."""
    status = uncounted(good=("gone",), bad=("lost", "losing", "has"), succeeded=1, failed=2)
    pods = [failed("lost", tracked=False), failed("losing"), failed("has")]
    status_plan = plan(job(status=status), *pods, removing=frozenset(("losing",)))
    assert (status_plan.status.succeeded, status_plan.status.failed) == (2, 4)
    assert listed(status_plan.status) == ([], ["has"])
    assert status_plan.write


def test_counters_rise_only_when_finalizers_are_gone() -> None:
    """Behaviour A5.13."""
    status_plan = plan(job(completions=5), succeeded("a"), failed("b"))
    assert (status_plan.status.succeeded, status_plan.status.failed) == (0, 0)
    settlement = accounting.settle(status_plan, ["a", "b"], at(9))
    assert (settlement.status.succeeded, settlement.status.failed) == (1, 1)
    assert listed(settlement.status) == ([], [])


def test_a_finalizer_that_could_not_be_removed_keeps_its_pod_listed() -> None:
    """Behaviour A5.10."""
    status_plan = plan(job(completions=5), succeeded("a"), failed("b"), ends=BAD)
    settlement = accounting.settle(status_plan, ["a"], at(9))
    assert (settlement.status.succeeded, settlement.status.failed) == (1, 0)
    assert listed(settlement.status) == ([], ["b"])
    assert settlement.write
    assert not settlement.finished


def test_nothing_new_is_not_written() -> None:
    """Behaviour A4.14."""
    status = {"active": 1, "ready": 0, "terminating": 0, "startTime": text(0)}
    status_plan = plan(job(status=status), pod(), counts=Counts(1, 0, 0))
    assert not status_plan.write
    assert not accounting.settle(status_plan, [], at(9)).write


@pytest.mark.parametrize(
    "counts", [Counts(2, 0, 0), Counts(1, 1, 0), Counts(1, 0, 1)], ids=["active", "ready", "term."]
)
def test_another_number_of_pods_is_written(counts: Counts) -> None:
    status = {"active": 1, "ready": 0, "terminating": 0, "startTime": text(0)}
    assert plan(job(status=status), pod(), counts=counts).write


def test_numbers_are_written_even_when_they_are_zero() -> None:
    """Behaviour A5.14."""
    status_plan = plan(job(parallelism=0))
    status = status_plan.status
    assert (status.active, status.ready, status.terminating) == (0, 0, 0)
    assert status_plan.write


def test_a_sync_stops_at_so_many_pods() -> None:
    """Behaviour A1.6, and the Job does not finish then (A5.11)."""
    pods = [failed(f"p{number}") for number in range(5)]
    uncounted = plan(job(), *pods, ends=BAD, settings=AccountingSettings(most_uncounted=3))
    assert (released(uncounted), uncounted.cut) == (["p0", "p1", "p2"], True)
    assert not accounting.settle(uncounted, released(uncounted), at(9)).finished


def test_listed_pods_count_towards_so_many() -> None:
    batch_job = job(status=uncounted(bad=("p4",)))
    pods = [failed(f"p{number}") for number in range(5)]
    lists = plan(batch_job, *pods, settings=AccountingSettings(most_uncounted=3))
    assert released(lists) == ["p0", "p1"]


def test_indexes_count_towards_so_many() -> None:
    pods = [succeeded(f"p{number}", index=number) for number in (3, 0, 2, 1)]
    uncounted = plan(indexed(9), *pods, settings=AccountingSettings(most_uncounted=2))
    assert (released(uncounted), uncounted.cut) == (["p0", "p1"], True)


def test_500_is_the_most() -> None:
    pods = [failed(f"p{number}") for number in range(501)]
    assert len(plan(job(backoffLimit=9999), *pods).removals) == 500


# -- indexes ----------------------------------------------------------------------


@cases(
    "before new want count",
    {
        "the first": ("", [1], "1", 1),
        "three in a row": ("0,1", [2], "0-2", 3),
        "two in a row": ("0", [1], "0,1", 2),
        "between others": ("0-2,7", [5, 6], "0-2,5-7", 6),
        "one that was known": ("0-4", [3], "0-4", 5),
        "beyond the last (A7.5)": ("0-20", [], "0-9", 10),
        "nonsense is dropped (A7.3)": ("x,3,1-z,5", [], "3,5", 2),
    },
)
def test_completed_indexes(before: str, new: list[int], want: str, count: int) -> None:
    """Behaviour A7.2, A7.4."""
    pods = [succeeded(f"p{index}", index=index) for index in new]
    status = plan(indexed(10, status={"completedIndexes": before}), *pods).status
    assert (status.completed_indexes, status.succeeded) == (want, count)


@cases(
    "spec before want",
    {
        "a first failure": ({"backoffLimitPerIndex": 0}, None, "2"),
        "another one (A12.6)": ({"backoffLimitPerIndex": 0}, "0", "0,2"),
        "none, but it is limited (A5.6)": ({"backoffLimitPerIndex": 1}, None, ""),
        "not limited per index (A5.6)": ({}, None, None),
    },
)
def test_failed_indexes(spec: Object, before: str | None, want: str | None) -> None:
    batch_job = indexed(5, status={"failedIndexes": before}, **spec)
    assert plan(batch_job, failed(index=2, failures=0)).status.failed_indexes == want


def test_no_index_is_both_succeeded_and_failed() -> None:
    """The API refuses such a status (B6.5)."""
    batch_job = indexed(3, backoffLimitPerIndex=0, status={"failedIndexes": "1"})
    pods = [succeeded("a", index=1), succeeded("b", index=2), failed("c", index=2, failures=0)]
    status = plan(batch_job, *pods).status
    assert (status.completed_indexes, status.failed_indexes) == ("2", "1")


def test_an_index_is_not_completed_by_a_pod_that_is_listed_as_failed() -> None:
    """Behaviour A5.5: the pod would count as a failure and as a success."""
    batch_job = indexed(3, status=uncounted(bad=("u",)))
    status = plan(batch_job, succeeded(index=1, deleted=0)).status
    assert (status.completed_indexes, listed(status)) == ("", ([], ["u"]))


# -- conditions -------------------------------------------------------------------


def conditions(status: JobStatus) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in status.conditions or ()]


def test_the_interim_condition_is_in_the_first_write() -> None:
    """Behaviour A5.7, A18.2."""
    status_plan = plan(job(), failed(), ends=BAD)
    assert conditions(status_plan.status) == [("FailureTarget", "True", BAD.reason, BAD.message)]
    assert status_plan.write


def test_the_terminal_condition_is_in_the_second() -> None:
    """Behaviour A5.11, A18.1."""
    status_plan = plan(job(), failed(), ends=BAD)
    settlement = accounting.settle(status_plan, ["u"], at(11))
    assert conditions(settlement.status) == [
        ("FailureTarget", "True", BAD.reason, BAD.message),
        ("Failed", "True", BAD.reason, BAD.message),
    ]
    assert settlement.finished
    last = (settlement.status.conditions or ())[-1]
    assert (last.last_probe_time, last.last_transition_time) == (text(11), text(11))


@pytest.mark.parametrize(("ends", "want"), [(GOOD, text(11)), (BAD, None)])
def test_only_a_complete_job_has_a_completion_time(ends: Outcome, want: str | None) -> None:
    """Behaviour A19.1."""
    settlement = accounting.settle(plan(job(), ends=ends), [], at(11))
    assert settlement.status.completion_time == want


def test_a_job_is_not_finished_while_pods_terminate() -> None:
    """Behaviour A5.11, H13."""
    status_plan = plan(job(), pod(), ends=BAD, counts=Counts(0, 0, 1))
    settlement = accounting.settle(status_plan, ["u"], at(9))
    assert not settlement.finished
    assert [each[0] for each in conditions(settlement.status)] == ["FailureTarget"]


def test_what_was_recorded_is_not_recorded_again() -> None:
    condition = {"type": "FailureTarget", "status": "True", "reason": "Why", "message": "So."}
    batch_job = job(status={"conditions": [condition]})
    ends = outcome.decide(observed.observe(batch_job, []), at(9))
    settlement = accounting.settle(plan(batch_job, ends=ends), [], at(9))
    assert conditions(settlement.status) == [
        ("FailureTarget", "True", "Why", "So."),
        ("Failed", "True", "Why", "So."),
    ]


SUSPENDED = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
RESUMED = {"type": "Suspended", "status": "False", "reason": "JobResumed"}

SUSPENSION: dict[str, Any] = {
    "suspended (A14.2)": (True, [], ("Suspended", "True", "JobSuspended", "Job suspended"), None),
    "suspended again": (
        True,
        [{**RESUMED, "message": "Job resumed"}],
        ("Suspended", "True", "JobSuspended", "Job suspended"),
        None,
    ),
    "suspended still": (
        True,
        [{**SUSPENDED, "message": "Job suspended"}],
        ("Suspended", "True", "JobSuspended", "Job suspended"),
        text(1),
    ),
    "resumed (A14.4)": (
        False,
        [{**SUSPENDED, "message": "Job suspended"}],
        ("Suspended", "False", "JobResumed", "Job resumed"),
        text(9),
    ),
    "never suspended (A14.4)": (False, [], None, text(1)),
}


@cases("suspend before want want_start", SUSPENSION)
def test_suspension_is_a_condition(
    suspend: bool,
    before: list[Object],
    want: tuple[str, str, str, str] | None,
    want_start: str | None,
) -> None:
    batch_job = job(suspend=suspend, status={"conditions": before, "startTime": text(1)})
    status = plan(batch_job).status
    assert conditions(status) == ([] if want is None else [want])
    assert status.start_time == want_start


def test_suspension_is_not_told_by_a_sync_that_did_not_manage_pods() -> None:
    """Behaviour A4.13."""
    assert plan(job(suspend=True), managed=False).status.conditions is None


def test_a_job_that_ends_is_not_told_to_be_suspended() -> None:
    assert [each[0] for each in conditions(plan(job(suspend=True), ends=BAD).status)] == [
        "FailureTarget"
    ]


# -- whole stories ----------------------------------------------------------------


def test_the_seventh_failure_is_the_last() -> None:
    """Behaviour G1."""
    done = sync(job(status={"failed": 6, "startTime": text(0)}), [failed()], at(100))
    assert [listed(status) for status in done.statuses] == [([], ["u"]), ([], [])]
    assert [len(conditions(status)) for status in done.statuses] == [1, 2]
    assert (done.status.failed, done.finished) == (7, True)


def test_a_deadline_counts_running_pods_as_failed_at_once() -> None:
    """Behaviour G9."""
    batch_job = job(activeDeadlineSeconds=5, status={"startTime": text(0), "active": 1})
    done = sync(batch_job, [pod()], at(5))
    assert (done.deleted, done.released) == (["pod-u"], ["pod-u"])
    status = done.status
    assert (status.failed, status.active, status.terminating) == (1, 0, 1)
    assert not done.finished


def test_stragglers_of_a_success_policy_are_not_counted() -> None:
    """Behaviour G11."""
    batch_job = indexed(2, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    done = sync(batch_job, [succeeded("a", index=0), pod("b", index=1)], at(5))
    assert (done.deleted, done.status.failed, done.status.succeeded) == (["pod-b"], 0, 1)
    assert not done.finished


def test_suspending_a_job_counts_nothing() -> None:
    """Behaviour G8."""
    batch_job = job(suspend=True, status={"active": 1, "startTime": text(0)})
    done = sync(batch_job, [pod()], at(5))
    status = done.status
    assert (status.active, status.terminating, status.failed) == (0, 1, 0)
    assert (done.deleted, done.released) == (["pod-u"], ["pod-u"])


def test_a_suspended_job_can_complete() -> None:
    """Behaviour A14.6."""
    done = sync(job(suspend=True, completions=0), [], at(5))
    assert done.finished
    assert [each[0] for each in conditions(done.status)] == ["SuccessCriteriaMet", "Complete"]


@cases(
    "spec pods want",
    {
        "its last pod succeeded": ({"completions": 1}, [succeeded()], text(7)),
        "its last pod failed": ({"backoffLimit": 0}, [failed()], text(7)),
        "there was nothing to do": ({"completions": 0}, [], None),
    },
)
def test_a_suspended_job_that_ends_has_a_start(
    spec: Object, pods: list[Pod], want: str | None
) -> None:
    """Behaviour A14.6, B6.5: Kubernetes is refused by its own API until the Job is resumed."""
    suspended = {"type": "Suspended", "status": "True", "reason": "r", "message": "m"}
    batch_job = job(suspend=True, status={"conditions": [suspended]}, **spec)
    done = sync(batch_job, pods, at(7))
    assert done.finished
    assert done.status.start_time == want


# -- what is written with a decision, before pods are deleted ------------------------


def test_when_a_job_fails_each_pod_that_runs_is_listed_as_a_failure() -> None:
    batch_job = job(podReplacementPolicy="Failed")
    pods = [succeeded("good", deleted=1), failed("bad", deleted=1), pod("ending", deleted=1)]
    status_plan = plan(batch_job, *pods, succeeded("plain"), pod("runs"), ends=BAD)
    assert listed(status_plan.status) == (["good", "plain"], ["bad", "ending", "runs"])
    assert [each[0] for each in conditions(status_plan.status)] == ["FailureTarget"]


def test_when_a_job_succeeds_no_pod_that_runs_is_listed() -> None:
    batch_job = indexed(4, podReplacementPolicy="Failed")
    pods = [succeeded("good", index=0), failed("bad", index=1, deleted=1), pod("runs", index=2)]
    status_plan = plan(batch_job, *pods, pod("ending", index=3, deleted=1), ends=GOOD)
    assert listed(status_plan.status) == ([], ["bad"])
    assert (status_plan.status.completed_indexes, status_plan.status.failed) == ("0", 0)
    assert [each[0] for each in conditions(status_plan.status)] == ["SuccessCriteriaMet"]


def test_one_that_is_kept_for_its_index_is_listed_when_the_job_ends() -> None:
    batch_job = indexed(2, backoffLimitPerIndex=3)
    pods = [failed("kept", index=0, deleted=1), succeeded("good", index=1, deleted=1)]
    status_plan = plan(batch_job, *pods, ends=BAD)
    assert listed(status_plan.status) == ([], ["kept"])
    assert (status_plan.status.completed_indexes, status_plan.status.succeeded) == ("1", 1)


def test_a_pod_that_was_listed_while_it_ran_fails_no_index_when_it_is_deleted() -> None:
    """The successor of a controller that died does not wait for the deleted pod."""
    batch_job = indexed(2, backoffLimitPerIndex=0, status=uncounted(bad=("runs",)))
    status_plan = plan(batch_job, failed("bad", index=0), pod("runs", index=1, deleted=1), ends=BAD)
    assert (status_plan.status.failed_indexes, listed(status_plan.status)[1]) == (
        "0",
        ["runs", "bad"],
    )


def test_a_failure_that_an_earlier_write_judged_is_not_judged_again() -> None:
    batch_job = job(podFailurePolicy=IGNORE_3)
    observation = replace(observed.observe(batch_job, [failed("a", 3)]), judged={"a"})
    status_plan = accounting.plan(
        observation, outcome=BAD, counts=accounting.Counts(0, 0, 0), now=at(0)
    )
    assert (status_plan.judged, released(status_plan)) == ((), ["a"])


def test_those_that_are_listed_need_no_room() -> None:
    """Else only one of them would go with each sync."""
    batch_job = job(status=uncounted(bad=("p0", "p1", "p2")))
    pods = [failed(f"p{number}") for number in range(5)]
    lists = plan(batch_job, *pods, ends=BAD, settings=AccountingSettings(most_uncounted=3))
    assert (released(lists), lists.cut) == (["p0", "p1", "p2"], True)
