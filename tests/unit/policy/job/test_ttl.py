# SPDX-License-Identifier: Apache-2.0
"""ttlSecondsAfterFinished (behaviour A24)."""

from datetime import timedelta
from typing import Any

from refloat.api.meta import Object
from refloat.policy.job import ttl
from tests.cases import cases
from tests.unit.policy import builders

COMPLETE, FAILED = builders.condition("Complete", since=10), builders.condition("Failed", since=10)


@cases(
    "conditions spec want",
    {
        "complete": ([COMPLETE], {"ttlSecondsAfterFinished": 5}, True),
        "failed": ([FAILED], {"ttlSecondsAfterFinished": 5}, True),
        "no time at all": ([COMPLETE], {"ttlSecondsAfterFinished": 0}, True),
        "no time is said": ([COMPLETE], {}, False),
        "runs": ([], {"ttlSecondsAfterFinished": 0}, False),
        "will be over soon": (
            [builders.condition("SuccessCriteriaMet"), builders.condition("FailureTarget")],
            {"ttlSecondsAfterFinished": 0},
            False,
        ),
        "a condition that is False does not hide the other": (
            [builders.condition("Complete", "False"), FAILED],
            {"ttlSecondsAfterFinished": 0},
            True,
        ),
        "not known": (
            [builders.condition("Failed", "Unknown")],
            {"ttlSecondsAfterFinished": 0},
            False,
        ),
    },
)
def test_it_applies_to_jobs_that_are_over(
    conditions: list[Object], spec: dict[str, Any], want: bool
) -> None:
    assert ttl.applies(builders.job(status={"conditions": conditions}, **spec)) is want


def test_it_does_not_apply_to_a_job_that_is_deleted() -> None:
    job = builders.job(status={"conditions": [COMPLETE]}, deleted=True, ttlSecondsAfterFinished=5)
    assert not ttl.applies(job)


@cases(
    "seconds now want",
    {
        "just ended": (60, 10, 60),
        "to the fraction of a second": (60, 69.25, 0.75),
        "now": (60, 70, 0),
        "long ago": (60, 100, -30),
        "at once": (0, 10, 0),
        "ended in the future (A24.4)": (60, 3, 67),
        "as long as can be": (2**31 - 1, 10, 2**31 - 1),
    },
)
def test_time_runs_from_the_end_of_the_job(seconds: int, now: float, want: float) -> None:
    job = builders.job(status={"conditions": [COMPLETE]}, ttlSecondsAfterFinished=seconds)
    finished = ttl.finished_at(job)
    assert finished == builders.at(10)
    assert ttl.remaining(job, finished, builders.at(now)) == timedelta(seconds=want)


def test_an_end_in_the_last_year_there_is_needs_no_later_one() -> None:
    last = {"type": "Failed", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}
    job = builders.job(status={"conditions": [last]}, ttlSecondsAfterFinished=2**31 - 1)
    finished = ttl.finished_at(job)
    assert finished is not None
    assert ttl.remaining(job, finished, builders.at(0)) > timedelta(days=365 * 8000)


def test_without_a_time_nobody_knows_when_it_ended() -> None:
    job = builders.job(
        status={"conditions": [builders.condition("Complete")]}, ttlSecondsAfterFinished=5
    )
    assert ttl.applies(job)
    assert ttl.finished_at(job) is None
