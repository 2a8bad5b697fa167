# SPDX-License-Identifier: Apache-2.0
"""Is a Job over, and why (behaviour A4.11, A6, A12, A13, A17, A18)."""

from datetime import timedelta
from typing import Any

import msgspec

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import observed, outcome
from refloat.policy.job.outcome import JobEvent, Outcome
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


def recorded(kind: str, status: str = "True") -> Object:
    return {"conditions": [{"type": kind, "status": status, "reason": "Why", "message": "So."}]}


def decide(of: Job, *pods: Pod, now: float = 0) -> Outcome | None:
    return outcome.decide(observed.observe(of, pods), at(now))


FAIL_42 = policy(on_codes("FailJob", "In", 42))
IGNORE_1 = policy(on_codes("Ignore", "In", 1))
FAIL_INDEX_1 = policy(on_codes("FailIndex", "In", 1))

OVER_LIMIT = (False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
TOO_LATE = (False, "DeadlineExceeded", "Job was active longer than specified deadline")

DECISIONS: dict[str, Any] = {
    "a Job with a running pod goes on": (job(), [pod()], None),
    "a recorded success beats everything (A17.5)": (
        job(backoffLimit=0, status=recorded("SuccessCriteriaMet")),
        [failed()],
        (True, "Why", "So."),
    ),
    "a recorded failure stands with its reason (A4.11)": (
        job(backoffLimit=0, status=recorded("FailureTarget")),
        [failed()],
        (False, "Why", "So."),
    ),
    "a condition that is not True records nothing": (
        job(status=recorded("FailureTarget", "False")),
        [],
        None,
    ),
    "the pod failure policy comes before the limit (A4.11)": (
        job(backoffLimit=0, podFailurePolicy=FAIL_42),
        [failed(exit_code=42)],
        (
            False,
            "PodFailurePolicy",
            (
                "Container main for pod ns/pod-u failed with exit code 42 "
                "matching FailJob rule at index 0"
            ),
        ),
    ),
    "pods that were counted are judged too, if they are given (A15.8)": (
        job(podFailurePolicy=FAIL_42),
        [failed("a", exit_code=42, tracked=False)],
        (
            False,
            "PodFailurePolicy",
            (
                "Container main for pod ns/pod-a failed with exit code 42 "
                "matching FailJob rule at index 0"
            ),
        ),
    ),
    "a terminating pod is not judged (A15.1)": (
        job(podFailurePolicy=FAIL_42),
        [pod("a", containers=[container("main", 42)], deleted=0)],
        None,
    ),
    "one failure too many (A12.1, A12.3)": (
        job(backoffLimit=1, status={"failed": 1}),
        [failed()],
        OVER_LIMIT,
    ),
    "as many failures as the limit are borne (A12.1)": (
        job(backoffLimit=1, status={"failed": 1}),
        [],
        None,
    ),
    "listed failures count (A4.9)": (
        job(backoffLimit=1, status={"failed": 1, "uncountedTerminatedPods": {"failed": ["x"]}}),
        [],
        OVER_LIMIT,
    ),
    "ignored failures do not count (A4.9)": (
        job(backoffLimit=0, podFailurePolicy=IGNORE_1),
        [failed(exit_code=1)],
        None,
    ),
    "restarts count under OnFailure (A12.2)": (
        job(backoffLimit=2, restart_policy="OnFailure"),
        [pod(containers=[container("main", restarts=2)])],
        OVER_LIMIT,
    ),
    "restarts do not count under Never (A12.2)": (
        job(backoffLimit=2),
        [pod(containers=[container("main", restarts=2)])],
        None,
    ),
    "the deadline is over (A13.1)": (
        job(activeDeadlineSeconds=60, status={"startTime": text(-60)}),
        [pod()],
        TOO_LATE,
    ),
    "the deadline is not over yet (A13.1)": (
        job(activeDeadlineSeconds=60, status={"startTime": text(-59)}),
        [pod()],
        None,
    ),
    "a suspended Job has no deadline (A13.1)": (
        job(activeDeadlineSeconds=60, suspend=True, status={"startTime": text(-600)}),
        [],
        None,
    ),
    "the limit comes before the deadline (A4.11)": (
        job(backoffLimit=0, activeDeadlineSeconds=0),
        [failed()],
        OVER_LIMIT,
    ),
    "a deadline of 0 is over at the start": (job(activeDeadlineSeconds=0), [], TOO_LATE),
    "too many failed indexes (A12.10)": (
        indexed(5, backoffLimitPerIndex=0, maxFailedIndexes=1, status={"failedIndexes": "3"}),
        [failed(index=1)],
        (
            False,
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
    ),
    "as many failed indexes as allowed (A12.10)": (
        indexed(5, backoffLimitPerIndex=0, maxFailedIndexes=2, status={"failedIndexes": "3"}),
        [failed(index=1)],
        None,
    ),
    "all indexes are over, and one failed (A12.11)": (
        indexed(3, backoffLimitPerIndex=0, status={"completedIndexes": "0,1", "succeeded": 2}),
        [failed(index=2)],
        (False, "FailedIndexes", "Job has failed indexes"),
    ),
    "other indexes are not over (A12.11)": (
        indexed(3, backoffLimitPerIndex=0, status={"completedIndexes": "0", "succeeded": 1}),
        [failed(index=2)],
        None,
    ),
    "FailIndex fails an index at its first failure (A15.6)": (
        indexed(3, backoffLimitPerIndex=9, podFailurePolicy=FAIL_INDEX_1, maxFailedIndexes=0),
        [failed(index=2)],
        (
            False,
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        ),
    ),
    "the success policy is met (A17.3)": (
        indexed(3, successPolicy={"rules": [{"succeededCount": 2}, {"succeededIndexes": "1"}]}),
        [succeeded(index=1)],
        (True, "SuccessPolicy", "Matched rules at index 1"),
    ),
    "failure comes before the success policy (A17.5)": (
        indexed(3, backoffLimit=0, successPolicy={"rules": [{"succeededIndexes": "1"}]}),
        [succeeded("a", index=1), failed("b", index=2)],
        OVER_LIMIT,
    ),
    "completions are not decided before pods are managed (A4.11)": (
        indexed(2, status={"completedIndexes": "0,1", "succeeded": 2}),
        [],
        None,
    ),
}


@cases("of pods want", DECISIONS)
def test_why_a_job_is_over(of: Job, pods: list[Pod], want: tuple[bool, str, str] | None) -> None:
    end = decide(of, *pods)
    assert (end and (end.succeeded, end.reason, end.message)) == want


COMPLETED: dict[str, Any] = {
    "enough (A6.1)": (job(completions=2, status={"succeeded": 2}), [], 0, True),
    "enough, but one runs (A6.1)": (job(completions=2, status={"succeeded": 2}), [], 1, False),
    "too few (A6.1)": (job(completions=2, status={"succeeded": 1}), [], 0, False),
    "a new one (A4.9)": (job(completions=2, status={"succeeded": 1}), [succeeded()], 0, True),
    "one that was counted (A3.7)": (
        job(completions=2, status={"succeeded": 1}),
        [succeeded(tracked=False)],
        0,
        False,
    ),
    "a listed one (A4.9)": (
        job(
            completions=2,
            status={"succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["gone"]}},
        ),
        [],
        0,
        True,
    ),
    "nothing to do": (job(completions=0), [], 0, True),
    "work queue: the first (A6.2)": (job(parallelism=2), [succeeded()], 0, True),
    "work queue: failed (A6.2)": (job(parallelism=2), [succeeded("a"), failed("b")], 0, True),
    "work queue: no success (A6.2)": (job(parallelism=2), [failed()], 0, False),
    "all indexes (A7.1)": (
        indexed(2, status={"completedIndexes": "0", "succeeded": 1}),
        [succeeded("a", index=1)],
        0,
        True,
    ),
    "one index twice is one success (A7.1)": (
        indexed(2),
        [succeeded("a", index=1), succeeded("b", index=1)],
        0,
        False,
    ),
    "an index that the Job does not have is none (A7.4)": (
        indexed(2),
        [succeeded("a", index=1), succeeded("b", index=2)],
        0,
        False,
    ),
    "indexes that the Job no longer has are dropped (A7.5)": (
        indexed(2, status={"completedIndexes": "0-7", "succeeded": 8}),
        [],
        0,
        True,
    ),
}


@cases("of pods active want", COMPLETED)
def test_when_the_work_is_done(of: Job, pods: list[Pod], active: int, want: bool) -> None:
    end = outcome.completed(observed.observe(of, pods), active=active)
    assert (end is not None) is want
    if end is not None:
        assert end.succeeded
        assert end.reason == "CompletionsReached"
        assert end.message == "Reached expected number of succeeded pods"


def test_conditions_come_in_pairs() -> None:
    """Behaviour A18.1."""
    good, bad = Outcome(True, "", ""), Outcome(False, "", "")
    assert (good.interim, good.terminal) == ("SuccessCriteriaMet", "Complete")
    assert (bad.interim, bad.terminal) == ("FailureTarget", "Failed")


@cases(
    "of want",
    {
        "a new Job starts now": (job(), text(5)),
        "once": (job(status={"startTime": text(1)}), text(1)),
        "not while it is suspended (A14.3)": (job(suspend=True), None),
    },
)
def test_when_a_job_starts(of: Job, want: str | None) -> None:
    """Behaviour A4.10."""
    assert outcome.start_time(of, at(5)) == want


@cases(
    "of want",
    {
        "no deadline": (job(), None),
        "not started yet": (job(activeDeadlineSeconds=9), 9),
        "started": (job(activeDeadlineSeconds=9, status={"startTime": text(-3)}), 6),
        "suspended": (
            job(activeDeadlineSeconds=9, suspend=True, status={"startTime": text(-3)}),
            None,
        ),
        "more than Go can count": (job(activeDeadlineSeconds=2**63 - 1), -1),
    },
)
def test_how_long_a_job_may_run_still(of: Job, want: float | None) -> None:
    """Behaviour A13.2."""
    wait = outcome.deadline_remaining(of, at(0))
    assert wait == (None if want is None else timedelta(seconds=want))


@cases(
    "ended succeeded_pods want",
    {
        "complete": (
            Outcome(True, "CompletionsReached", "m"),
            2,
            [JobEvent("Normal", "Completed", "Job completed")],
        ),
        "complete, with one success too many (A6.3)": (
            Outcome(True, "CompletionsReached", "m"),
            3,
            [
                JobEvent(
                    "Warning",
                    "TooManySucceededPods",
                    "Too many succeeded pods running after completion count reached",
                ),
                JobEvent("Normal", "Completed", "Job completed"),
            ],
        ),
        "failed": (
            Outcome(False, "DeadlineExceeded", "m"),
            3,
            [JobEvent("Warning", "DeadlineExceeded", "m")],
        ),
    },
)
def test_what_is_told_at_the_end(ended: Outcome, succeeded_pods: int, want: list[JobEvent]) -> None:
    """Behaviour A22."""
    status = msgspec.convert({"succeeded": succeeded_pods}, JobStatus)
    assert outcome.announcements(job(completions=2), status, ended) == want
