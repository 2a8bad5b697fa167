# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy by exit codes: all actions, and what they are matched with."""

from refloat.api.meta import Object
from refloat.client import errors
from refloat.scenario.namespace import ScenarioNamespace
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

TWO = {"containers": [{"name": name, "image": "busybox:1"} for name in ("main", "other")]}
WITH_INIT = {"initContainers": [{"name": "init", "image": "busybox:1"}]}
WITH_SIDECAR = {
    "initContainers": [{"name": "side", "image": "busybox:1", "restartPolicy": "Always"}]
}


async def failed_by(
    ns: ScenarioNamespace, container: str, code: int, number: int, **counts: int
) -> None:
    """The Job fails by this rule, for its oldest pod."""
    await ns.finished()
    oldest = next(iter(ns.pods.values()))["metadata"]["name"]
    message = (
        f"Container {container} for pod {ns.name}/{oldest} failed with exit code {code} "
        f"matching FailJob rule at index {number}"
    )
    await over(ns, "Failed", ("PodFailurePolicy", message), **counts)


@scenario
async def an_exit_code_fails_the_job(ns: ScenarioNamespace) -> None:
    """behaviour A15.4, A15.7; KEP-3329 story 1"""
    await ns.submit(podFailurePolicy=policy(rule("FailJob", 41, 42)), simulate={"main": ends(42)})
    await failed_by(ns, "main", 42, 0, failed=1)
    assert len(ns.pods) == 1


@scenario
async def a_job_failed_by_a_rule_ends_all_its_pods(ns: ScenarioNamespace) -> None:
    """behaviour A4.12, A5.3"""
    await ns.submit(
        completions=3,
        parallelism=3,
        podFailurePolicy=policy(rule("FailJob", 42)),
        simulate={"main": [ends(42, seconds=3), FOREVER]},
    )
    await ns.finished()
    has(ns.status(), failed=3, active=0, terminating=0)
    assert len(ns.pods) == 3
    failure = ns.condition("Failed")
    assert failure is not None
    assert failure["reason"] == "PodFailurePolicy"


@scenario
async def a_code_outside_of_the_list_fails_the_job(ns: ScenarioNamespace) -> None:
    """behaviour A15.4; KEP-3329 story 1"""
    bug = rule("FailJob", 40, 41, 42, operator="NotIn")
    await ns.submit(backoffLimit=6, podFailurePolicy=policy(bug), simulate={"main": ends(1)})
    await failed_by(ns, "main", 1, 0, failed=1)


@scenario
async def a_code_inside_of_the_list_is_retried(ns: ScenarioNamespace) -> None:
    """behaviour A15.4, A15.6; KEP-3329 story 1"""
    bug = rule("FailJob", 40, 41, 42, operator="NotIn")
    await ns.submit(backoffLimit=6, podFailurePolicy=policy(bug), simulate={"main": in_turn(41, 0)})
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)


@scenario
async def an_ignored_failure_does_not_count(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, A11.3: the rule only delays"""
    await ns.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("Ignore", 5)), simulate={"main": in_turn(5, 0)}
    )
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    assert len(ns.pods) == 2


@scenario
async def a_counted_failure_counts(ns: ScenarioNamespace) -> None:
    """behaviour A15.6"""
    await ns.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("Count", 5)), simulate={"main": ends(5)}
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def the_first_matching_rule_decides(ns: ScenarioNamespace) -> None:
    """behaviour A15.2"""
    rules = policy(rule("FailJob", 1), rule("Ignore", 5), rule("FailJob", 5))
    await ns.submit(backoffLimit=0, podFailurePolicy=rules, simulate={"main": in_turn(5, 0)})
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)


@scenario
async def the_message_names_the_rule_that_matched(ns: ScenarioNamespace) -> None:
    """behaviour A15.7"""
    rules = policy(rule("Ignore", 1), rule("Count", 2), rule("FailJob", 5))
    await ns.submit(podFailurePolicy=rules, simulate={"main": ends(5)})
    await failed_by(ns, "main", 5, 2, failed=1)


@scenario
async def a_failure_that_no_rule_matches_counts(ns: ScenarioNamespace) -> None:
    """behaviour A15.6"""
    await ns.submit(
        backoffLimit=0, podFailurePolicy=policy(rule("FailJob", 5)), simulate={"main": ends(6)}
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_policy_without_rules_changes_only_when_pods_are_replaced(
    ns: ScenarioNamespace,
) -> None:
    """behaviour B3.13, B1.4"""
    await ns.submit(backoffLimit=0, podFailurePolicy={"rules": []}, simulate={"main": ends(6)})
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)
    assert ns.jobs["job"]["spec"]["podReplacementPolicy"] == "Failed"


@scenario
async def a_rule_for_one_container_sees_that_container(ns: ScenarioNamespace) -> None:
    """behaviour A15.3"""
    rules = policy(rule("FailJob", 42, container="other"))
    await ns.submit(
        template=TWO, podFailurePolicy=rules, simulate={"main": ends(1), "other": ends(42)}
    )
    await failed_by(ns, "other", 42, 0, failed=1)


@scenario
async def a_rule_for_one_container_does_not_see_another(ns: ScenarioNamespace) -> None:
    """behaviour A15.3"""
    rules = policy(rule("FailJob", 42, container="main"))
    await ns.submit(
        template=TWO,
        backoffLimit=0,
        podFailurePolicy=rules,
        simulate={"main": ends(0), "other": ends(42)},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def the_first_container_in_the_list_is_named(ns: ScenarioNamespace) -> None:
    """behaviour A15.3, A15.4"""
    rules = policy(rule("FailJob", 0, operator="NotIn"))
    await ns.submit(
        template=TWO,
        podFailurePolicy=rules,
        simulate={"main": ends(7, seconds=3), "other": ends(8)},
    )
    await failed_by(ns, "main", 7, 0, failed=1)


@scenario
async def a_container_that_ended_well_never_matches(ns: ScenarioNamespace) -> None:
    """behaviour A15.3: not even with NotIn"""
    rules = policy(rule("FailJob", 1, operator="NotIn"))
    await ns.submit(
        template=TWO,
        backoffLimit=0,
        podFailurePolicy=rules,
        simulate={"main": ends(0), "other": ends(1)},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_rule_sees_init_containers(ns: ScenarioNamespace) -> None:
    """behaviour A15.3"""
    await ns.submit(
        template=WITH_INIT,
        podFailurePolicy=policy(rule("FailJob", 7)),
        simulate={"init": ends(7)},
    )
    await failed_by(ns, "init", 7, 0, failed=1)


@scenario
async def a_rule_can_be_for_an_init_container(ns: ScenarioNamespace) -> None:
    """behaviour A15.3, B3.16"""
    await ns.submit(
        template=WITH_INIT,
        backoffLimit=0,
        podFailurePolicy=policy(rule("FailJob", 7, container="init")),
        simulate={"init": ends(0), "main": ends(7)},
    )
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_rule_sees_sidecars(ns: ScenarioNamespace) -> None:
    """behaviour A15.3, D2.12: after the container that failed"""
    await ns.submit(
        template=WITH_SIDECAR,
        podFailurePolicy=policy(rule("FailJob", 9, container="side")),
        simulate={"main": ends(1, seconds=2), "side": {**FOREVER, "stopExitCode": 9}},
    )
    await failed_by(ns, "side", 9, 0, failed=1)


@scenario
async def a_killed_container_has_the_code_of_its_signal(ns: ScenarioNamespace) -> None:
    """behaviour D5.4"""
    await ns.submit(
        podFailurePolicy=policy(rule("FailJob", 137)),
        simulate={"main": ends(137, reason="OOMKilled")},
    )
    await failed_by(ns, "main", 137, 0, failed=1)


@scenario
async def a_policy_looks_at_a_pod_that_was_deleted_when_it_has_failed(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A15.1, F.1: the pod has no condition, but ended by SIGTERM"""
    await ns.submit(
        podFailurePolicy=policy(on_condition("Ignore"), rule("FailJob", 143)),
        template=PATIENT,
        simulate={"main": waits()},
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    has(ns.status(), failed=0, active=0)
    await let_end(ns, pod)
    await failed_by(ns, "main", 143, 1, failed=1)


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
async def mistakes_in_a_policy_are_refused_in_the_same_words(ns: ScenarioNamespace) -> None:
    """behaviour B3.13-B3.19, B3.22"""
    for spec in MISTAKES:
        try:
            await ns.submit(**spec)
        except errors.Invalid as error:
            ns.notes.append(str(error))
        else:
            raise AssertionError(f"accepted: {spec}")
    assert len(set(ns.notes)) == len(MISTAKES)
