# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy by exit codes: all actions, and what they are matched with."""

from refloat.api.meta import Object
from refloat.client import errors
from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    FOREVER,
    PATIENT,
    REACHED,
    ends,
    has,
    in_turn,
    let_end,
    on_condition,
    over,
    policy,
    rule,
    scenario,
    waits,
)
from tests.scenarios.stage import Stage

TWO = {"containers": [{"name": name, "image": "busybox:1"} for name in ("main", "other")]}
WITH_INIT = {"initContainers": [{"name": "init", "image": "busybox:1"}]}
WITH_SIDECAR = {
    "initContainers": [{"name": "side", "image": "busybox:1", "restartPolicy": "Always"}]
}


async def failed_by(stage: Stage, container: str, code: int, number: int, **counts: int) -> None:
    """The Job fails by this rule, for its oldest pod."""
    await stage.finished()
    oldest = next(iter(stage.pods.values()))["metadata"]["name"]
    said = (
        f"Container {container} for pod {stage.namespace}/{oldest} failed with exit code {code} "
        f"matching FailJob rule at index {number}"
    )
    await over(stage, "Failed", ("PodFailurePolicy", said), **counts)


@scenario
async def an_exit_code_fails_the_job(stage: Stage) -> None:
    """behaviour A15.4, A15.7; KEP-3329 story 1"""
    await stage.submit(
        podFailurePolicy=policy(rule("FailJob", 41, 42)), simulate={"main": ends(42)}
    )
    await failed_by(stage, "main", 42, 0, failed=1)
    assert len(stage.pods) == 1


@scenario
async def a_job_failed_by_a_rule_ends_all_its_pods(stage: Stage) -> None:
    """behaviour A4.12, A5.3"""
    await stage.submit(
        completions=3,
        parallelism=3,
        podFailurePolicy=policy(rule("FailJob", 42)),
        simulate={"main": [ends(42, seconds=3), FOREVER]},
    )
    await stage.finished()
    has(stage.status(), failed=3, active=0, terminating=0)
    assert len(stage.pods) == 3
    failure = stage.condition("Failed")
    assert failure is not None
    assert failure["reason"] == "PodFailurePolicy"


@scenario
async def a_code_outside_of_the_list_fails_the_job(stage: Stage) -> None:
    """behaviour A15.4; KEP-3329 story 1"""
    bug = rule("FailJob", 40, 41, 42, operator="NotIn")
    await stage.submit(backoffLimit=6, podFailurePolicy=policy(bug), simulate={"main": ends(1)})
    await failed_by(stage, "main", 1, 0, failed=1)


@scenario
async def a_code_inside_of_the_list_is_retried(stage: Stage) -> None:
    """behaviour A15.4, A15.6; KEP-3329 story 1"""
    bug = rule("FailJob", 40, 41, 42, operator="NotIn")
    await stage.submit(
        backoffLimit=6, podFailurePolicy=policy(bug), simulate={"main": in_turn(41, 0)}
    )
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)


@scenario
async def an_ignored_failure_does_not_count(stage: Stage) -> None:
    """behaviour A15.6, A11.3: it only delays"""
    await stage.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("Ignore", 5)), simulate={"main": in_turn(5, 0)}
    )
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    assert len(stage.pods) == 2


@scenario
async def a_counted_failure_counts(stage: Stage) -> None:
    """behaviour A15.6"""
    await stage.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("Count", 5)), simulate={"main": ends(5)}
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def the_first_matching_rule_decides(stage: Stage) -> None:
    """behaviour A15.2"""
    rules = policy(rule("FailJob", 1), rule("Ignore", 5), rule("FailJob", 5))
    await stage.submit(backoffLimit=0, podFailurePolicy=rules, simulate={"main": in_turn(5, 0)})
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)


@scenario
async def the_message_names_the_rule_that_matched(stage: Stage) -> None:
    """behaviour A15.7"""
    rules = policy(rule("Ignore", 1), rule("Count", 2), rule("FailJob", 5))
    await stage.submit(podFailurePolicy=rules, simulate={"main": ends(5)})
    await failed_by(stage, "main", 5, 2, failed=1)


@scenario
async def a_failure_that_no_rule_matches_counts(stage: Stage) -> None:
    """behaviour A15.6"""
    await stage.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("FailJob", 5)), simulate={"main": ends(6)}
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_policy_without_rules_changes_only_when_pods_are_replaced(stage: Stage) -> None:
    """behaviour B3.13, B1.4"""
    await stage.submit(backoffLimit=0, podFailurePolicy={"rules": []}, simulate={"main": ends(6)})
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)
    assert stage.jobs["job"]["spec"]["podReplacementPolicy"] == "Failed"


@scenario
async def a_rule_for_one_container_sees_that_container(stage: Stage) -> None:
    """behaviour A15.3"""
    rules = policy(rule("FailJob", 42, container="other"))
    await stage.submit(
        template=TWO, podFailurePolicy=rules, simulate={"main": ends(1), "other": ends(42)}
    )
    await failed_by(stage, "other", 42, 0, failed=1)


@scenario
async def a_rule_for_one_container_does_not_see_another(stage: Stage) -> None:
    """behaviour A15.3"""
    rules = policy(rule("FailJob", 42, container="main"))
    await stage.submit(
        template=TWO,
        backoffLimit=0,
        podFailurePolicy=rules,
        simulate={"main": ends(0), "other": ends(42)},
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def the_first_container_in_the_list_is_named(stage: Stage) -> None:
    """behaviour A15.3, A15.4"""
    rules = policy(rule("FailJob", 0, operator="NotIn"))
    await stage.submit(
        template=TWO,
        podFailurePolicy=rules,
        simulate={"main": ends(7, seconds=3), "other": ends(8)},
    )
    await failed_by(stage, "main", 7, 0, failed=1)


@scenario
async def a_container_that_ended_well_never_matches(stage: Stage) -> None:
    """behaviour A15.3: not even with NotIn"""
    rules = policy(rule("FailJob", 1, operator="NotIn"))
    await stage.submit(
        template=TWO,
        backoffLimit=0,
        podFailurePolicy=rules,
        simulate={"main": ends(0), "other": ends(1)},
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_rule_sees_init_containers(stage: Stage) -> None:
    """behaviour A15.3"""
    await stage.submit(
        template=WITH_INIT,
        podFailurePolicy=policy(rule("FailJob", 7)),
        simulate={"init": ends(7)},
    )
    await failed_by(stage, "init", 7, 0, failed=1)


@scenario
async def a_rule_can_be_for_an_init_container(stage: Stage) -> None:
    """behaviour A15.3, B3.16"""
    await stage.submit(
        template=WITH_INIT,
        backoffLimit=0,
        podFailurePolicy=policy(rule("FailJob", 7, container="init")),
        simulate={"init": ends(0), "main": ends(7)},
    )
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_rule_sees_sidecars(stage: Stage) -> None:
    """behaviour A15.3, D2.12: after the container that failed"""
    await stage.submit(
        template=WITH_SIDECAR,
        podFailurePolicy=policy(rule("FailJob", 9, container="side")),
        simulate={"main": ends(1, seconds=2), "side": {**FOREVER, "stopExitCode": 9}},
    )
    await failed_by(stage, "side", 9, 0, failed=1)


@scenario
async def a_killed_container_has_the_code_of_its_signal(stage: Stage) -> None:
    """behaviour D5.4"""
    await stage.submit(
        podFailurePolicy=policy(rule("FailJob", 137)),
        simulate={"main": ends(137, reason="OOMKilled")},
    )
    await failed_by(stage, "main", 137, 0, failed=1)


@scenario
async def a_policy_looks_at_a_pod_that_was_deleted_when_it_has_failed(stage: Stage) -> None:
    """behaviour A15.1, F.1: nobody wrote a condition, but it ended by SIGTERM"""
    await stage.submit(
        podFailurePolicy=policy(on_condition("Ignore"), rule("FailJob", 143)),
        template=PATIENT,
        simulate={"main": waits()},
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    has(stage.status(), failed=0, active=0)
    await let_end(stage, pod)
    await failed_by(stage, "main", 143, 1, failed=1)


def _job(podFailurePolicy: Object, **spec: object) -> Object:  # noqa: N803
    return {"podFailurePolicy": podFailurePolicy, **spec}


MISTAKES: list[Object] = [
    _job(policy(rule("Explode", 1))),
    _job(policy(rule("FailJob", 1, operator="Near"))),
    _job(policy({"action": "Ignore"})),
    _job(policy({**rule("Ignore", 1), **on_condition("Ignore")})),
    _job(policy(rule("FailIndex", 1))),
    _job(policy(rule("FailJob", 0))),
    _job(policy(rule("FailJob", 2, 1))),
    _job(policy(rule("FailJob"))),
    _job(policy(rule("FailJob", 1, container="nobody"))),
    _job(policy(on_condition("Ignore", status="Maybe"))),
    _job(policy(rule("FailJob", 1)), podReplacementPolicy="TerminatingOrFailed"),
    _job(policy(rule("FailJob", 1)), template={"restartPolicy": "OnFailure"}),
    _job(policy(*(rule("FailJob", 1) for _ in range(21)))),
]


@scenario
async def mistakes_in_a_policy_are_refused_in_the_same_words(stage: Stage) -> None:
    """behaviour B3.13-B3.19, B3.22"""
    for spec in MISTAKES:
        try:
            await stage.submit(**spec)
        except errors.Invalid as error:
            stage.note(str(error))
        else:
            raise AssertionError(f"accepted: {spec}")
    assert len(set(stage.notes)) == len(MISTAKES)
