# SPDX-License-Identifier: Apache-2.0
"""Deadlines, and the order in which a Job's end is told."""

from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    DEADLINE,
    FOREVER,
    MEANWHILE,
    PATIENT,
    REACHED,
    ends,
    has,
    let_end,
    over,
    policy,
    rule,
    scenario,
    stops,
    waits,
)
from tests.scenarios.stage import Stage


@scenario
async def a_job_fails_at_its_deadline(stage: Stage) -> None:
    """behaviour A13.1"""
    await stage.submit(
        completions=2, parallelism=2, activeDeadlineSeconds=12, simulate={"main": FOREVER}
    )
    await over(stage, "Failed", DEADLINE, failed=2, succeeded=0, active=0)


@scenario
async def a_deadline_that_is_brought_forward_counts_from_the_start(stage: Stage) -> None:
    """behaviour A13.2"""
    await stage.submit(activeDeadlineSeconds=600, simulate={"main": FOREVER})
    await stage.runs(1)
    await stage.change(activeDeadlineSeconds=1)
    await over(stage, "Failed", DEADLINE, failed=1)


@scenario
async def a_job_done_before_its_deadline_is_complete(stage: Stage) -> None:
    """behaviour A13.1"""
    await stage.submit(activeDeadlineSeconds=30)
    await over(stage, "Complete", REACHED, succeeded=1)


@scenario
async def a_deadline_ends_a_job_that_waits_for_a_retry(stage: Stage) -> None:
    """behaviour A13.2: it wakes the Job by itself, before the ten seconds of back-off are over"""
    await stage.submit(activeDeadlineSeconds=9, simulate={"main": ends(1)})
    await over(stage, "Failed", DEADLINE, failed=1)
    assert len(stage.pods) == 1


@scenario
async def a_job_has_failed_only_when_its_pods_have_ended(stage: Stage) -> None:
    """behaviour A18.2, G9"""
    await stage.submit(activeDeadlineSeconds=6000, template=PATIENT, simulate={"main": waits()})
    (pod,) = await stage.runs(1)
    await stage.change(activeDeadlineSeconds=1)
    await stage.wait_until(lambda seen: seen.condition("FailureTarget"))
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    assert stage.condition("Failed") is None
    has(stage.status(), active=0, terminating=1)
    await let_end(stage, pod)
    await over(stage, "Failed", DEADLINE, failed=1, terminating=0)


@scenario
async def a_doomed_job_stays_doomed_though_a_pod_succeeds(stage: Stage) -> None:
    """behaviour A4.11, A5.5"""
    await stage.submit(
        completions=2,
        parallelism=2,
        backoffLimit=0,
        simulate={"main": [ends(1, seconds=2), stops(after=7, code=0)]},
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=2, succeeded=0)


@scenario
async def a_limit_and_a_rule_at_once_are_the_rules(stage: Stage) -> None:
    """behaviour A4.11: the policy comes before the limit"""
    await stage.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("FailJob", 3)), simulate={"main": ends(3)}
    )
    await stage.finished()
    failure = stage.condition("Failed")
    assert failure is not None
    assert failure["reason"] == "PodFailurePolicy"
    has(stage.status(), failed=1)


@scenario
async def a_finished_job_is_not_started_again(stage: Stage) -> None:
    """behaviour A4.4"""
    await stage.submit(completions=1)
    await over(stage, "Complete", REACHED, succeeded=1)
    await stage.change(parallelism=3)
    (pod,) = stage.present
    await stage.delete_pod(pod)
    await stage.quiet()
    assert len(stage.pods) == 1
    has(stage.status(), succeeded=1, active=0)


@scenario
async def a_finished_job_is_deleted_after_its_time(stage: Stage) -> None:
    """behaviour A24.2, A24.3"""
    await stage.submit(ttlSecondsAfterFinished=int(MEANWHILE))
    await over(stage, "Complete", REACHED, succeeded=1)
    await stage.wait_until(lambda seen: not seen.jobs and not seen.present)


@scenario
async def an_unfinished_job_is_not_deleted_after_any_time(stage: Stage) -> None:
    """behaviour A24.1"""
    await stage.submit(ttlSecondsAfterFinished=0, simulate={"main": FOREVER})
    await stage.runs(1)
    await stage.quiet()
    assert "deletionTimestamp" not in stage.jobs["job"]["metadata"]
