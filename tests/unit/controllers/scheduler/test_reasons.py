# SPDX-License-Identifier: Apache-2.0
"""The reason of a waiting pod stays true, and costs a bounded number of writes."""

import dataclasses

from refloat.client import kinds
from refloat.client.requests import Request
from refloat.runtime.controller import Controller
from tests.simulation.scheduler_cluster import SETTINGS, SchedulerCluster
from tests.virtual import virtual

SOON = SETTINGS.reason_seconds + 1
NO_NODES = "no nodes available to schedule pods"


def insufficient(count: int) -> str:
    return f"0/{count} nodes are available: {count} Insufficient cpu."


async def reason(cluster: SchedulerCluster, name: str = "p") -> str:
    """The message in the pod's condition, without the part about preemption."""
    return (await cluster.why(name)).split(" no new claims")[0]


def count_writes(cluster: SchedulerCluster) -> list[str]:
    """Fills with the paths of the scheduler's writes from now on."""
    paths: list[str] = []

    async def note(request: Request) -> None:
        paths.append(request.path)

    cluster.faulty.before = note
    return paths


@virtual(SchedulerCluster)
async def test_nodes_that_join_and_do_not_fit_are_the_reason(cluster: SchedulerCluster) -> None:
    await cluster.pod(cpu="100")
    await cluster.settle()
    assert await reason(cluster) == NO_NODES
    for name in ("a", "b", "c"):
        await cluster.node(name, cpu="1")
    await cluster.settle(SOON)
    assert await reason(cluster) == insufficient(3)


@virtual(SchedulerCluster)
async def test_node_that_leaves_or_is_cordoned_is_in_the_reason(cluster: SchedulerCluster) -> None:
    for name in ("a", "b"):
        await cluster.node(name, cpu="1")
    await cluster.pod(cpu="100")
    await cluster.settle()
    assert await reason(cluster) == insufficient(2)
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": True}})
    await cluster.settle(SOON)
    assert await reason(cluster) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    )
    await cluster.client.delete(kinds.NODES, "a")
    await cluster.settle(SOON)
    assert await reason(cluster) == insufficient(1)
    await cluster.client.delete(kinds.NODES, "b")
    await cluster.settle(SOON)
    assert await reason(cluster) == NO_NODES


@virtual(SchedulerCluster, dataclasses.replace(SETTINGS, reasons_at_once=3))
async def test_waiting_pods_get_their_new_reason_a_few_at_a_time(cluster: SchedulerCluster) -> None:
    names = [f"p{number}" for number in range(10)]
    for name in names:
        await cluster.pod(name, cpu="100")
    await cluster.settle(SOON)
    paths = count_writes(cluster)
    await cluster.node("a", cpu="1")
    await cluster.settle(SOON)
    assert len(paths) == 3
    await cluster.settle(4 * SOON)
    assert {await reason(cluster, name) for name in names} == {insufficient(1)}
    assert len(paths) == len(names)


@virtual(SchedulerCluster)
async def test_a_node_that_changes_often_costs_no_write_while_the_reason_is_the_same(
    cluster: SchedulerCluster,
) -> None:
    await cluster.node("a", cpu="1")
    for number in range(10):
        await cluster.pod(f"p{number}", cpu="100")
    await cluster.settle(SOON)
    paths = count_writes(cluster)
    for number in range(20):
        await cluster.client.patch(kinds.NODES, "a", {"metadata": {"labels": {"n": str(number)}}})
        await cluster.settle(SOON)
    assert paths == []


@virtual(SchedulerCluster)
async def test_pods_that_wait_cost_nothing_while_nothing_changes(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="1")
    await cluster.pod(cpu="100")
    await cluster.settle(60)
    (scheduler,) = cluster.workers
    assert isinstance(scheduler, Controller)
    before = scheduler.queue.adds
    await cluster.settle(3600)
    assert scheduler.queue.adds == before
