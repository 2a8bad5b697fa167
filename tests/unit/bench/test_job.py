# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `refloat bench job`; what it measures decides no test."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from refloat.api.batch import PodFailurePolicy
from refloat.api.core import Pod
from refloat.bench import job_load
from refloat.bench.job import JobSizes, quantile
from refloat.policy.job import pod_failure
from refloat.policy.job.pod_failure import COUNT
from tests.cases import cases


def exposed(*seconds: float) -> str:
    registry = CollectorRegistry()
    family = Histogram("sync", "", ("result",), buckets=(1, 2, 4), registry=registry)
    for number, each in enumerate(seconds):
        family.labels("success" if number % 2 else "error").observe(each)
    return generate_latest(registry).decode()


@cases(
    "seconds share want",
    {
        "half way through the only bucket that has any": ((1.5, 1.5), 0.5, 1.5),
        "the bound of a bucket, over all labels": ((0.5, 0.5, 0.5, 3.0), 0.75, 1.0),
        "the bound of the last one that has any": ((0.5, 0.5, 0.5, 3.0), 1.0, 4.0),
        "above all bounds it is the largest": ((9.0, 9.0), 0.99, 4.0),
    },
)
def test_a_quantile_lies_within_its_bucket(
    seconds: tuple[float, ...], share: float, want: float
) -> None:
    assert quantile(exposed(*seconds), "sync", share) == want


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing is counted in sync"):
        quantile(exposed(), "sync", 0.99)


def test_all_sizes_follow_from_that_of_the_largest_job() -> None:
    assert (JobSizes(20_000).main, JobSizes(20_000).failed, JobSizes(20_000).jobs) == (
        2_000,
        10_000,
        1_000,
    )
    assert (JobSizes(1).main, JobSizes(1).failed, JobSizes(1).jobs) == (1, 1, 1)


def test_a_failed_pod_is_held_against_all_rules_and_matches_the_last() -> None:
    policy = msgspec.convert(job_load.policy(), PodFailurePolicy)
    pod = msgspec.convert({"status": job_load.failed_status()}, Pod)
    verdict = pod_failure.matcher(policy).match(pod)
    assert len(policy.rules or ()) == 20
    assert (verdict.action, verdict.rule) == (COUNT, 19)
