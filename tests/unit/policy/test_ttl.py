# SPDX-License-Identifier: Apache-2.0
"""ttlSecondsAfterFinished (behaviour A24)."""

from datetime import timedelta
from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.policy import ttl
from tests.unit.policy import made

COMPLETE, FAILED = made.condition("Complete", since=10), made.condition("Failed", since=10)


@pytest.mark.parametrize(
    ("conditions", "spec", "want"),
    [
        pytest.param([COMPLETE], {"ttlSecondsAfterFinished": 5}, True, id="complete"),
        pytest.param([FAILED], {"ttlSecondsAfterFinished": 5}, True, id="failed"),
        pytest.param([COMPLETE], {"ttlSecondsAfterFinished": 0}, True, id="no time at all"),
        pytest.param([COMPLETE], {}, False, id="no time is said"),
        pytest.param([], {"ttlSecondsAfterFinished": 0}, False, id="runs"),
        pytest.param(
            [made.condition("SuccessCriteriaMet"), made.condition("FailureTarget")],
            {"ttlSecondsAfterFinished": 0},
            False,
            id="will be over soon",
        ),
        pytest.param(
            [made.condition("Complete", "False"), FAILED],
            {"ttlSecondsAfterFinished": 0},
            True,
            id="a condition that is False does not hide the other",
        ),
        pytest.param(
            [made.condition("Failed", "Unknown")],
            {"ttlSecondsAfterFinished": 0},
            False,
            id="not known",
        ),
    ],
)
def test_it_applies_to_jobs_that_are_over(
    conditions: list[Object], spec: dict[str, Any], want: bool
) -> None:
    assert ttl.applies(made.job(status={"conditions": conditions}, **spec)) is want


def test_it_does_not_apply_to_a_job_that_is_deleted() -> None:
    job = made.job(status={"conditions": [COMPLETE]}, deleted=True, ttlSecondsAfterFinished=5)
    assert not ttl.applies(job)


@pytest.mark.parametrize(
    ("seconds", "now", "want"),
    [
        pytest.param(60, 10, 60, id="just ended"),
        pytest.param(60, 69.25, 0.75, id="to the fraction of a second"),
        pytest.param(60, 70, 0, id="now"),
        pytest.param(60, 100, -30, id="long ago"),
        pytest.param(0, 10, 0, id="at once"),
        pytest.param(60, 3, 67, id="ended in the future (A24.4)"),
        pytest.param(2**31 - 1, 10, 2**31 - 1, id="as long as can be"),
    ],
)
def test_time_runs_from_the_end_of_the_job(seconds: int, now: float, want: float) -> None:
    job = made.job(status={"conditions": [COMPLETE]}, ttlSecondsAfterFinished=seconds)
    finished = ttl.finished_at(job)
    assert finished == made.at(10)
    assert ttl.remaining(job, finished, made.at(now)) == timedelta(seconds=want)


def test_an_end_in_the_last_year_there_is_needs_no_later_one() -> None:
    last = {"type": "Failed", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}
    job = made.job(status={"conditions": [last]}, ttlSecondsAfterFinished=2**31 - 1)
    finished = ttl.finished_at(job)
    assert finished is not None
    assert ttl.remaining(job, finished, made.at(0)) > timedelta(days=365 * 8000)


def test_without_a_time_nobody_knows_when_it_ended() -> None:
    job = made.job(status={"conditions": [made.condition("Complete")]}, ttlSecondsAfterFinished=5)
    assert ttl.applies(job)
    assert ttl.finished_at(job) is None
