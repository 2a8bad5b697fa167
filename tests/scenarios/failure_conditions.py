# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy by pod conditions: evictions, and conditions that a user writes."""

from refloat.api.meta import Object
from refloat.scenario.namespace import ScenarioNamespace
from tests.scenarios.scenario import (
    BACKOFF_LIMIT,
    FOREVER,
    MEANWHILE,
    PATIENT,
    REACHED,
    ends,
    has,
    let_end,
    on_condition,
    over,
    policy,
    rule,
    scenario,
    waits,
)

# Runs until the kubelet stops it; the next one succeeds.
DISRUPTED = [FOREVER, ends()]


async def evict_the_only_pod(ns: ScenarioNamespace) -> None:
    (pod,) = await ns.runs(1)
    await ns.evict(pod)


def disruption(pod: Object) -> Object:
    """The DisruptionTarget condition of a pod."""
    conditions = [
        each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"
    ]
    assert len(conditions) == 1
    return {key: conditions[0].get(key, "") for key in ("status", "reason", "message")}


def condition(kind: str, status: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


@scenario
async def a_disruption_that_is_ignored_does_not_count(ns: ScenarioNamespace) -> None:
    """behaviour A15.5, F, G3; KEP-3329 story 2"""
    await ns.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(ns)
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    first = next(iter(ns.pods.values()))
    assert disruption(first) == {
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


@scenario
async def a_disruption_that_is_counted_counts(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, G3; KEP-3329 story 3: before the rule for user errors"""
    await ns.submit(
        backoffLimit=3,
        podFailurePolicy=policy(on_condition("Count"), rule("FailJob", 0, operator="NotIn")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(ns)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)


@scenario
async def a_disruption_can_fail_the_job(ns: ScenarioNamespace) -> None:
    """behaviour A15.7"""
    await ns.submit(
        podFailurePolicy=policy(rule("Ignore", 1), on_condition("FailJob")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(ns)
    await ns.finished()
    (pod,) = ns.pods.values()
    message = (
        f"Pod {ns.name}/{pod['metadata']['name']} has condition DisruptionTarget "
        "matching FailJob rule at index 1"
    )
    await over(ns, "Failed", ("PodFailurePolicy", message), failed=1)


@scenario
async def a_disruption_can_fail_an_index(ns: ScenarioNamespace) -> None:
    """behaviour A15.6, A12.5"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=3,
        podFailurePolicy=policy(on_condition("FailIndex")),
        simulate={"main": FOREVER},
    )
    await ns.runs(2)
    await ns.evict(ns.pod(0))
    await ns.wait_until(lambda state: state.status().get("failedIndexes") == "0")
    await ns.quiet()
    has(ns.status(), failed=1, active=1, terminating=0)


@scenario
async def an_evicted_pod_is_judged_when_it_has_ended(ns: ScenarioNamespace) -> None:
    """behaviour A15.1, G3: not while the pod is terminating"""
    await ns.submit(
        podFailurePolicy=policy(on_condition("FailJob")),
        template=PATIENT,
        simulate={"main": waits()},
    )
    await evict_the_only_pod(ns)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    has(ns.status(), failed=0, active=0)
    assert ns.condition("FailureTarget") is None
    await let_end(ns, *ns.unfinished)
    await ns.finished()
    has(ns.status(), failed=1, terminating=0)


@scenario
async def an_exit_code_rule_before_the_disruption_decides(ns: ScenarioNamespace) -> None:
    """behaviour A15.2: an evicted pod ends by SIGTERM"""
    await ns.submit(
        podFailurePolicy=policy(rule("FailJob", 143), on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(ns)
    await ns.finished()
    failure = ns.condition("Failed")
    assert failure is not None
    assert failure["message"].endswith("with exit code 143 matching FailJob rule at index 0")


@scenario
async def a_pod_that_was_deleted_has_no_disruption(ns: ScenarioNamespace) -> None:
    """behaviour F.1"""
    await ns.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_condition_that_somebody_wrote_matches(ns: ScenarioNamespace) -> None:
    """behaviour A15.5; KEP-3329: any type of condition"""
    await ns.submit(
        podFailurePolicy=policy(on_condition("FailJob", "example.com/bad-config")),
        simulate={"main": ends(1, seconds=MEANWHILE)},
    )
    (pod,) = await ns.runs(1)
    await ns.patch_pod(pod, condition("example.com/bad-config", "True"), "status")
    await ns.finished()
    failure = ns.condition("Failed")
    assert failure is not None
    assert failure["message"] == (
        f"Pod {ns.name}/{pod['metadata']['name']} has condition example.com/bad-config "
        "matching FailJob rule at index 0"
    )


@scenario
async def a_condition_with_another_status_does_not_match(ns: ScenarioNamespace) -> None:
    """behaviour A15.5: a pattern without a status wants True"""
    await ns.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("FailJob", "example.com/bad-config")),
        simulate={"main": ends(1, seconds=MEANWHILE)},
    )
    (pod,) = await ns.runs(1)
    await ns.patch_pod(pod, condition("example.com/bad-config", "False"), "status")
    await over(ns, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_pattern_can_want_a_condition_to_be_false(ns: ScenarioNamespace) -> None:
    """behaviour A15.5"""
    await ns.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore", "example.com/healthy", "False")),
        simulate={"main": [ends(1, seconds=MEANWHILE), ends()]},
    )
    (pod,) = await ns.runs(1)
    await ns.patch_pod(pod, condition("example.com/healthy", "False"), "status")
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
