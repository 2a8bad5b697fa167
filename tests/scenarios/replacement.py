# SPDX-License-Identifier: Apache-2.0
"""podReplacementPolicy: when a pod that goes away is counted and replaced."""

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from tests.scenarios.scenario import (
    FOREVER,
    PATIENT,
    REACHED,
    ends,
    has,
    let_end,
    over,
    policy,
    rule,
    scenario,
    waits,
)
from tests.scenarios.stage import Stage

EARLY = "TerminatingOrFailed"
LATE = "Failed"

FORCE = DeleteOptions(grace_seconds=0)

# Keeps a pod in sight until its node or the collector has written how it ended; without it
# the pod goes as soon as the Job has counted it, be that before or after.
HOLD = "example.com/hold"


async def let_go(stage: Stage, pod: Object) -> None:
    """Let a deleted pod go, once it has failed for all to see."""
    uid = pod["metadata"]["uid"]
    await stage.wait_until(lambda seen: seen.pods[uid]["status"]["phase"] == "Failed")
    await stage.patch_pod(pod, {"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})
    await stage.wait_until(lambda seen: uid in seen.gone)


@scenario
async def a_deleted_pod_is_replaced_while_it_terminates(stage: Stage) -> None:
    """behaviour A16.1, G4"""
    await stage.submit(
        podReplacementPolicy=EARLY, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    has(stage.status(), active=0, terminating=1)
    await stage.wait_until(lambda seen: "finalizers" not in seen.present[0]["metadata"])
    await stage.wait_until(lambda seen: seen.most_unfinished == 2)
    await let_end(stage, pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 0)


@scenario
async def a_deleted_pod_is_replaced_only_when_it_has_failed(stage: Stage) -> None:
    """behaviour A16.2; KEP-3939 story 1"""
    await stage.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    has(stage.status(), active=0, failed=0)
    await let_end(stage, pod)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    has(stage.status(), terminating=0)
    await stage.runs(1)
    assert stage.most_unfinished == 1


@scenario
async def a_terminating_pod_that_succeeds_is_a_success(stage: Stage) -> None:
    """behaviour A16.2, A3.5; KEP-3939's caveat, put right"""
    await stage.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": waits(code=0)}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await let_end(stage, pod)
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    assert len(stage.pods) == 1


@scenario
async def a_terminating_pod_that_succeeds_too_late_is_a_failure(stage: Stage) -> None:
    """behaviour A16.1; KEP-3939's caveat, as it stays without the policy"""
    await stage.submit(
        podReplacementPolicy=EARLY, template=PATIENT, simulate={"main": [waits(code=0), ends()]}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    await let_end(stage, pod)
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)
    assert len(stage.pods) == 2


@scenario
async def an_index_never_has_two_pods_at_once(stage: Stage) -> None:
    """behaviour A7.6, A16.2; KEP-3939 story 1: frameworks that want one pod an index"""
    await stage.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        podReplacementPolicy=LATE,
        template=PATIENT,
        simulate={"main": FOREVER, "main/1": [waits(), FOREVER]},
    )
    await stage.runs(2)
    pod = stage.pod(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    has(stage.status(), active=1, failed=0)
    await let_end(stage, pod)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    await stage.runs(2)
    assert stage.most_unfinished == 2


@scenario
async def terminating_pods_are_counted(stage: Stage) -> None:
    """behaviour A3.2, A5.14; KEP-3939 story 3"""
    await stage.submit(
        completions=3,
        parallelism=3,
        podReplacementPolicy=LATE,
        template=PATIENT,
        simulate={"main": waits()},
    )
    pods = await stage.runs(3)
    for pod in pods[:2]:
        await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 2)
    has(stage.status(), active=1, failed=0)
    await let_end(stage, *pods[:2])
    await stage.wait_until(lambda seen: seen.status().get("failed") == 2)
    has(stage.status(), active=1, terminating=0)


@scenario
async def a_pod_deleted_by_force_is_counted_when_its_node_has_ended_it(stage: Stage) -> None:
    """behaviour A16.3: the finalizer keeps the object until then"""
    await stage.submit(podReplacementPolicy=LATE, simulate={"main": [FOREVER, ends()]})
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod, FORCE)
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)
    assert stage.most_unfinished == 1


@scenario
async def a_pod_deleted_by_force_fails_at_once_without_the_policy(stage: Stage) -> None:
    """behaviour A16.1"""
    await stage.submit(
        podReplacementPolicy=EARLY, finalizers=[HOLD], simulate={"main": [FOREVER, ends()]}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod, FORCE)
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)
    await let_go(stage, pod)


@scenario
async def an_evicted_pod_is_replaced_when_it_has_failed(stage: Stage) -> None:
    """behaviour A16.2, C6.7"""
    await stage.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), ends()]}
    )
    (pod,) = await stage.runs(1)
    await stage.evict(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await let_end(stage, pod)
    await over(stage, "Complete", REACHED, succeeded=1, failed=1)
    assert stage.most_unfinished == 1


@scenario
async def the_policy_may_change_while_a_pod_terminates(stage: Stage) -> None:
    """behaviour B4.4, A3.4"""
    await stage.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await stage.quiet()
    has(stage.status(), failed=0)
    await stage.change(podReplacementPolicy=EARLY)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    await stage.wait_until(lambda seen: seen.most_unfinished == 2)
    await let_end(stage, pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 0)


@scenario
async def a_failure_policy_waits_for_the_end_of_pods(stage: Stage) -> None:
    """behaviour B1.4, A15.1: without being told to"""
    await stage.submit(
        podFailurePolicy=policy(rule("Ignore", 143)),
        template=PATIENT,
        simulate={"main": [waits(), ends()]},
    )
    (pod,) = await stage.runs(1)
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("terminating") == 1)
    await let_end(stage, pod)
    await over(stage, "Complete", REACHED, succeeded=1, failed=0)
    assert stage.most_unfinished == 1


@scenario
async def a_pod_without_a_node_that_is_deleted_fails_at_once(stage: Stage) -> None:
    """behaviour G12, C8.1"""
    await stage.submit(
        podReplacementPolicy=EARLY,
        backoffLimit=0,
        finalizers=[HOLD],
        template={"schedulingGates": [{"name": "example.com/wait"}]},
    )
    await stage.wait_until(lambda seen: len(seen.active) == 1)
    (pod,) = stage.active
    await stage.delete_pod(pod)
    await stage.wait_until(lambda seen: seen.status().get("failed") == 1)
    await let_go(stage, pod)
    await stage.finished()
    has(stage.status(), failed=1)


@scenario
async def a_pod_without_a_node_that_is_deleted_fails_when_it_is_collected(stage: Stage) -> None:
    """behaviour G12, A16.5, C1.9"""
    await stage.submit(
        podReplacementPolicy=LATE,
        backoffLimit=0,
        template={"schedulingGates": [{"name": "example.com/wait"}]},
    )
    await stage.wait_until(lambda seen: len(seen.active) == 1)
    await stage.delete_pod(stage.active[0])
    # The collector comes round by the clock, and may come before the Job counts the pod.
    await stage.wait_until(
        lambda seen: seen.status().get("terminating") == 1 or len(seen.unfinished) == 0
    )
    if stage.unfinished:
        has(stage.status(), failed=0, active=0)
    await stage.finished()
    has(stage.status(), failed=1)
