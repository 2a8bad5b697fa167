# SPDX-License-Identifier: Apache-2.0
"""Disruption budgets and stale marks on a real API server in virtual time (behaviour C5, C6)."""

from functools import partial
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.api.policy import PodDisruptionBudget
from refloat.app import controller_table
from refloat.client import errors, kinds
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import (
    FAULTS,
    NAMESPACE,
    ControllerCluster,
    condition,
    running,
)
from tests.virtual import virtual

LABELS = {"app": "a"}
HELD = ["example.com/held"]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}

new_cluster = partial(
    ControllerCluster, build=controller_table.CONTROLLERS["disruption-controller"]
)


async def add(cluster: ControllerCluster, name: str = "b", **spec: Any) -> None:
    obj = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
    await cluster.client.create(kinds.POD_DISRUPTION_BUDGETS, obj, namespace=NAMESPACE)


async def budget(cluster: ControllerCluster, name: str = "b") -> PodDisruptionBudget:
    return await cluster.client.get(kinds.POD_DISRUPTION_BUDGETS, name, namespace=NAMESPACE)


async def counts(cluster: ControllerCluster) -> tuple[int, ...]:
    """Well, wanted, expected, may go."""
    await cluster.sleep(1)
    status = (await budget(cluster)).status
    return (
        status.current_healthy,
        status.desired_healthy,
        status.expected_pods,
        status.disruptions_allowed,
    )


async def allowed(cluster: ControllerCluster) -> Object:
    status = (await budget(cluster)).status
    (condition,) = status.conditions or ()
    return {"status": condition.status, "reason": condition.reason, "message": condition.message}


async def raw_conditions(cluster: ControllerCluster) -> list[Object]:
    """As they are on the wire."""
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/b"
    conditions: list[Object] = msgspec.json.decode(await cluster.server.call("GET", path))[
        "status"
    ]["conditions"]
    return conditions


@virtual(running, new_cluster, seeds=3)
async def test_a_budget_follows_its_pods(cluster: ControllerCluster) -> None:
    await add(cluster, minAvailable=1)
    assert await counts(cluster) == (0, 1, 0, 0)
    assert ("Normal", "NoPods", "No matching pods found") in cluster.event_log.events
    for name in "xyz":
        await cluster.pod(name, labels=LABELS, ready=True, node="n")
    await cluster.pod("other", ready=True)
    assert await counts(cluster) == (3, 1, 3, 2)
    assert await allowed(cluster) == {"status": "True", "reason": "SufficientPods", "message": ""}
    assert (await budget(cluster)).status.observed_generation == 1
    await cluster.status("x", conditions=[{"type": "Ready", "status": "False"}])
    assert await counts(cluster) == (2, 1, 3, 1)
    await cluster.delete("y")
    assert await counts(cluster) == (1, 1, 3, 0)
    assert await allowed(cluster) == {
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
    }
    labels = {"metadata": {"labels": {"app": "else"}}}
    await cluster.client.patch(kinds.PODS, "x", labels, namespace=NAMESPACE)
    assert await counts(cluster) == (1, 1, 2, 0)


@virtual(running, new_cluster)
async def test_a_changed_selector_counts_other_pods(cluster: ControllerCluster) -> None:
    await cluster.pod("a", labels=LABELS, ready=True)
    await cluster.pod("b", labels={"app": "b"}, ready=True)
    await cluster.pod("c", labels={"app": "b"}, ready=True)
    await add(cluster, minAvailable=0)
    assert await counts(cluster) == (1, 0, 1, 1)
    other = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
    await cluster.client.patch(kinds.POD_DISRUPTION_BUDGETS, "b", other, namespace=NAMESPACE)
    assert await counts(cluster) == (2, 0, 2, 2)
    assert (await budget(cluster)).status.observed_generation == 2


@virtual(running, new_cluster)
async def test_pods_of_a_job_need_a_budget_in_whole_numbers(cluster: ControllerCluster) -> None:
    why = "jobs.batch does not implement the scale subresource"
    await cluster.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
    await add(cluster, maxUnavailable=1)
    assert await counts(cluster) == (0, 0, 0, 0)
    assert await allowed(cluster) == {"status": "False", "reason": "SyncFailed", "message": why}
    note = f"Failed to calculate the number of expected pods: {why}"
    assert ("Warning", "CalculateExpectedPodCountFailed", note) in cluster.event_log.events


@virtual(running, new_cluster)
async def test_budget_never_counted_failed_for_no_generation(cluster: ControllerCluster) -> None:
    await cluster.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
    await add(cluster, maxUnavailable=1)
    await cluster.sleep(1)
    (condition,) = await raw_conditions(cluster)
    assert condition["reason"] == "SyncFailed"
    assert "observedGeneration" not in condition


@virtual(running, new_cluster)
async def test_a_budget_that_cannot_be_counted_failed_for_the_generation_counted_last(
    cluster: ControllerCluster,
) -> None:
    await cluster.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
    await add(cluster, minAvailable=1)
    await cluster.sleep(1)
    (condition,) = await raw_conditions(cluster)
    assert (condition["reason"], condition["observedGeneration"]) == ("InsufficientPods", 1)
    other = {"spec": {"minAvailable": "50%"}}
    await cluster.client.patch(kinds.POD_DISRUPTION_BUDGETS, "b", other, namespace=NAMESPACE)
    await cluster.sleep(1)
    assert (await budget(cluster)).metadata.generation == 2
    (condition,) = await raw_conditions(cluster)
    assert (condition["reason"], condition["observedGeneration"]) == ("SyncFailed", 1)


@virtual(running, new_cluster)
async def test_eviction_spends_the_budget_until_the_pod_is_gone(cluster: ControllerCluster) -> None:
    """behaviour C6.5, C5.3"""
    for name in "xy":
        await cluster.pod(name, labels=LABELS, ready=True, node="n")
    await add(cluster, minAvailable=1)
    assert await counts(cluster) == (2, 1, 2, 1)
    await cluster.client.evict("x", namespace=NAMESPACE)
    with pytest.raises(errors.TooManyRequests):
        await cluster.client.evict("y", namespace=NAMESPACE)
    assert await counts(cluster) == (1, 1, 2, 0)
    assert not (await budget(cluster)).status.disrupted_pods


@virtual(running, new_cluster)
async def test_evicted_pod_that_stayed_is_reported_and_counted(cluster: ControllerCluster) -> None:
    """behaviour C5.2"""
    await cluster.pod("x", labels=LABELS, ready=True, node="n")
    await add(cluster, minAvailable=0)
    await cluster.sleep(1)
    granted = {"status": {"disruptedPods": {"x": _now(cluster.sim)}}}
    await cluster.client.patch(
        kinds.POD_DISRUPTION_BUDGETS, "b", granted, namespace=NAMESPACE, subresource="status"
    )
    assert await counts(cluster) == (0, 0, 1, 0)
    await cluster.sleep(130)
    assert await counts(cluster) == (1, 0, 1, 1)
    note = "Pod was expected by PDB default/default to be deleted but it wasn't"
    assert ("Warning", "NotDeleted", note) in cluster.event_log.events


def _now(sim: Sim) -> str:
    return sim.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


async def mark(cluster: ControllerCluster, pod: str, reason: str = "PreemptionByScheduler") -> None:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": "m",
        "lastTransitionTime": _now(cluster.sim),
    }
    await cluster.status(pod, conditions=[target])


CLEARED = {"status": "False", "reason": "", "message": ""}


@virtual(running, new_cluster)
async def test_mark_without_a_delete_goes_after_two_minutes(cluster: ControllerCluster) -> None:
    """behaviour C5.1"""
    await cluster.pod("a", node="n")
    await mark(cluster, "a")
    await cluster.sleep(119)
    before = await cluster.find_pod("a")
    await cluster.sleep(3)
    after = await cluster.find_pod("a")
    assert before is not None
    assert after is not None
    assert (condition(before, "DisruptionTarget") or {})["status"] == "True"
    assert condition(after, "DisruptionTarget") == CLEARED


@virtual(running, new_cluster)
async def test_marks_that_still_hold_are_kept(cluster: ControllerCluster) -> None:
    await cluster.pod("going", node="n", finalizers=HELD)
    await cluster.pod("by-kubelet", node="n")
    await mark(cluster, "going")
    await mark(cluster, "by-kubelet", "TerminationByKubelet")
    await cluster.delete("going")
    await cluster.sleep(300)
    for name in ("going", "by-kubelet"):
        pod = await cluster.get_pod(name)
        assert (condition(pod, "DisruptionTarget") or {})["status"] == "True"


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    await cluster.pod("a", labels=LABELS, ready=True, node="n")
    await cluster.pod("b", labels=LABELS, ready=True, node="n")
    await add(cluster, minAvailable=1)
    await mark(cluster, "a")
    await FAULTS[fault](cluster, number, 200)
    await cluster.sleep(300)
    assert await counts(cluster) == (2, 1, 2, 1)
    pod = await cluster.get_pod("a")
    assert condition(pod, "DisruptionTarget") == CLEARED
