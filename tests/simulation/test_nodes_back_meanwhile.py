# SPDX-License-Identifier: Apache-2.0
"""A node that is ready again between a decision about the node and the write stays as it is.

The node comes back at the moment of a write of the node lifecycle controller, after
the controller has decided. A pod on it tolerates no loss for a single second, so
one moment with a NoExecute taint would cost the pod.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import msgspec
import pytest

from refloat.api import structs
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.client.requests import Request
from refloat.policy.node import node_taints
from refloat.policy.scheduling.tolerations import NO_EXECUTE
from refloat.runtime.informer import Change, Informer
from refloat.sim.faulty_client import nothing
from tests import builders
from tests.simulation.node_cluster import NodeCluster
from tests.virtual import virtual

NODE = "n0"
WELL = ("w0", "w1", "w2", "w3")
KEY = node_taints.UNREACHABLE
AT_ONCE: Object = {"key": KEY, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": 0}

Match: TypeAlias = Callable[[Object], bool]


def is_status(body: Object) -> bool:
    return "status" in body


def is_eviction(body: Object) -> bool:
    taints = body.get("spec", {}).get("taints") or ()
    return any((each["key"], each["effect"]) == (KEY, NO_EXECUTE) for each in taints)


@contextlib.asynccontextmanager
async def versions(cluster: NodeCluster) -> AsyncIterator[list[Node]]:
    """All versions of the node, from now on."""
    every: list[Node] = []

    def saw(change: Change[Node]) -> None:
        node = change.new
        if node is not None and node.metadata.name == NODE:
            every.append(node)

    nodes = Informer(cluster.client, kinds.NODES, clock=cluster.sim.clock, rand=cluster.sim.rand)
    nodes.add_handler(saw)
    nodes.start()
    await nodes.wait_synced()
    try:
        yield every
    finally:
        await nodes.close()


def return_before(cluster: NodeCluster, match: Match, act: Callable[[], Awaitable[None]]) -> None:
    """Act, once, before the first write of this kind to the node."""

    async def before(request: Request) -> None:
        if request.method != "PATCH" or not request.path.startswith(f"/api/v1/nodes/{NODE}"):
            return
        if match(msgspec.json.decode(request.body or b"{}")):
            cluster.faulty.before = nothing
            await act()

    cluster.faulty.before = before


@pytest.mark.parametrize("lag", [0.0, 3.0], ids=["seen", "unseen"])
@pytest.mark.parametrize("said", ["True", "False"])
@pytest.mark.parametrize("match", [is_status, is_eviction], ids=["lost", "tainted"])
@virtual(NodeCluster, seeds=2)
async def test_a_node_that_is_back_meanwhile_is_neither_called_lost_nor_tainted(
    cluster: NodeCluster, match: Match, said: str, lag: float
) -> None:
    """Behaviour C3.4, C3.8; `said`: its Ready condition before it fell silent.

    With a lag the controller learns of the return from the refused write alone.

    A node that said False has a taint already: the other one comes without a turn.
    """
    await cluster.nodes([NODE, *WELL])
    await cluster.post(NODE, Ready=said)
    cluster.keep_beating(*WELL)
    await cluster.pod("p", node=NODE, tolerations=[AT_ONCE])
    await cluster.start()
    await cluster.until(20)
    async with versions(cluster) as every:
        count: list[int] = []

        async def back() -> None:
            cluster.watch_faults.lag = lag
            await cluster.post(NODE)
            await cluster.sleep(0.01)  # the answer of a slow server: `every` has that post
            count.append(len(every))

        return_before(cluster, match, back)
        await cluster.until(65)  # that post is the one sign of life until now
        cluster.keep_beating(NODE)
        await cluster.until(120)
    since = every[count[0] - 1 :]
    assert [structs.is_true(each.status.conditions, "Ready") for each in since] == [True] * len(
        since
    )
    assert [each for each in since if KEY in node_taints.no_execute_held(each)] == []
    assert not (await cluster.get_pod()).is_terminating


@virtual(NodeCluster, seeds=2)
async def test_another_node_of_the_name_is_not_tainted_for_the_first(cluster: NodeCluster) -> None:
    """The node is new and not ready yet, so the node has its own turn (behaviour C3.8, C3.10)."""
    await cluster.nodes([NODE, *WELL])
    cluster.keep_beating(*WELL)
    await cluster.start()
    await cluster.until(20)
    uids: list[str] = []

    async def replace() -> None:
        await cluster.client.delete(kinds.NODES, NODE)
        created = await cluster.client.create(kinds.NODES, builders.node(NODE))
        await cluster.post(NODE, Ready="False")
        uids.append(created.metadata.uid)

    async with versions(cluster) as every:
        return_before(cluster, is_eviction, replace)
        await cluster.until(59.8)
        second = [each for each in every if each.metadata.uid in uids]
        assert second
        assert [each for each in second if node_taints.no_execute_held(each)] == []
        await cluster.until(70)
    assert node_taints.no_execute_held(every[-1]) == [node_taints.NOT_READY]
