# SPDX-License-Identifier: Apache-2.0
"""Whose a Job is (behaviour A21.1)."""

import pytest

from refloat.controllers.job.settings import JobSettings
from tests.unit.policy import builders


@pytest.mark.parametrize(
    ("managed_by", "takes_default", "want"),
    [
        (None, True, True),
        ("kubernetes.io/job-controller", True, True),
        ("refloat.dev/job-controller", True, True),
        ("example.com/other", True, False),
        (None, False, False),
        ("kubernetes.io/job-controller", False, False),
        ("refloat.dev/job-controller", False, True),
        ("example.com/other", False, False),
    ],
)
def test_a_job_is_managed_by_whom_it_names(
    managed_by: str | None, *, takes_default: bool, want: bool
) -> None:
    job = builders.job() if managed_by is None else builders.job(managedBy=managed_by)
    assert JobSettings(takes_default=takes_default).manages(job) is want
