# SPDX-License-Identifier: Apache-2.0
"""podReplacementPolicy: when a pod that goes away is counted and replaced."""

from refloat.api.meta import Object
from refloat.client.contract import DeleteOptions
from refloat.scenario.namespace import ScenarioNamespace
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

EARLY = "TerminatingOrFailed"
LATE = "Failed"

FORCE = DeleteOptions(grace_seconds=0)

# Keeps a pod until its node or the collector has written how the pod ended; without the
# finalizer the pod goes as soon as the Job has counted it, before or after.
HOLD = "example.com/hold"


async def let_go(ns: ScenarioNamespace, pod: Object) -> None:
    """Let a deleted pod go, once its phase is Failed."""
    uid = pod["metadata"]["uid"]
    await ns.wait_until(lambda state: state.pods[uid]["status"]["phase"] == "Failed")
    await ns.patch_pod(pod, {"metadata": {"$deleteFromPrimitiveList/finalizers": [HOLD]}})
    await ns.wait_until(lambda state: uid in state.gone)


@scenario
async def a_deleted_pod_is_replaced_while_it_terminates(ns: ScenarioNamespace) -> None:
    """behaviour A16.1, G4"""
    await ns.submit(
        podReplacementPolicy=EARLY, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    has(ns.status(), active=0, terminating=1)
    await ns.wait_until(lambda state: "finalizers" not in state.present[0]["metadata"])
    await ns.wait_until(lambda state: state.most_at_once() == 2)
    await let_end(ns, pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 0)


@scenario
async def a_deleted_pod_is_replaced_only_when_it_has_failed(ns: ScenarioNamespace) -> None:
    """behaviour A16.2; KEP-3939 story 1"""
    await ns.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    has(ns.status(), active=0, failed=0)
    await let_end(ns, pod)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    has(ns.status(), terminating=0)
    await ns.runs(1)
    assert ns.most_at_once() == 1


@scenario
async def a_terminating_pod_that_succeeds_is_a_success(ns: ScenarioNamespace) -> None:
    """behaviour A16.2, A3.5; KEP-3939's caveat, put right"""
    await ns.submit(podReplacementPolicy=LATE, template=PATIENT, simulate={"main": waits(code=0)})
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await let_end(ns, pod)
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    assert len(ns.pods) == 1


@scenario
async def a_terminating_pod_that_succeeds_too_late_is_a_failure(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A16.1; KEP-3939's caveat, which stays without the policy"""
    await ns.submit(
        podReplacementPolicy=EARLY, template=PATIENT, simulate={"main": [waits(code=0), ends()]}
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await let_end(ns, pod)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    assert len(ns.pods) == 2


@scenario
async def an_index_never_has_two_pods_at_once(ns: ScenarioNamespace) -> None:
    """behaviour A7.6, A16.2; KEP-3939 story 1: frameworks that want one pod an index"""
    await ns.submit(
        completionMode="Indexed",
        completions=2,
        parallelism=2,
        podReplacementPolicy=LATE,
        template=PATIENT,
        simulate={"main": FOREVER, "main/1": [waits(), FOREVER]},
    )
    await ns.runs(2)
    pod = ns.pod(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    has(ns.status(), active=1, failed=0)
    await let_end(ns, pod)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await ns.runs(2)
    assert ns.most_at_once() == 2


@scenario
async def terminating_pods_are_counted(ns: ScenarioNamespace) -> None:
    """behaviour A3.2, A5.14; KEP-3939 story 3"""
    await ns.submit(
        completions=3,
        parallelism=3,
        podReplacementPolicy=LATE,
        template=PATIENT,
        simulate={"main": waits()},
    )
    pods = await ns.runs(3)
    for pod in pods[:2]:
        await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 2)
    has(ns.status(), active=1, failed=0)
    await let_end(ns, *pods[:2])
    await ns.wait_until(lambda state: state.status().get("failed") == 2)
    has(ns.status(), active=1, terminating=0)


@scenario
async def a_pod_deleted_by_force_is_counted_when_its_node_has_ended_it(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A16.3: the finalizer keeps the object until then"""
    await ns.submit(podReplacementPolicy=LATE, simulate={"main": [FOREVER, ends()]})
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod, FORCE)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    assert ns.most_at_once() == 1


@scenario
async def a_pod_deleted_by_force_fails_at_once_without_the_policy(
    ns: ScenarioNamespace,
) -> None:
    """behaviour A16.1"""
    await ns.submit(
        podReplacementPolicy=EARLY, finalizers=[HOLD], simulate={"main": [FOREVER, ends()]}
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod, FORCE)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    await let_go(ns, pod)


@scenario
async def an_evicted_pod_is_replaced_when_it_has_failed(ns: ScenarioNamespace) -> None:
    """behaviour A16.2, C6.7"""
    await ns.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), ends()]}
    )
    (pod,) = await ns.runs(1)
    await ns.evict(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await let_end(ns, pod)
    await over(ns, "Complete", REACHED, succeeded=1, failed=1)
    assert ns.most_at_once() == 1


@scenario
async def the_policy_may_change_while_a_pod_terminates(ns: ScenarioNamespace) -> None:
    """behaviour B4.4, A3.4"""
    await ns.submit(
        podReplacementPolicy=LATE, template=PATIENT, simulate={"main": [waits(), FOREVER]}
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await ns.quiet()
    has(ns.status(), failed=0)
    await ns.change(podReplacementPolicy=EARLY)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await ns.wait_until(lambda state: state.most_at_once() == 2)
    await let_end(ns, pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 0)


@scenario
async def a_failure_policy_waits_for_the_end_of_pods(ns: ScenarioNamespace) -> None:
    """behaviour B1.4, A15.1: the default"""
    await ns.submit(
        podFailurePolicy=policy(rule("Ignore", 143)),
        template=PATIENT,
        simulate={"main": [waits(), ends()]},
    )
    (pod,) = await ns.runs(1)
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("terminating") == 1)
    await let_end(ns, pod)
    await over(ns, "Complete", REACHED, succeeded=1, failed=0)
    assert ns.most_at_once() == 1


@scenario
async def a_pod_without_a_node_that_is_deleted_fails_at_once(ns: ScenarioNamespace) -> None:
    """behaviour G12, C8.1"""
    await ns.submit(
        podReplacementPolicy=EARLY,
        backoffLimit=0,
        finalizers=[HOLD],
        template={"schedulingGates": [{"name": "example.com/wait"}]},
    )
    await ns.wait_until(lambda state: len(state.active) == 1)
    (pod,) = ns.active
    await ns.delete_pod(pod)
    await ns.wait_until(lambda state: state.status().get("failed") == 1)
    await let_go(ns, pod)
    await ns.finished()
    has(ns.status(), failed=1)


@scenario
async def a_pod_without_a_node_that_is_deleted_fails_when_it_is_collected(
    ns: ScenarioNamespace,
) -> None:
    """behaviour G12, A16.5, C1.9"""
    await ns.submit(
        podReplacementPolicy=LATE,
        backoffLimit=0,
        template={"schedulingGates": [{"name": "example.com/wait"}]},
    )
    await ns.wait_until(lambda state: len(state.active) == 1)
    await ns.delete_pod(ns.active[0])
    # The collector comes round by the clock, and may come before the Job counts the pod.
    await ns.wait_until(
        lambda state: state.status().get("terminating") == 1 or len(state.unfinished) == 0
    )
    if ns.unfinished:
        has(ns.status(), failed=0, active=0)
    await ns.finished()
    has(ns.status(), failed=1)
