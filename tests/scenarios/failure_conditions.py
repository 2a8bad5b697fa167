# SPDX-License-Identifier: Apache-2.0
"""podFailurePolicy by pod conditions: evictions, and conditions that somebody writes."""

from refloat.api.meta import Object
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
from tests.scenarios.stage import Stage

# Runs until it is asked to end; the next one goes well.
DISRUPTED = [FOREVER, ends()]


async def evict_the_only_pod(stage: Stage) -> None:
    (pod,) = await stage.runs(1)
    await stage.evict(pod)


def disruption(pod: Object) -> Object:
    """The condition that tells who disrupted a pod."""
    found = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert len(found) == 1
    return {key: found[0].get(key, "") for key in ("status", "reason", "message")}


def condition(kind: str, status: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": status}]}}


@scenario
async def a_disruption_that_is_ignored_does_not_count(stage: Stage) -> None:
    """behaviour A15.5, F, G3; KEP-3329 story 2"""
    await stage.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(stage)
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    first = next(iter(stage.pods.values()))
    assert disruption(first) == {
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }


@scenario
async def a_disruption_that_is_counted_counts(stage: Stage) -> None:
    """behaviour A15.6, G3; KEP-3329 story 3: before the rule for user errors"""
    await stage.submit(
        backoffLimit=3,
        podFailurePolicy=policy(on_condition("Count"), rule("FailJob", 0, operator="NotIn")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(stage)
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)


@scenario
async def a_disruption_can_fail_the_job(stage: Stage) -> None:
    """behaviour A15.7"""
    await stage.submit(
        podFailurePolicy=policy(rule("Ignore", 1), on_condition("FailJob")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(stage)
    await stage.finished()
    (pod,) = stage.pods.values()
    said = (
        f"Pod {stage.namespace}/{pod['metadata']['name']} has condition DisruptionTarget "
        "matching FailJob rule at index 1"
    )
    await over(stage, "Failed", ("PodFailurePolicy", said), failed=1)


@scenario
async def a_disruption_can_fail_an_index(stage: Stage) -> None:
    """behaviour A15.6, A12.5"""
    await stage.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        backoffLimitPerIndex=3,
        podFailurePolicy=policy(on_condition("FailIndex")),
        simulate={"main": FOREVER},
    )
    await stage.runs(2)
    await stage.evict(stage.pod(0))
    await stage.wait_until(lambda seen: seen.status().get("failedIndexes") == "0")
    await stage.quiet()
    has(stage.status(), failed=1, active=1, terminating=0)


@scenario
async def an_evicted_pod_is_judged_when_it_has_ended(stage: Stage) -> None:
    """behaviour A15.1, G3: not while it is terminating"""
    await stage.submit(
        podFailurePolicy=policy(on_condition("FailJob")),
        template=PATIENT,
        simulate={"main": waits()},
    )
    await evict_the_only_pod(stage)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    has(stage.status(), failed=0, active=0)
    assert stage.condition("FailureTarget") is None
    await let_end(stage, *stage.unfinished)
    await stage.finished()
    has(stage.status(), failed=1, terminating=0)


@scenario
async def an_exit_code_rule_before_the_disruption_decides(stage: Stage) -> None:
    """behaviour A15.2: an evicted pod ends by SIGTERM"""
    await stage.submit(
        podFailurePolicy=policy(rule("FailJob", 143), on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    await evict_the_only_pod(stage)
    await stage.finished()
    failure = stage.condition("Failed")
    assert failure is not None
    assert failure["message"].endswith("with exit code 143 matching FailJob rule at index 0")


@scenario
async def a_pod_that_was_deleted_has_no_disruption(stage: Stage) -> None:
    """behaviour F.1"""
    await stage.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore")),
        simulate={"main": DISRUPTED},
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_condition_that_somebody_wrote_matches(stage: Stage) -> None:
    """behaviour A15.5; KEP-3329: any type of condition"""
    await stage.submit(
        podFailurePolicy=policy(on_condition("FailJob", "example.com/bad-config")),
        simulate={"main": ends(1, seconds=MEANWHILE)},
    )
    (pod,) = await stage.runs(1)
    await stage.patch_pod(pod, condition("example.com/bad-config", "True"), "status")
    await stage.finished()
    failure = stage.condition("Failed")
    assert failure is not None
    assert failure["message"] == (
        f"Pod {stage.namespace}/{pod['metadata']['name']} has condition example.com/bad-config "
        "matching FailJob rule at index 0"
    )


@scenario
async def a_condition_with_another_status_does_not_match(stage: Stage) -> None:
    """behaviour A15.5: a pattern without a status wants True"""
    await stage.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("FailJob", "example.com/bad-config")),
        simulate={"main": ends(1, seconds=MEANWHILE)},
    )
    (pod,) = await stage.runs(1)
    await stage.patch_pod(pod, condition("example.com/bad-config", "False"), "status")
    await over(stage, "Failed", BACKOFF_LIMIT, failed=1)


@scenario
async def a_pattern_can_want_a_condition_to_be_false(stage: Stage) -> None:
    """behaviour A15.5"""
    await stage.submit(
        backoffLimit=0,
        podFailurePolicy=policy(on_condition("Ignore", "example.com/healthy", "False")),
        simulate={"main": [ends(1, seconds=MEANWHILE), ends()]},
    )
    (pod,) = await stage.runs(1)
    await stage.patch_pod(pod, condition("example.com/healthy", "False"), "status")
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
