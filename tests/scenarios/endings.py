# SPDX-License-Identifier: Apache-2.0
"""Deadlines, and the order in which a Job's end is reported."""

from refloat.scenario.namespace import ScenarioNamespace
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


@scenario
async def a_job_fails_at_its_deadline(ns: ScenarioNamespace) -> None:
    """behaviour A13.1"""
    await ns.submit(
        completions=2, parallelism=2, activeDeadlineSeconds=12, simulate={"main": FOREVER}
    )
    await over(ns, "Failed", DEADLINE, failed=2, succeeded=0, active=0)


@scenario
async def a_deadline_that_is_brought_forward_counts_from_the_start(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A13.2"""
    await ns.submit(activeDeadlineSeconds=600, simulate={"main": FOREVER})
    await ns.runs(1)
    await ns.change(activeDeadlineSeconds=1)
    await over(ns, "Failed", DEADLINE, failed=1)


@scenario
async def a_job_done_before_its_deadline_is_complete(ns: ScenarioNamespace) -> None:
    """behaviour A13.1"""
    await ns.submit(activeDeadlineSeconds=30)
    await over(ns, "Complete", REACHED, succeeded=1)


@scenario
async def a_deadline_ends_a_job_that_waits_for_a_retry(ns: ScenarioNamespace) -> None:
    """behaviour A13.2: the deadline wakes the Job before the ten seconds of back-off are over"""
    await ns.submit(activeDeadlineSeconds=9, simulate={"main": ends(1)})
    await over(ns, "Failed", DEADLINE, failed=1)
    assert len(ns.pods) == 1


@scenario
async def a_job_has_failed_only_when_its_pods_have_ended(ns: ScenarioNamespace) -> None:
    """behaviour A18.2, G9"""
    await ns.submit(activeDeadlineSeconds=6000, template=PATIENT, simulate={"main": waits()})
    (pod,) = await ns.runs(1)
    await ns.change(activeDeadlineSeconds=1)
    await ns.wait_until(lambda state: state.condition("FailureTarget"))
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    assert ns.condition("Failed") is None
    has(ns.status(), active=0, terminating=1)
    await let_end(ns, pod)
    await over(ns, "Failed", DEADLINE, failed=1, terminating=0)


@scenario
async def a_doomed_job_stays_doomed_though_a_pod_succeeds(ns: ScenarioNamespace) -> None:
    """behaviour A4.11, A5.5"""
    await ns.submit(
        completions=2,
        parallelism=2,
        backoffLimit=0,
        simulate={"main": [ends(1, seconds=2), stops(after=7, code=0)]},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=2, succeeded=0)


@scenario
async def a_limit_and_a_rule_at_once_are_the_rules(ns: ScenarioNamespace) -> None:
    """behaviour A4.11: the policy comes before the limit"""
    await ns.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("FailJob", 3)), simulate={"main": ends(3)}
    )
    await ns.finished()
    failure = ns.condition("Failed")
    assert failure is not None
    assert failure["reason"] == "PodFailurePolicy"
    has(ns.status(), failed=1)


@scenario
async def a_finished_job_is_not_started_again(ns: ScenarioNamespace) -> None:
    """behaviour A4.4"""
    await ns.submit(completions=1)
    await over(ns, "Complete", REACHED, succeeded=1)
    await ns.change(parallelism=3)
    (pod,) = ns.present
    await ns.delete_pod(pod)
    await ns.quiet()
    assert len(ns.pods) == 1
    has(ns.status(), succeeded=1, active=0)


@scenario
async def a_finished_job_is_deleted_after_its_time(ns: ScenarioNamespace) -> None:
    """behaviour A24.2, A24.3"""
    await ns.submit(ttlSecondsAfterFinished=int(MEANWHILE))
    await over(ns, "Complete", REACHED, succeeded=1)
    await ns.wait_until(lambda state: not state.jobs and not state.present)


@scenario
async def an_unfinished_job_is_not_deleted_after_any_time(ns: ScenarioNamespace) -> None:
    """behaviour A24.1"""
    await ns.submit(ttlSecondsAfterFinished=0, simulate={"main": FOREVER})
    await ns.runs(1)
    await ns.quiet()
    assert "deletionTimestamp" not in ns.jobs["job"]["metadata"]
