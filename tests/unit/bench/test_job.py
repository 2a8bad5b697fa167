# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of `refloat bench job`; what it measures decides no test."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from refloat.api.batch import PodFailurePolicy
from refloat.api.core import Pod
from refloat.bench import jobs
from refloat.bench.job import Sizes, quantile
from refloat.policy.pod_failure import COUNT, Judge


def exposed(*seconds: float) -> str:
    registry = CollectorRegistry()
    family = Histogram("sync", "", ("result",), buckets=(1, 2, 4), registry=registry)
    for number, each in enumerate(seconds):
        family.labels("success" if number % 2 else "error").observe(each)
    return generate_latest(registry).decode()


@pytest.mark.parametrize(
    ("seconds", "share", "want"),
    [
        pytest.param((1.5, 1.5), 0.5, 1.5, id="half way through the only bucket that has any"),
        pytest.param((0.5, 0.5, 0.5, 3.0), 0.75, 1.0, id="the bound of a bucket, over all labels"),
        pytest.param((0.5, 0.5, 0.5, 3.0), 1.0, 4.0, id="the bound of the last one that has any"),
        pytest.param((9.0, 9.0), 0.99, 4.0, id="above all bounds it is the largest"),
    ],
)
def test_a_quantile_lies_within_its_bucket(
    seconds: tuple[float, ...], share: float, want: float
) -> None:
    assert quantile(exposed(*seconds), "sync", share) == want


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="nothing is counted in sync"):
        quantile(exposed(), "sync", 0.99)


def test_all_sizes_follow_from_that_of_the_largest_job() -> None:
    assert (Sizes(20_000).main, Sizes(20_000).failed, Sizes(20_000).jobs) == (2_000, 10_000, 1_000)
    assert (Sizes(1).main, Sizes(1).failed, Sizes(1).jobs) == (1, 1, 1)


def test_a_failed_pod_is_held_against_all_rules_and_matches_the_last() -> None:
    policy = msgspec.convert(jobs.policy(), PodFailurePolicy)
    pod = msgspec.convert({"status": jobs.failed_status()}, Pod)
    verdict = Judge(policy).judge(pod)
    assert len(policy.rules or ()) == 20
    assert (verdict.action, verdict.rule) == (COUNT, 19)
