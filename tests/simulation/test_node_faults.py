# SPDX-License-Identifier: Apache-2.0
"""Node lifecycle and taint eviction that are killed, lag or are refused: the same end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from refloat.api import structs
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Pod
from refloat.client import errors, kinds
from refloat.runtime.informer import Change, Informer
from tests import builders
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.node_cluster import NodeCluster
from tests.virtual import virtual

NODES = ("lost", "back", "well", "fine", "good")
PODS = ("p", "q", "kept", "elsewhere")

TOLERATIONS = [
    {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 100,
    }
]

# The pods of the lost node leave at 150 s; after a restart then, a hundred seconds later.
END = 300.0


@contextlib.asynccontextmanager
async def witness(cluster: NodeCluster) -> AsyncIterator[list[str]]:
    """Lists pods that were deleted without the condition DisruptionTarget."""
    unsaid: list[str] = []

    def saw(change: Change[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.is_terminating:
            return
        if not structs.is_true(pod.status.conditions, "DisruptionTarget"):
            unsaid.append(pod.metadata.name)

    pods = Informer(cluster.client, kinds.PODS, clock=cluster.sim.clock, rand=cluster.sim.rand)
    pods.add_handler(saw)
    pods.start()
    try:
        yield unsaid
    finally:
        await pods.close()


async def play(cluster: NodeCluster) -> dict[str, Any]:
    """One node is lost for good, one comes back; returns the end."""
    await cluster.nodes(NODES)
    cluster.keep_beating(*NODES[2:])
    for pod, node in zip(PODS, ("lost", "lost", "back", "well"), strict=True):
        await cluster.pod(pod, node=node, tolerations=TOLERATIONS)
    async with witness(cluster) as unsaid:
        await cluster.start()
        return_at = cluster.sim.clock.monotonic() + 120
        await until_dead_or(cluster, return_at)
        await cluster.post("back")
        cluster.keep_beating("back")
        await until_dead_or(cluster, return_at - 120 + END)
        end = await end_of(cluster)
    assert unsaid == []
    return end


async def until_dead_or(cluster: NodeCluster, when: float) -> None:
    """Wait; controllers that die meanwhile are started anew."""
    while (remaining := when - cluster.sim.clock.monotonic()) > 0:
        with contextlib.suppress(TimeoutError):
            async with cluster.sim.clock.timeout(remaining):
                await cluster.faulty.died.wait()
                cluster.faults = {}
                await cluster.start()


async def end_of(cluster: NodeCluster) -> dict[str, Any]:
    end: dict[str, Any] = {}
    for name in NODES:
        end[name] = (await cluster.ready(name), sorted(await cluster.taints(name)))
    for name in PODS:
        pod = await cluster.get_pod(name)
        conditions = sorted((each.type, each.status) for each in pod.status.conditions or ())
        end[name] = (pod.is_terminating, conditions)
    return end


WANT: dict[str, Any] = {
    "lost": ("Unknown", ["unreachable:NoExecute", "unreachable:NoSchedule"]),
    "back": ("True", []),
    "well": ("True", []),
    "fine": ("True", []),
    "good": ("True", []),
    "p": (True, [("DisruptionTarget", "True"), ("Ready", "False")]),
    "q": (True, [("DisruptionTarget", "True"), ("Ready", "False")]),
    # Its node's kubelet, which does not run here, would make the pod ready again.
    "kept": (False, [("Ready", "False")]),
    "elsewhere": (False, [("Ready", "True")]),
}


@virtual(NodeCluster, seeds=3)
async def test_undisturbed(cluster: NodeCluster) -> None:
    assert await play(cluster) == WANT
    # Five taints of new nodes, two lost nodes with a write each on the status and for
    # each taint, their three pods, two taints that go again, and two pods deleted.
    assert cluster.faulty.writes == 5 + 2 * 3 + 3 + 2 + 2 * 2


@pytest.mark.parametrize("dies_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 21))
@virtual(NodeCluster)
async def test_killed_at_a_write(cluster: NodeCluster, number: int, dies_after: bool) -> None:
    cluster.faults = {"dies_at": number, "dies_after": dies_after}
    assert await play(cluster) == WANT


@virtual(NodeCluster, seeds=5)
async def test_caches_that_lag(cluster: NodeCluster) -> None:
    cluster.watch_faults.lag = 3.0
    assert await play(cluster) == WANT


@pytest.mark.parametrize(
    "error",
    [errors.Unavailable("away"), errors.Conflict("changed"), errors.Timeout("late")],
    ids=["unavailable", "conflict", "timeout"],
)
@virtual(NodeCluster)
async def test_every_third_write_is_refused(
    cluster: NodeCluster, error: errors.ClientError
) -> None:
    cluster.faults = {"refuses": lambda _, number: error if number % 3 == 0 else None}
    assert await play(cluster) == WANT


@virtual(NodeCluster, seeds=3)
async def test_writes_that_happen_and_are_not_answered(cluster: NodeCluster) -> None:
    """Whatever happened once more does no harm."""
    cluster.faults = {"loses": (5 + cluster.sim.rand.below(10),)}
    assert await play(cluster) == WANT


async def started_with_a_server_that_goes(cluster: NodeCluster) -> asyncio.Event:
    """The server is away while the event is set."""
    away = asyncio.Event()
    error = errors.Unreachable("away")
    cluster.faults = {"refuses": lambda request, _: error if away.is_set() else None}
    await cluster.nodes(NODES[2:])
    cluster.keep_beating(*NODES[2:])
    await cluster.pod("p", node="well")
    await cluster.start()
    return away


@virtual(NodeCluster)
async def test_a_server_that_is_away_for_a_minute(cluster: NodeCluster) -> None:
    """Kubernetes gives up after five attempts; here the pod leaves when the server is back."""
    away = await started_with_a_server_that_goes(cluster)
    await cluster.taint("well", {"key": "k", "effect": "NoExecute"})
    away.set()
    await cluster.until(60)
    assert not (await cluster.get_pod()).is_terminating
    away.clear()
    await cluster.until(130)
    assert (await cluster.get_pod()).is_terminating


@virtual(NodeCluster)
async def test_taint_that_goes_while_a_delete_fails_lets_the_pod_stay(cluster: NodeCluster) -> None:
    away = await started_with_a_server_that_goes(cluster)
    away.set()
    await cluster.taint("well", {"key": "k", "effect": "NoExecute"})
    await cluster.until(20)
    await cluster.taint("well")
    away.clear()
    await cluster.until(300)
    assert not (await cluster.get_pod()).is_terminating


@virtual(NodeCluster)
async def test_nobody_is_called_lost_while_leases_are_not_seen(cluster: NodeCluster) -> None:
    """Behaviour C3.3: the server has newer leases than the cache."""
    await cluster.nodes(NODES)
    cluster.keep_beating(*NODES)
    await cluster.start()
    await cluster.until(12)
    await cluster.process.env.informer(kinds.LEASES).close()  # its cache stays as it is
    await cluster.until(300)
    assert {await cluster.ready(each) for each in NODES} == {"True"}


@virtual(NodeCluster)
async def test_after_leases_are_seen_again_lost_nodes_are_called_lost(cluster: NodeCluster) -> None:
    """Behaviour C3.3."""
    await cluster.nodes(NODES)
    cluster.keep_beating(*NODES[1:])
    await cluster.start()
    await cluster.until(12)
    await cluster.process.env.informer(kinds.LEASES).close()
    await cluster.until(100)
    cluster.process.env.informer(kinds.LEASES).start()
    await cluster.until(160)
    assert await cluster.ready("lost") == "Unknown"
    assert {await cluster.ready(each) for each in NODES[1:]} == {"True"}


@virtual(NodeCluster)
async def test_a_lease_that_came_and_went_unseen_keeps_no_node_from_being_called_lost(
    cluster: NodeCluster,
) -> None:
    """Behaviour C3.3: the cache has caught up, though its copy of that Lease has not changed."""
    await cluster.nodes(NODES)
    await cluster.node("bare", leases=False)
    cluster.keep_beating(*NODES)
    await cluster.start()
    await cluster.until(12)
    await cluster.process.env.informer(kinds.LEASES).close()
    await cluster.client.create(kinds.LEASES, builders.lease("bare"), namespace=NODE_NAMESPACE)
    await cluster.until(57)
    assert await cluster.ready("bare") == "True"
    await cluster.client.delete(kinds.LEASES, "bare", namespace=NODE_NAMESPACE)
    cluster.process.env.informer(kinds.LEASES).start()
    cluster.silence("lost")
    await cluster.until(120)
    assert await cluster.ready("bare") == "Unknown"
    assert await cluster.ready("lost") == "Unknown"
    assert {await cluster.ready(each) for each in NODES[1:]} == {"True"}


@virtual(NodeCluster)
async def test_what_is_seen_twice_is_done_once(cluster: NodeCluster) -> None:
    """All events come again, as after a watch that was cut: no countdown starts again or twice."""
    await cluster.nodes(NODES[2:])
    cluster.keep_beating(*NODES[2:])
    await cluster.pod("p", node="well")
    await cluster.start()
    await cluster.taint("well", {"key": "k", "effect": "NoExecute"})
    await cluster.until(5)
    for informer in (
        cluster.process.env.informer(kinds.PODS),
        cluster.process.env.informer(kinds.NODES),
    ):
        await informer.close()
        informer.start()
    await cluster.until(60)
    marked = [each for each in cluster.event_log.about("Pod/p") if "Marking" in each[1]]
    assert len(marked) == 1
    pods = [page async for page in cluster.client.list(kinds.PODS, namespace=NAMESPACE)]
    assert len(pods[0].items) == 1
