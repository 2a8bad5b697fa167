# SPDX-License-Identifier: Apache-2.0
"""The garbage collector of pods on a real API server in virtual time (behaviour C1)."""

from collections.abc import Sequence
from functools import partial

import pytest

from refloat.api.meta import Object
from refloat.app import controller_table
from refloat.base.gates import (
    JOB_POD_FAILURE_POLICY,
    JOB_POD_REPLACEMENT_POLICY,
    POD_DISRUPTION_CONDITIONS,
    Gates,
)
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.policy.garbage.pod_gc import PodGCSettings
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim
from tests.simulation import controller_cluster
from tests.simulation.controller_cluster import FAULTS, ControllerCluster, condition
from tests.virtual import virtual

DOWN = [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]
HELD = ["example.com/held"]
TARGET = {"status": "True", "reason": "DeletionByPodGC", "message": "PodGC: node no longer exists"}

BUILD = controller_table.CONTROLLERS["pod-garbage-collector-controller"]

new_cluster = partial(ControllerCluster, build=BUILD)


def keeping(threshold: int, env: ControllerEnv) -> Sequence[Worker]:
    """A collector that lets so many pods stay that are over."""
    env.update(PodGCSettings(threshold=threshold))
    return BUILD(env)


def counted(cluster: ControllerCluster, cause: str) -> float:
    name = "pod_gc_collector_force_delete_pods_total"
    return cluster.sample(name, namespace=controller_cluster.NAMESPACE, reason=cause)


@virtual(new_cluster, seeds=5)
async def test_orphans_fail_and_go_after_the_quarantine(cluster: ControllerCluster) -> None:
    """behaviour C1.5, C1.8"""
    await cluster.pod("gone", node="lost")
    await cluster.pod("kept", node="lost", finalizers=HELD)
    await cluster.start()
    await cluster.sleep(39)
    assert await cluster.find_pod("gone") is not None
    await cluster.sleep(2)
    assert await cluster.find_pod("gone") is None
    pod = await cluster.get_pod("kept")
    assert pod.status.phase == "Failed"
    assert pod.status.reason == ""
    assert pod.metadata.deletion_grace_period_seconds == 0
    assert condition(pod, "DisruptionTarget") == TARGET
    assert counted(cluster, "orphaned") == 2


@virtual(new_cluster)
async def test_a_node_that_is_deleted_makes_orphans(cluster: ControllerCluster) -> None:
    """behaviour C1.5: 40 to 60 s after the node was first missed."""
    await cluster.node("n")
    await cluster.pod("p", node="n")
    await cluster.start()
    await cluster.sleep(30)
    await cluster.client.delete(kinds.NODES, "n")
    await cluster.sleep(40)
    assert await cluster.find_pod("p") is not None
    await cluster.sleep(20)
    assert await cluster.find_pod("p") is None


@virtual(new_cluster)
async def test_a_node_that_returns_in_time_keeps_its_pods(cluster: ControllerCluster) -> None:
    await cluster.pod("p", node="n")
    await cluster.start()
    await cluster.sleep(30)
    await cluster.node("n")
    await cluster.sleep(300)
    pod = await cluster.get_pod("p")
    assert pod.status.phase == "Running"


@virtual(new_cluster)
async def test_node_that_cannot_be_read_is_quarantined_again(cluster: ControllerCluster) -> None:
    """behaviour C1.7"""
    await cluster.pod("p", node="lost")
    await cluster.start(fails_to_read=1)
    await cluster.sleep(99)
    assert await cluster.find_pod("p") is not None
    await cluster.sleep(2)
    assert await cluster.find_pod("p") is None


@virtual(new_cluster)
async def test_terminating_pods_leave_a_node_out_of_service(cluster: ControllerCluster) -> None:
    """behaviour C1.4, C9"""
    await cluster.node("down", taints=DOWN)
    await cluster.pod("stuck", node="down", finalizers=HELD)
    await cluster.pod("runs", node="down")
    await cluster.delete("stuck")
    await cluster.start()
    await cluster.sleep(1)
    orphan, runs = await cluster.find_pod("stuck"), await cluster.find_pod("runs")
    assert orphan is not None
    assert runs is not None
    assert orphan.status.phase == "Failed"
    assert condition(orphan, "DisruptionTarget") is None
    assert runs.status.phase == "Running"
    assert counted(cluster, "out-of-service") >= 1


@virtual(new_cluster)
async def test_a_terminating_pod_without_a_node_is_collected(cluster: ControllerCluster) -> None:
    """behaviour C1.9"""
    await cluster.pod("p", phase="Pending", finalizers=HELD)
    await cluster.delete("p")
    await cluster.start()
    await cluster.sleep(1)
    pod = await cluster.get_pod("p")
    assert pod.status.phase == "Failed"
    assert counted(cluster, "unscheduled") == 1


@virtual(new_cluster, build=partial(keeping, 3))
async def test_pods_that_are_over_stay_up_to_the_threshold(cluster: ControllerCluster) -> None:
    """behaviour C1.3"""
    for number in range(5):
        await cluster.pod(f"p{number}", phase="Succeeded")
        await cluster.sleep(1)
    await cluster.pod("alive")
    await cluster.start()
    await cluster.sleep(1)
    there = [
        name for name in ("p0", "p1", "p2", "p3", "p4", "alive") if await cluster.find_pod(name)
    ]
    assert there == ["p2", "p3", "p4", "alive"]


@virtual()
async def test_without_any_gate_an_orphan_is_deleted_as_it_is(sim: Sim) -> None:
    """KEP-3939, "Risks and Mitigations": the pod stays Running."""
    gates = (JOB_POD_FAILURE_POLICY, JOB_POD_REPLACEMENT_POLICY, POD_DISRUPTION_CONDITIONS)
    off = Gates(dict.fromkeys(gates, False))
    async with new_cluster(sim, gates=off) as cluster:
        await cluster.pod("p", node="lost", finalizers=HELD)
        await cluster.start()
        await sim.clock.sleep(60)
        pod = await cluster.get_pod("p")
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


@virtual(new_cluster)
async def test_duplicate_env_names_and_ports_do_not_save_a_pod(cluster: ControllerCluster) -> None:
    """A failure that Kubernetes once had: the status was written with server-side apply."""
    await cluster.pod("p", node="lost", spec=DUPLICATES)
    await cluster.start()
    await cluster.sleep(60)
    assert await cluster.find_pod("p") is None


@pytest.mark.parametrize("number", range(1, 6))  # two pods, two writes each, and one beyond
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    """The condition always comes before the delete: the pod that is held shows what came."""
    await cluster.pod("a", node="lost", finalizers=HELD)
    await cluster.pod("b", node="lost")
    await FAULTS[fault](cluster, number, 70)
    await cluster.sleep(180)
    assert await cluster.find_pod("b") is None
    pod = await cluster.get_pod("a")
    assert pod.is_terminating
    assert pod.status.phase == "Failed"
    assert condition(pod, "DisruptionTarget") == TARGET


@virtual(new_cluster, seeds=3)
async def test_a_new_pod_of_the_same_name_stays(cluster: ControllerCluster) -> None:
    """The orphan goes and another pod takes its name, directly before the delete."""
    await cluster.pod("p", node="lost")
    await cluster.node("there")
    replaced: list[str] = []

    async def before(request: Request) -> None:
        if request.method == "DELETE" and not replaced:
            replaced.append("p")
            options = DeleteOptions(grace_seconds=0)
            namespace = controller_cluster.NAMESPACE
            await cluster.client.delete(kinds.PODS, "p", namespace=namespace, options=options)
            await cluster.pod("p", node="there")

    await cluster.start(before=before)
    await cluster.sleep(100)
    pod = await cluster.find_pod("p")
    assert replaced == ["p"]
    assert pod is not None
    assert (pod.spec.node_name, pod.metadata.deletion_timestamp) == ("there", None)
