# SPDX-License-Identifier: Apache-2.0
"""Random Jobs: valid, repeatable, and such that every run of one ends alike."""

import itertools
from typing import Any

import pytest

from tests import builders
from tests.apiserver_fixture import ServerFixture
from tests.differential import plans
from tests.differential.plans import Plan

PLANS = [plans.plan(1, number) for number in range(200)]


def lives(plan: Plan) -> list[list[Any]]:
    """What pods do, by index or for all of them."""
    return [each if isinstance(each, list) else [each] for each in plan.simulate.values()]


async def test_every_plan_is_a_job_that_the_api_accepts(world: ServerFixture) -> None:
    for plan in PLANS:
        job = builders.job(plan.name.replace("_", "-"))
        pod = {**job["spec"]["template"]["spec"], "restartPolicy": "Never", **plan.template}
        pod["containers"] = [{"name": "main", "image": "i"}]
        job["spec"] = {**plan.spec, "template": {"spec": pod}}
        await world.create(job)


@pytest.mark.parametrize("number", [0, 1, 99])
def test_one_seed_and_number_make_one_plan(number: int) -> None:
    assert plans.plan(7, number).told() == plans.plan(7, number).told()
    assert plans.plan(7, number).told() != plans.plan(8, number).told()


def test_no_plan_has_more_failures_than_can_be_waited_for() -> None:
    for plan in PLANS:
        codes = [each.get("exitCode", 0) for life in lives(plan) for each in life]
        assert sum(code != 0 for code in codes) <= plans.MOST_FAILURES


def test_indexes_that_end_do_so_seconds_apart() -> None:
    for plan in PLANS:
        ends = {
            min(each["seconds"] for each in life if each["seconds"] is not None)
            for life in lives(plan)
            if any(each["seconds"] is not None for each in life)
        }
        gaps = [later - earlier for earlier, later in itertools.pairwise(sorted(ends))]
        assert all(gap >= plans.APART_SECONDS for gap in gaps)


def test_pods_that_fail_are_never_alike() -> None:
    for plan in PLANS:
        if not plan.is_indexed and plan.spec["parallelism"] > 1:
            assert plan.failures == 0


@pytest.mark.parametrize(
    "part",
    [
        *("podFailurePolicy", "podReplacementPolicy", "successPolicy", "backoffLimitPerIndex"),
        *("maxFailedIndexes", "suspend", "activeDeadlineSeconds"),
    ],
)
def test_some_plans_have_and_some_have_not(part: str) -> None:
    assert 4 < sum(part in plan.spec for plan in PLANS) < 196


VERBS = ("suspend", "resume", "parallelism", "scale", "delete", "force", "evict", "delete_job")


@pytest.mark.parametrize("verb", VERBS)
def test_users_do_all_that_they_can(verb: str) -> None:
    assert sum(act.verb == verb for plan in PLANS for act in plan.acts) > 4


def test_the_last_attempt_stands_for_all_that_follow() -> None:
    plan = Plan(1, simulate={"main": [{"seconds": 1}, {"seconds": None}], "main/1": {"seconds": 2}})
    assert [plan.attempt(None, number)["seconds"] for number in range(3)] == [1, None, None]
    assert plan.attempt(1, 5) == {"seconds": 2}
