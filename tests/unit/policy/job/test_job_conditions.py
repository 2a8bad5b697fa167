# SPDX-License-Identifier: Apache-2.0
"""How conditions of a Job are written (behaviour A18)."""

import pytest

from refloat.api.structs import Condition
from refloat.policy.job import job_conditions
from tests.unit.policy.builders import at, text

OTHER = Condition(type="Other", status="True")
OLD = job_conditions.new("Suspended", "JobSuspended", "Job suspended", now=at(0))


def test_a_new_condition_has_the_time_of_its_making_twice() -> None:
    """Behaviour A18.1."""
    assert OLD.status == "True"
    assert (OLD.last_probe_time, OLD.last_transition_time) == (text(0), text(0))


def test_a_condition_that_says_the_same_keeps_its_times() -> None:
    before = (OTHER, OLD)
    same = job_conditions.new("Suspended", "JobSuspended", "Job suspended", now=at(9))
    assert job_conditions.ensured(before, same) is before


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        ("False", "JobSuspended", "Job suspended"),
        ("True", "Else", "Job suspended"),
        ("True", "JobSuspended", "else"),
    ],
    ids=["status", "reason", "message"],
)
def test_one_that_says_something_else_is_replaced_in_its_place(
    status: str, reason: str, message: str
) -> None:
    """Behaviour A18.3."""
    new = job_conditions.new("Suspended", reason, message, now=at(9), status=status)
    assert job_conditions.ensured((OLD, OTHER), new) == (new, OTHER)


def test_one_that_is_not_there_is_added() -> None:
    assert job_conditions.ensured(None, OLD) == (OLD,)
    assert job_conditions.ensured((OTHER,), OLD) == (OTHER, OLD)


def test_one_that_is_not_there_is_not_denied() -> None:
    """Behaviour A14.4."""
    no = job_conditions.new("Suspended", "JobResumed", "Job resumed", now=at(0), status="False")
    assert job_conditions.ensured(None, no) is None


@pytest.mark.parametrize(
    ("kind", "status", "want"),
    [
        ("Complete", "True", True),
        ("Failed", "True", True),
        ("Complete", "False", False),
        ("FailureTarget", "True", False),
        ("SuccessCriteriaMet", "True", False),
    ],
)
def test_what_makes_a_job_finished(kind: str, status: str, want: bool) -> None:
    """Behaviour A4.4."""
    assert job_conditions.is_finished((Condition(type=kind, status=status),)) is want
