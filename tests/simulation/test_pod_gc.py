# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of pods on a real API server in virtual time (behaviour C1)."""

from collections.abc import Sequence
from functools import partial

import pytest

from refloat.api.meta import Object
from refloat.app import inside
from refloat.app.equipment import Equipment
from refloat.base.gates import (
    JOB_POD_FAILURE_POLICY,
    JOB_POD_REPLACEMENT_POLICY,
    POD_DISRUPTION_CONDITIONS,
    Gates,
)
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.pod_gc import PodGarbageCollector, PodGcMetrics
from refloat.policy.pod_gc import Settings
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim, run
from tests.simulation import controller_world
from tests.simulation.controller_world import FAULTS, World, condition
from tests.virtual import virtual

DOWN = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
HELD = ["example.com/held"]
TARGET = {
    "status": "True",
    "reason": "DeletionByPodGC",
    "message": "PodGC: node no longer exists",
}

world = partial(controller_world.world, make=inside.MAKERS["pod-garbage-collector-controller"])


def keeping(threshold: int, shared: Equipment) -> Sequence[Worker]:
    """A collector that lets so many pods stay that are over."""
    made = PodGarbageCollector(
        shared.client("pod-garbage-collector"),
        shared.pods,
        shared.nodes,
        clock=shared.clock,
        instruments=shared.instruments,
        metrics=PodGcMetrics(shared.registry),
        settings=Settings(threshold=threshold),
    )
    return [made.controller]


def counted(w: World, cause: str) -> float:
    name = "pod_gc_collector_force_delete_pods_total"
    return w.sample(name, namespace=controller_world.NAMESPACE, reason=cause)


@virtual(seeds=5)
async def test_orphans_fail_and_go_after_the_quarantine(sim: Sim) -> None:
    """behaviour C1.5, C1.8"""
    async with world(sim) as w:
        await w.pod("gone", node="lost")
        await w.pod("kept", node="lost", finalizers=HELD)
        await w.start()
        await sim.clock.sleep(39)
        assert await w.found("gone") is not None
        await sim.clock.sleep(2)
        assert await w.found("gone") is None
        kept = await w.found("kept")
        assert kept is not None
        assert kept.status.phase == "Failed"
        assert kept.status.reason == ""
        assert kept.metadata.deletion_grace_period_seconds == 0
        assert condition(kept, "DisruptionTarget") == TARGET
        assert counted(w, "orphaned") == 2


@virtual()
async def test_a_node_that_is_deleted_makes_orphans(sim: Sim) -> None:
    """behaviour C1.5: 40 to 60 s after the node was first missed."""
    async with world(sim) as w:
        await w.node("n")
        await w.pod("p", node="n")
        await w.start()
        await sim.clock.sleep(30)
        await w.client.delete(kinds.NODES, "n")
        await sim.clock.sleep(40)
        assert await w.found("p") is not None
        await sim.clock.sleep(20)
        assert await w.found("p") is None


@virtual()
async def test_a_node_that_returns_in_time_keeps_its_pods(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("p", node="n")
        await w.start()
        await sim.clock.sleep(30)
        await w.node("n")
        await sim.clock.sleep(300)
        pod = await w.found("p")
        assert pod is not None
        assert pod.status.phase == "Running"


@virtual()
async def test_a_node_that_cannot_be_asked_for_goes_through_another_quarantine(sim: Sim) -> None:
    """behaviour C1.7"""
    async with world(sim) as w:
        await w.pod("p", node="lost")
        await w.start(fails_to_read=1)
        await sim.clock.sleep(99)
        assert await w.found("p") is not None
        await sim.clock.sleep(2)
        assert await w.found("p") is None


@virtual()
async def test_terminating_pods_leave_a_node_that_is_out_of_service(sim: Sim) -> None:
    """behaviour C1.4, C9"""
    async with world(sim) as w:
        await w.node("down", taints=DOWN)
        await w.pod("stuck", node="down", finalizers=HELD)
        await w.pod("runs", node="down")
        await w.delete("stuck")
        await w.start()
        await sim.clock.sleep(1)
        stuck, runs = await w.found("stuck"), await w.found("runs")
        assert stuck is not None
        assert runs is not None
        assert stuck.status.phase == "Failed"
        assert condition(stuck, "DisruptionTarget") is None
        assert runs.status.phase == "Running"
        assert counted(w, "out-of-service") >= 1


@virtual()
async def test_a_terminating_pod_without_a_node_is_collected(sim: Sim) -> None:
    """behaviour C1.9"""
    async with world(sim) as w:
        await w.pod("p", phase="Pending", finalizers=HELD)
        await w.delete("p")
        await w.start()
        await sim.clock.sleep(1)
        pod = await w.found("p")
        assert pod is not None
        assert pod.status.phase == "Failed"
        assert counted(w, "unscheduled") == 1


@virtual()
async def test_pods_that_are_over_stay_up_to_the_threshold(sim: Sim) -> None:
    """behaviour C1.3"""
    async with world(sim, make=partial(keeping, 3)) as w:
        for number in range(5):
            await w.pod(f"p{number}", phase="Succeeded")
            await sim.clock.sleep(1)
        await w.pod("alive")
        await w.start()
        await sim.clock.sleep(1)
        there = [name for name in ("p0", "p1", "p2", "p3", "p4", "alive") if await w.found(name)]
        assert there == ["p2", "p3", "p4", "alive"]


@virtual()
async def test_without_any_gate_an_orphan_is_deleted_as_it_is(sim: Sim) -> None:
    """KEP-3939, "Risks and Mitigations": it stays Running."""
    gates = (JOB_POD_FAILURE_POLICY, JOB_POD_REPLACEMENT_POLICY, POD_DISRUPTION_CONDITIONS)
    off = Gates(dict.fromkeys(gates, False))
    async with world(sim, gates=off) as w:
        await w.pod("p", node="lost", finalizers=HELD)
        await w.start()
        await sim.clock.sleep(60)
        pod = await w.found("p")
        assert pod is not None
        assert pod.is_terminating
        assert pod.status.phase == "Running"


DUPLICATES: Object = {
    "containers": [
        {
            "name": "main",
            "image": "busybox",
            "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "ports": [{"containerPort": 80}, {"containerPort": 80}],
        }
    ]
}


@virtual()
async def test_duplicate_env_names_and_ports_do_not_save_a_pod(sim: Sim) -> None:
    """A failure that Kubernetes once had: the status was written with server-side apply."""
    async with world(sim) as w:
        await w.pod("p", node="lost", spec=DUPLICATES)
        await w.start()
        await sim.clock.sleep(60)
        assert await w.found("p") is None


@pytest.mark.parametrize("number", range(1, 6))  # two pods, two writes each, and one beyond
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(fault: str, number: int) -> None:
    """The condition always comes before the delete: the pod that is held shows what came."""

    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("a", node="lost", finalizers=HELD)
            await w.pod("b", node="lost")
            await FAULTS[fault](w, number, 70)
            await sim.clock.sleep(180)
            assert await w.found("b") is None
            kept = await w.found("a")
            assert kept is not None
            assert kept.is_terminating
            assert kept.status.phase == "Failed"
            assert condition(kept, "DisruptionTarget") == TARGET

    run(program, seed=number)


@virtual(seeds=3)
async def test_a_new_pod_of_the_same_name_stays(sim: Sim) -> None:
    """The orphan goes and another pod takes its name, directly before the delete."""
    async with world(sim) as w:
        await w.pod("p", node="lost")
        await w.node("there")
        replaced: list[str] = []

        async def before(request: Request) -> None:
            if request.method == "DELETE" and not replaced:
                replaced.append("p")
                gone = DeleteOptions(grace_seconds=0)
                namespace = controller_world.NAMESPACE
                await w.client.delete(kinds.PODS, "p", namespace=namespace, options=gone)
                await w.pod("p", node="there")

        await w.start(before=before)
        await sim.clock.sleep(100)
        found = await w.found("p")
        assert replaced == ["p"]
        assert found is not None
        assert (found.spec.node_name, found.metadata.deletion_timestamp) == ("there", None)
