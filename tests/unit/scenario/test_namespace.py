# SPDX-License-Identifier: Apache-2.0
"""What a scenario's namespace knows after cuts and late starts, and how it waits."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from refloat.client.contract import DeleteOptions
from refloat.scenario.cluster import NODES, PODS, ScenarioCluster
from refloat.scenario.errors import ConditionTimeout
from refloat.scenario.namespace import PATIENCE_SECONDS, ScenarioNamespace
from refloat.scenario.nodes import ScenarioNodes
from refloat.sim import api_server
from refloat.sim.faulty_client import LaggingClient, WatchFaults
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

AT_ONCE = DeleteOptions(grace_seconds=0)


@contextlib.asynccontextmanager
async def opened(sim: Sim, faults: WatchFaults | None = None) -> AsyncIterator[ScenarioNamespace]:
    async with api_server.serve(sim) as server:
        client = LaggingClient(server, sim, faults or WatchFaults())
        cluster = ScenarioCluster(client, sim.clock, sim.rand)
        await cluster.open()
        yield ScenarioNamespace(cluster, "default")
        await cluster.close()


async def create(ns: ScenarioNamespace, *names: str) -> None:
    """Create pods, and wait until the watch has shown all of them."""
    for name in names:
        pod = await ns.client.create(PODS, builders.pod(name), namespace=ns.name)
        assert await ns.shown(pod) == pod


def names(ns: ScenarioNamespace) -> list[str]:
    return [pod["metadata"]["name"] for pod in ns.present]


@virtual()
async def test_a_pod_that_is_deleted_while_the_watch_is_cut_is_gone(sim: Sim) -> None:
    faults = WatchFaults()
    async with opened(sim, faults) as ns:
        await create(ns, "a", "b")
        faults.gaps = 1.0
        await ns.delete_pod(ns.named("a"), AT_ONCE)
        await ns.sleep(5)
        assert names(ns) == ["a", "b"]
        faults.gaps = 0.0
        await ns.wait_until(lambda ns: ns.gone)
        assert names(ns) == ["b"]


@virtual(opened)
async def test_a_late_namespace_has_what_is_there(ns: ScenarioNamespace) -> None:
    await create(ns, "a", "b")
    await ns.delete_pod(ns.named("a"), AT_ONCE)
    await ns.wait_until(lambda ns: ns.gone)
    assert names(ScenarioNamespace(ns.cluster, "default")) == ["b"]
    assert names(ScenarioNamespace(ns.cluster, "other")) == []


@virtual(opened)
async def test_the_most_at_once_are_counted_by_index_too(ns: ScenarioNamespace) -> None:
    for name, index in (("a", "0"), ("b", "1"), ("c", "1")):
        annotations = {"batch.kubernetes.io/job-completion-index": index}
        body = builders.pod(name, annotations=annotations)
        await ns.shown(await ns.client.create(PODS, body, namespace=ns.name))
        if name != "b":
            over = {"status": {"phase": "Succeeded"}}
            await ns.shown(await ns.patch_pod(ns.named(name), over, "status"))
    assert (ns.most_at_once(), ns.most_at_once(0), ns.most_at_once(1)) == (2, 1, 2)


@virtual(opened)
async def test_a_wait_in_vain_ends_with_the_state(ns: ScenarioNamespace) -> None:
    await create(ns, "a")
    began = ns.cluster.clock.monotonic()
    with pytest.raises(ConditionTimeout, match=r"j is not over within 300 s: .*\n  a: Pending"):
        await ns.finished("j")
    assert ns.cluster.clock.monotonic() - began == pytest.approx(PATIENCE_SECONDS)


@virtual(opened)
async def test_a_node_is_ready_when_it_takes_pods(ns: ScenarioNamespace) -> None:
    nodes = ScenarioNodes(ns.cluster)
    await ns.client.create(NODES, builders.node("n"))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await nodes.shown(await ns.client.patch(NODES, "n", ready, subresource="status"))
    assert (nodes.taints("n"), nodes.is_ready("n")) == (["node.kubernetes.io/not-ready"], False)
    await nodes.patch("n", taints=None)
    await nodes.wait_ready("n")
    assert not nodes.is_ready("absent")
