# SPDX-License-Identifier: Apache-2.0
"""Disruption budgets and stale marks on a real API server in virtual time (behaviour C5, C6)."""

from functools import partial
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.api.policy import PodDisruptionBudget
from refloat.app import inside
from refloat.client import errors, kinds
from refloat.sim.run import Sim, run
from tests.simulation import controller_world
from tests.simulation.controller_world import FAULTS, NAMESPACE, World, condition
from tests.virtual import virtual

LABELS = {"app": "a"}
HELD = ["example.com/held"]
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}

world = partial(controller_world.world, make=inside.MAKERS["disruption-controller"])


async def add(w: World, name: str = "b", **spec: Any) -> None:
    obj = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": LABELS}, **spec}}
    await w.client.create(kinds.POD_DISRUPTION_BUDGETS, obj, namespace=NAMESPACE)


async def budget(w: World, name: str = "b") -> PodDisruptionBudget:
    return await w.client.get(kinds.POD_DISRUPTION_BUDGETS, name, namespace=NAMESPACE)


async def counts(w: World) -> tuple[int, ...]:
    """Well, wanted, expected, may go."""
    await w.sim.clock.sleep(1)
    held = (await budget(w)).status
    return held.current_healthy, held.desired_healthy, held.expected_pods, held.disruptions_allowed


async def allowed(w: World) -> Object:
    held = (await budget(w)).status
    (found,) = held.conditions or ()
    return {"status": found.status, "reason": found.reason, "message": found.message}


async def raw_conditions(w: World) -> list[Object]:
    """As they are on the wire."""
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/b"
    found: list[Object] = msgspec.json.decode(await w.api.call("GET", path))["status"]["conditions"]
    return found


@virtual(seeds=3)
async def test_a_budget_follows_its_pods(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await add(w, minAvailable=1)
        assert await counts(w) == (0, 1, 0, 0)
        assert ("Normal", "NoPods", "No matching pods found") in w.told.events
        for name in "xyz":
            await w.pod(name, labels=LABELS, ready=True, node="n")
        await w.pod("other", ready=True)
        assert await counts(w) == (3, 1, 3, 2)
        assert await allowed(w) == {"status": "True", "reason": "SufficientPods", "message": ""}
        assert (await budget(w)).status.observed_generation == 1
        await w.status("x", conditions=[{"type": "Ready", "status": "False"}])
        assert await counts(w) == (2, 1, 3, 1)
        await w.delete("y")
        assert await counts(w) == (1, 1, 3, 0)
        assert await allowed(w) == {"status": "False", "reason": "InsufficientPods", "message": ""}
        labels = {"metadata": {"labels": {"app": "else"}}}
        await w.client.patch(kinds.PODS, "x", labels, namespace=NAMESPACE)
        assert await counts(w) == (1, 1, 2, 0)


@virtual()
async def test_a_changed_selector_counts_other_pods(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await w.pod("a", labels=LABELS, ready=True)
        await w.pod("b", labels={"app": "b"}, ready=True)
        await w.pod("c", labels={"app": "b"}, ready=True)
        await add(w, minAvailable=0)
        assert await counts(w) == (1, 0, 1, 1)
        other = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
        await w.client.patch(kinds.POD_DISRUPTION_BUDGETS, "b", other, namespace=NAMESPACE)
        assert await counts(w) == (2, 0, 2, 2)
        assert (await budget(w)).status.observed_generation == 2


@virtual()
async def test_pods_of_a_job_need_a_budget_in_whole_numbers(sim: Sim) -> None:
    why = "jobs.batch does not implement the scale subresource"
    async with world(sim) as w:
        await w.start()
        await w.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
        await add(w, maxUnavailable=1)
        assert await counts(w) == (0, 0, 0, 0)
        assert await allowed(w) == {"status": "False", "reason": "SyncFailed", "message": why}
        note = f"Failed to calculate the number of expected pods: {why}"
        assert ("Warning", "CalculateExpectedPodCountFailed", note) in w.told.events


@virtual()
async def test_a_budget_that_was_never_counted_failed_for_no_generation(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await w.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
        await add(w, maxUnavailable=1)
        await sim.clock.sleep(1)
        (found,) = await raw_conditions(w)
        assert found["reason"] == "SyncFailed"
        assert "observedGeneration" not in found


@virtual()
async def test_a_budget_that_cannot_be_counted_failed_for_the_generation_counted_last(
    sim: Sim,
) -> None:
    async with world(sim) as w:
        await w.start()
        await w.pod("a", labels=LABELS, ready=True, ownerReferences=[JOB])
        await add(w, minAvailable=1)
        await sim.clock.sleep(1)
        (found,) = await raw_conditions(w)
        assert (found["reason"], found["observedGeneration"]) == ("InsufficientPods", 1)
        other = {"spec": {"minAvailable": "50%"}}
        await w.client.patch(kinds.POD_DISRUPTION_BUDGETS, "b", other, namespace=NAMESPACE)
        await sim.clock.sleep(1)
        assert (await budget(w)).metadata.generation == 2
        (found,) = await raw_conditions(w)
        assert (found["reason"], found["observedGeneration"]) == ("SyncFailed", 1)


@virtual()
async def test_an_eviction_spends_the_budget_until_the_pod_is_gone(sim: Sim) -> None:
    """behaviour C6.5, C5.3"""
    async with world(sim) as w:
        await w.start()
        for name in "xy":
            await w.pod(name, labels=LABELS, ready=True, node="n")
        await add(w, minAvailable=1)
        assert await counts(w) == (2, 1, 2, 1)
        await w.client.evict("x", namespace=NAMESPACE)
        with pytest.raises(errors.TooManyRequests):
            await w.client.evict("y", namespace=NAMESPACE)
        assert await counts(w) == (1, 1, 2, 0)
        assert not (await budget(w)).status.disrupted_pods


@virtual()
async def test_a_pod_that_was_let_go_and_stayed_is_told_and_counts_again(sim: Sim) -> None:
    """behaviour C5.2"""
    async with world(sim) as w:
        await w.start()
        await w.pod("x", labels=LABELS, ready=True, node="n")
        await add(w, minAvailable=0)
        await sim.clock.sleep(1)
        granted = {"status": {"disruptedPods": {"x": _now(sim)}}}
        await w.client.patch(
            kinds.POD_DISRUPTION_BUDGETS, "b", granted, namespace=NAMESPACE, subresource="status"
        )
        assert await counts(w) == (0, 0, 1, 0)
        await sim.clock.sleep(130)
        assert await counts(w) == (1, 0, 1, 1)
        note = "Pod was expected by PDB default/default to be deleted but it wasn't"
        assert ("Warning", "NotDeleted", note) in w.told.events


def _now(sim: Sim) -> str:
    return sim.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


async def mark(w: World, pod: str, reason: str = "PreemptionByScheduler") -> None:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": "m",
        "lastTransitionTime": _now(w.sim),
    }
    await w.status(pod, conditions=[target])


CLEARED = {"status": "False", "reason": "", "message": ""}


@virtual()
async def test_a_mark_without_a_delete_is_taken_back_after_two_minutes(sim: Sim) -> None:
    """behaviour C5.1"""
    async with world(sim) as w:
        await w.start()
        await w.pod("a", node="n")
        await mark(w, "a")
        await sim.clock.sleep(119)
        before = await w.found("a")
        await sim.clock.sleep(3)
        after = await w.found("a")
        assert before is not None
        assert after is not None
        assert (condition(before, "DisruptionTarget") or {})["status"] == "True"
        assert condition(after, "DisruptionTarget") == CLEARED


@virtual()
async def test_marks_that_still_hold_are_kept(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await w.pod("going", node="n", finalizers=HELD)
        await w.pod("by-kubelet", node="n")
        await mark(w, "going")
        await mark(w, "by-kubelet", "TerminationByKubelet")
        await w.delete("going")
        await sim.clock.sleep(300)
        for name in ("going", "by-kubelet"):
            found = await w.found(name)
            assert found is not None
            assert (condition(found, "DisruptionTarget") or {})["status"] == "True"


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(fault: str, number: int) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("a", labels=LABELS, ready=True, node="n")
            await w.pod("b", labels=LABELS, ready=True, node="n")
            await add(w, minAvailable=1)
            await mark(w, "a")
            await FAULTS[fault](w, number, 200)
            await sim.clock.sleep(300)
            assert await counts(w) == (2, 1, 2, 1)
            found = await w.found("a")
            assert found is not None
            assert condition(found, "DisruptionTarget") == CLEARED

    run(program, seed=number)
