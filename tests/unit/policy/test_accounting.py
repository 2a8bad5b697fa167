# SPDX-License-Identifier: Apache-2.0
"""What is written, whose finalizers go, and in which order (behaviour A5)."""

from dataclasses import replace
from typing import Any

import pytest

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy import accounting, census, outcome
from refloat.policy.accounting import Counts, Plan, Settings
from refloat.policy.outcome import Outcome
from tests.unit.policy.made import (
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
from tests.unit.policy.syncs import sync

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
) -> Plan:
    seen = census.observe(of, pods, removing=removing)
    return accounting.plan(seen, outcome=ends, counts=counts, now=at(9), **more)


def listed(status: JobStatus) -> tuple[list[str], list[str]]:
    found = status.uncounted_terminated_pods
    assert found is not None
    return list(found.succeeded or ()), list(found.failed or ())


def released(found: Plan) -> list[str]:
    return [each.metadata.uid for each in found.removals]


def uncounted(*, good: tuple[str, ...] = (), bad: tuple[str, ...] = (), **more: Any) -> Object:
    return {"uncountedTerminatedPods": {"succeeded": list(good), "failed": list(bad)}, **more}


IGNORE_3 = policy(on_codes("Ignore", "In", 3))

# The Job, its pod, how the Job ends; then the lists of uncounted succeeded and
# failed pods, and whether the pod's finalizer goes.
FATES: list[Any] = [
    pytest.param(job(), succeeded(), None, (["u"], []), True, id="a success is listed (A5.3)"),
    pytest.param(job(), failed(), None, ([], ["u"]), True, id="a failure is listed (A5.3)"),
    pytest.param(job(), pod(), None, ([], []), False, id="a running pod is left alone (A5.2)"),
    pytest.param(
        job(), failed(tracked=False), None, ([], []), False, id="one without finalizer, too (A5.2)"
    ),
    pytest.param(
        job(podReplacementPolicy="TerminatingOrFailed"),
        pod(deleted=0),
        None,
        ([], ["u"]),
        True,
        id="a deleted pod is a failure under TerminatingOrFailed (A16.1)",
    ),
    pytest.param(
        job(podReplacementPolicy="Failed"),
        pod(deleted=0),
        None,
        ([], []),
        False,
        id="a deleted pod is waited for under Failed (A16.2)",
    ),
    pytest.param(
        job(podFailurePolicy=IGNORE_3),
        failed(exit_code=3),
        None,
        ([], []),
        True,
        id="an ignored failure is not listed, and goes (A5.4)",
    ),
    pytest.param(
        job(status=uncounted(bad=("u",))),
        failed(),
        None,
        ([], ["u"]),
        True,
        id="a listed pod is not listed again (A5.3)",
    ),
    pytest.param(
        job(status=uncounted(bad=("u",))),
        succeeded(deleted=0),
        None,
        ([], ["u"]),
        True,
        id="listed as failed it stays so, though it succeeded (A5.5)",
    ),
    pytest.param(
        job(status=uncounted(good=("u",))),
        succeeded(),
        None,
        (["u"], []),
        True,
        id="listed as succeeded it stays so",
    ),
    pytest.param(
        job(), pod(), BAD, ([], ["u"]), True, id="when the Job fails, running pods failed (A5.3)"
    ),
    pytest.param(
        job(), pod(), GOOD, ([], []), True, id="when it succeeds, they are not counted (A17.4)"
    ),
    pytest.param(
        job(), failed(), GOOD, ([], ["u"]), True, id="when it succeeds, failed ones are (A5.3)"
    ),
    pytest.param(
        job(podFailurePolicy=IGNORE_3),
        pod(containers=[container("main", 3)]),
        BAD,
        ([], []),
        True,
        id="when it fails, ignored ones are not counted either (A5.3)",
    ),
    pytest.param(
        job(deleted=True), pod(), None, ([], []), True, id="a deleted Job lets go of all (A20.1)"
    ),
    pytest.param(
        job(deleted=True), failed(), None, ([], ["u"]), True, id="and still counts failures"
    ),
    pytest.param(
        indexed(3), succeeded(index=1), None, ([], []), True, id="Indexed: no uid is listed (A5.3)"
    ),
    pytest.param(
        indexed(3), failed(index=1), None, ([], ["u"]), True, id="Indexed: a failure is listed"
    ),
    pytest.param(
        indexed(3), failed(index=7), None, ([], []), True, id="Indexed: no such index (A5.4)"
    ),
    pytest.param(indexed(3), failed(), None, ([], []), True, id="Indexed: no index (A5.4)"),
    pytest.param(
        indexed(3, backoffLimitPerIndex=2),
        failed(index=1, failures=0),
        None,
        ([], []),
        False,
        id="per index: the last failure stays until it is replaced (A12.9)",
    ),
    pytest.param(
        indexed(3, backoffLimitPerIndex=0),
        failed(index=1, failures=0),
        None,
        ([], ["u"]),
        True,
        id="per index: not when the index has failed (A12.9)",
    ),
    pytest.param(
        indexed(3, backoffLimitPerIndex=2),
        failed(index=1, failures=0),
        BAD,
        ([], ["u"]),
        True,
        id="per index: not when the Job is over (A5.2)",
    ),
]


@pytest.mark.parametrize(("of", "one", "ends", "want", "want_released"), FATES)
def test_what_becomes_of_a_pod(
    of: Job,
    one: Pod,
    ends: Outcome | None,
    want: tuple[list[str], list[str]],
    want_released: bool,
) -> None:
    found = plan(of, one, ends=ends)
    assert listed(found.status) == want
    assert released(found) == (["u"] if want_released else [])


def test_a_failure_is_counted_when_its_replacement_is_there() -> None:
    """Behaviour A12.9."""
    made = indexed(1, backoffLimitPerIndex=2)
    old, new = failed("old", index=0, failures=0), pod("new", index=0, failures=1)
    assert listed(plan(made, old).status) == ([], [])
    assert listed(plan(made, old, new).status) == ([], ["old"])


def test_of_two_failures_of_an_index_the_later_stays() -> None:
    made = indexed(1, backoffLimitPerIndex=5)
    older = failed("older", index=0, failures=0, ended=1)
    later = failed("later", index=0, failures=1, ended=2)
    assert released(plan(made, later, older)) == ["older"]
    assert released(plan(made, older, later)) == ["older"]


def test_pods_that_are_being_released_are_not_seen_again() -> None:
    """Behaviour A3.7, A10.4: the cache shows a finalizer that is gone."""
    found = plan(job(), failed("a"), removing=frozenset("a"))
    assert (listed(found.status), released(found)) == (([], []), [])


def test_what_was_judged_is_told_with_its_verdict() -> None:
    made = job(podFailurePolicy=IGNORE_3)
    found = plan(made, failed("a", exit_code=3), failed("b", exit_code=1), succeeded("c"))
    told = [(each.metadata.uid, verdict.action) for each, verdict in found.judged]
    assert told == [("a", "Ignore"), ("b", "")]


def test_what_was_listed_before_is_not_told_again() -> None:
    assert plan(job(status=uncounted(bad=("a",))), failed("a")).judged == ()


# -- counters ---------------------------------------------------------------------


def test_uids_without_finalizer_are_counted_first() -> None:
    """Behaviour A5.1: of pods that are gone, that lost it, and that are losing it."""
    status = uncounted(good=("gone",), bad=("lost", "losing", "has"), succeeded=1, failed=2)
    pods = [failed("lost", tracked=False), failed("losing"), failed("has")]
    found = plan(job(status=status), *pods, removing=frozenset(("losing",)))
    assert (found.status.succeeded, found.status.failed) == (2, 4)
    assert listed(found.status) == ([], ["has"])
    assert found.write


def test_counters_rise_only_when_finalizers_are_gone() -> None:
    """Behaviour A5.13."""
    found = plan(job(completions=5), succeeded("a"), failed("b"))
    assert (found.status.succeeded, found.status.failed) == (0, 0)
    settled = accounting.settle(found, ["a", "b"], at(9))
    assert (settled.status.succeeded, settled.status.failed) == (1, 1)
    assert listed(settled.status) == ([], [])


def test_a_finalizer_that_could_not_be_removed_keeps_its_pod_listed() -> None:
    """Behaviour A5.10."""
    found = plan(job(completions=5), succeeded("a"), failed("b"), ends=BAD)
    settled = accounting.settle(found, ["a"], at(9))
    assert (settled.status.succeeded, settled.status.failed) == (1, 0)
    assert listed(settled.status) == ([], ["b"])
    assert settled.write
    assert not settled.finished


def test_nothing_new_is_not_written() -> None:
    """Behaviour A4.14."""
    status = {"active": 1, "ready": 0, "terminating": 0, "startTime": text(0)}
    found = plan(job(status=status), pod(), counts=Counts(1, 0, 0))
    assert not found.write
    assert not accounting.settle(found, [], at(9)).write


@pytest.mark.parametrize(
    "counts", [Counts(2, 0, 0), Counts(1, 1, 0), Counts(1, 0, 1)], ids=["active", "ready", "term."]
)
def test_another_number_of_pods_is_written(counts: Counts) -> None:
    status = {"active": 1, "ready": 0, "terminating": 0, "startTime": text(0)}
    assert plan(job(status=status), pod(), counts=counts).write


def test_numbers_are_written_even_when_they_are_zero() -> None:
    """Behaviour A5.14."""
    found = plan(job(parallelism=0))
    status = found.status
    assert (status.active, status.ready, status.terminating) == (0, 0, 0)
    assert found.write


def test_a_sync_stops_at_so_many_pods() -> None:
    """Behaviour A1.6, and it does not finish the Job then (A5.11)."""
    pods = [failed(f"p{number}") for number in range(5)]
    found = plan(job(), *pods, ends=BAD, settings=Settings(most_uncounted=3))
    assert (released(found), found.cut) == (["p0", "p1", "p2"], True)
    assert not accounting.settle(found, released(found), at(9)).finished


def test_listed_pods_count_towards_so_many() -> None:
    made = job(status=uncounted(bad=("p4",)))
    pods = [failed(f"p{number}") for number in range(5)]
    found = plan(made, *pods, settings=Settings(most_uncounted=3))
    assert released(found) == ["p0", "p1"]


def test_indexes_count_towards_so_many() -> None:
    pods = [succeeded(f"p{number}", index=number) for number in (3, 0, 2, 1)]
    found = plan(indexed(9), *pods, settings=Settings(most_uncounted=2))
    assert (released(found), found.cut) == (["p0", "p1"], True)


def test_500_is_the_most() -> None:
    pods = [failed(f"p{number}") for number in range(501)]
    assert len(plan(job(backoffLimit=9999), *pods).removals) == 500


# -- indexes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "new", "want", "count"),
    [
        pytest.param("", [1], "1", 1, id="the first"),
        pytest.param("0,1", [2], "0-2", 3, id="three in a row"),
        pytest.param("0", [1], "0,1", 2, id="two in a row"),
        pytest.param("0-2,7", [5, 6], "0-2,5-7", 6, id="between others"),
        pytest.param("0-4", [3], "0-4", 5, id="one that was known"),
        pytest.param("0-20", [], "0-9", 10, id="beyond the last (A7.5)"),
        pytest.param("x,3,1-z,5", [], "3,5", 2, id="nonsense is dropped (A7.3)"),
    ],
)
def test_completed_indexes(before: str, new: list[int], want: str, count: int) -> None:
    """Behaviour A7.2, A7.4."""
    pods = [succeeded(f"p{index}", index=index) for index in new]
    status = plan(indexed(10, status={"completedIndexes": before}), *pods).status
    assert (status.completed_indexes, status.succeeded) == (want, count)


@pytest.mark.parametrize(
    ("spec", "before", "want"),
    [
        pytest.param({"backoffLimitPerIndex": 0}, None, "2", id="a first failure"),
        pytest.param({"backoffLimitPerIndex": 0}, "0", "0,2", id="another one (A12.6)"),
        pytest.param({"backoffLimitPerIndex": 1}, None, "", id="none, but it is limited (A5.6)"),
        pytest.param({}, None, None, id="not limited per index (A5.6)"),
    ],
)
def test_failed_indexes(spec: Object, before: str | None, want: str | None) -> None:
    made = indexed(5, status={"failedIndexes": before}, **spec)
    assert plan(made, failed(index=2, failures=0)).status.failed_indexes == want


def test_no_index_is_both_succeeded_and_failed() -> None:
    """The API refuses such a status (B6.5)."""
    made = indexed(3, backoffLimitPerIndex=0, status={"failedIndexes": "1"})
    pods = [succeeded("a", index=1), succeeded("b", index=2), failed("c", index=2, failures=0)]
    status = plan(made, *pods).status
    assert (status.completed_indexes, status.failed_indexes) == ("2", "1")


def test_an_index_is_not_completed_by_a_pod_that_is_listed_as_failed() -> None:
    """Behaviour A5.5: it would count as a failure and as a success."""
    made = indexed(3, status=uncounted(bad=("u",)))
    status = plan(made, succeeded(index=1, deleted=0)).status
    assert (status.completed_indexes, listed(status)) == ("", ([], ["u"]))


# -- conditions -------------------------------------------------------------------


def conditions(status: JobStatus) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in status.conditions or ()]


def test_the_interim_condition_is_in_the_first_write() -> None:
    """Behaviour A5.7, A18.2."""
    found = plan(job(), failed(), ends=BAD)
    assert conditions(found.status) == [("FailureTarget", "True", BAD.reason, BAD.message)]
    assert found.write


def test_the_terminal_condition_is_in_the_second() -> None:
    """Behaviour A5.11, A18.1."""
    found = plan(job(), failed(), ends=BAD)
    settled = accounting.settle(found, ["u"], at(11))
    assert conditions(settled.status) == [
        ("FailureTarget", "True", BAD.reason, BAD.message),
        ("Failed", "True", BAD.reason, BAD.message),
    ]
    assert settled.finished
    last = (settled.status.conditions or ())[-1]
    assert (last.last_probe_time, last.last_transition_time) == (text(11), text(11))


@pytest.mark.parametrize(("ends", "want"), [(GOOD, text(11)), (BAD, None)])
def test_only_a_complete_job_has_a_completion_time(ends: Outcome, want: str | None) -> None:
    """Behaviour A19.1."""
    settled = accounting.settle(plan(job(), ends=ends), [], at(11))
    assert settled.status.completion_time == want


def test_a_job_is_not_finished_while_pods_terminate() -> None:
    """Behaviour A5.11, H13."""
    found = plan(job(), pod(), ends=BAD, counts=Counts(0, 0, 1))
    settled = accounting.settle(found, ["u"], at(9))
    assert not settled.finished
    assert [each[0] for each in conditions(settled.status)] == ["FailureTarget"]


def test_what_was_recorded_is_not_recorded_again() -> None:
    condition = {"type": "FailureTarget", "status": "True", "reason": "Why", "message": "So."}
    made = job(status={"conditions": [condition]})
    ends = outcome.decide(census.observe(made, []), at(9))
    settled = accounting.settle(plan(made, ends=ends), [], at(9))
    assert conditions(settled.status) == [
        ("FailureTarget", "True", "Why", "So."),
        ("Failed", "True", "Why", "So."),
    ]


SUSPENDED = {"type": "Suspended", "status": "True", "reason": "JobSuspended"}
RESUMED = {"type": "Suspended", "status": "False", "reason": "JobResumed"}

SUSPENSION: list[Any] = [
    pytest.param(
        True,
        [],
        ("Suspended", "True", "JobSuspended", "Job suspended"),
        None,
        id="suspended (A14.2)",
    ),
    pytest.param(
        True,
        [{**RESUMED, "message": "Job resumed"}],
        ("Suspended", "True", "JobSuspended", "Job suspended"),
        None,
        id="suspended again",
    ),
    pytest.param(
        True,
        [{**SUSPENDED, "message": "Job suspended"}],
        ("Suspended", "True", "JobSuspended", "Job suspended"),
        text(1),
        id="suspended still",
    ),
    pytest.param(
        False,
        [{**SUSPENDED, "message": "Job suspended"}],
        ("Suspended", "False", "JobResumed", "Job resumed"),
        text(9),
        id="resumed (A14.4)",
    ),
    pytest.param(False, [], None, text(1), id="never suspended (A14.4)"),
]


@pytest.mark.parametrize(("suspend", "before", "want", "want_start"), SUSPENSION)
def test_suspension_is_a_condition(
    suspend: bool,
    before: list[Object],
    want: tuple[str, str, str, str] | None,
    want_start: str | None,
) -> None:
    made = job(suspend=suspend, status={"conditions": before, "startTime": text(1)})
    status = plan(made).status
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
    made = job(activeDeadlineSeconds=5, status={"startTime": text(0), "active": 1})
    done = sync(made, [pod()], at(5))
    assert (done.deleted, done.released) == (["pod-u"], ["pod-u"])
    status = done.status
    assert (status.failed, status.active, status.terminating) == (1, 0, 1)
    assert not done.finished


def test_stragglers_of_a_success_policy_are_not_counted() -> None:
    """Behaviour G11."""
    made = indexed(2, successPolicy={"rules": [{"succeededIndexes": "0"}]})
    done = sync(made, [succeeded("a", index=0), pod("b", index=1)], at(5))
    assert (done.deleted, done.status.failed, done.status.succeeded) == (["pod-b"], 0, 1)
    assert not done.finished


def test_suspending_a_job_counts_nothing() -> None:
    """Behaviour G8."""
    made = job(suspend=True, status={"active": 1, "startTime": text(0)})
    done = sync(made, [pod()], at(5))
    status = done.status
    assert (status.active, status.terminating, status.failed) == (0, 1, 0)
    assert (done.deleted, done.released) == (["pod-u"], ["pod-u"])


def test_a_suspended_job_can_complete() -> None:
    """Behaviour A14.6."""
    done = sync(job(suspend=True, completions=0), [], at(5))
    assert done.finished
    assert [each[0] for each in conditions(done.status)] == ["SuccessCriteriaMet", "Complete"]


@pytest.mark.parametrize(
    ("spec", "pods", "want"),
    [
        pytest.param({"completions": 1}, [succeeded()], text(7), id="its last pod succeeded"),
        pytest.param({"backoffLimit": 0}, [failed()], text(7), id="its last pod failed"),
        pytest.param({"completions": 0}, [], None, id="there was nothing to do"),
    ],
)
def test_a_suspended_job_that_ends_has_a_start(
    spec: Object, pods: list[Pod], want: str | None
) -> None:
    """Behaviour A14.6, B6.5: Kubernetes is refused by its own API until the Job is resumed."""
    suspended = {"type": "Suspended", "status": "True", "reason": "r", "message": "m"}
    made = job(suspend=True, status={"conditions": [suspended]}, **spec)
    done = sync(made, pods, at(7))
    assert done.finished
    assert done.status.start_time == want


# -- what is written with a decision, before pods are deleted ------------------------


def test_when_a_job_fails_each_pod_that_runs_is_listed_as_a_failure() -> None:
    made = job(podReplacementPolicy="Failed")
    pods = [succeeded("good", deleted=1), failed("bad", deleted=1), pod("ending", deleted=1)]
    found = plan(made, *pods, succeeded("plain"), pod("runs"), ends=BAD)
    assert listed(found.status) == (["good", "plain"], ["bad", "ending", "runs"])
    assert [each[0] for each in conditions(found.status)] == ["FailureTarget"]


def test_when_a_job_succeeds_no_pod_that_runs_is_listed() -> None:
    made = indexed(4, podReplacementPolicy="Failed")
    pods = [succeeded("good", index=0), failed("bad", index=1, deleted=1), pod("runs", index=2)]
    found = plan(made, *pods, pod("ending", index=3, deleted=1), ends=GOOD)
    assert listed(found.status) == ([], ["bad"])
    assert (found.status.completed_indexes, found.status.failed) == ("0", 0)
    assert [each[0] for each in conditions(found.status)] == ["SuccessCriteriaMet"]


def test_one_that_is_kept_for_its_index_is_listed_when_the_job_ends() -> None:
    made = indexed(2, backoffLimitPerIndex=3)
    pods = [failed("kept", index=0, deleted=1), succeeded("good", index=1, deleted=1)]
    found = plan(made, *pods, ends=BAD)
    assert listed(found.status) == ([], ["kept"])
    assert (found.status.completed_indexes, found.status.succeeded) == ("1", 1)


def test_a_pod_that_was_listed_while_it_ran_fails_no_index_when_it_is_deleted() -> None:
    """The successor of a controller that died finds it deleted, and not waited for."""
    made = indexed(2, backoffLimitPerIndex=0, status=uncounted(bad=("runs",)))
    found = plan(made, failed("bad", index=0), pod("runs", index=1, deleted=1), ends=BAD)
    assert (found.status.failed_indexes, listed(found.status)[1]) == ("0", ["runs", "bad"])


def test_a_failure_that_an_earlier_write_judged_is_not_judged_again() -> None:
    made = job(podFailurePolicy=IGNORE_3)
    seen = replace(census.observe(made, [failed("a", 3)]), judged={"a"})
    found = accounting.plan(seen, outcome=BAD, counts=accounting.Counts(0, 0, 0), now=at(0))
    assert (found.judged, released(found)) == ((), ["a"])


def test_those_that_are_listed_need_no_room() -> None:
    """Else only one of them would go with each sync."""
    made = job(status=uncounted(bad=("p0", "p1", "p2")))
    pods = [failed(f"p{number}") for number in range(5)]
    found = plan(made, *pods, ends=BAD, settings=Settings(most_uncounted=3))
    assert (released(found), found.cut) == (["p0", "p1", "p2"], True)
