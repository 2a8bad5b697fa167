# SPDX-License-Identifier: Apache-2.0
"""Registration and heartbeats of nodes (behaviour D1)."""

import itertools
from datetime import timedelta
from typing import Any

import pytest

from refloat.agent.node import NodeSettings
from refloat.api import times
from refloat.client import errors, kinds
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def lease(here: nodes.Nodes, name: str = "n0") -> dict[str, Any]:
    return await here.call("GET", f"{LEASES}/{name}")


@on_nodes(3)
async def test_a_node_registers_with_its_capacity_and_is_ready(here: Nodes) -> None:
    for name in ("n0", "n1", "n2"):
        node = await here.call("GET", f"/api/v1/nodes/{name}")
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert node["status"]["allocatable"]["pods"] == "110"
        conditions = {each["type"]: each for each in node["status"]["conditions"]}
        assert {kind: each["status"] for kind, each in conditions.items()} == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        ready = conditions["Ready"]
        assert (ready["reason"], ready["message"]) == (
            "KubeletReady",
            "kubelet is posting ready status",
        )


@on_nodes(seeds=5)
async def test_a_lease_is_renewed_every_ten_seconds(here: Nodes) -> None:
    """behaviour D1.1."""
    node = await here.call("GET", "/api/v1/nodes/n0")
    first = await lease(here)
    assert first["spec"]["holderIdentity"] == "n0"
    assert first["spec"]["leaseDurationSeconds"] == 40
    owner = first["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
    renewed = {first["spec"]["renewTime"]}
    for _ in range(1000):
        await here.after(0.1)
        renewed.add((await lease(here))["spec"]["renewTime"])
    moments = sorted(map(times.parse, renewed))
    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert len(gaps) == 9
    assert all(timedelta(seconds=10) <= gap <= timedelta(seconds=10.4) for gap in gaps)


@on_nodes(50)
async def test_beats_of_many_nodes_fall_together(here: Nodes) -> None:
    """So that they share commits; but not all of them at once."""
    await here.after(25)
    renewed = [(await lease(here, f"n{each}"))["spec"]["renewTime"] for each in range(50)]
    assert 2 <= len(set(renewed)) <= 10


@on_nodes()
async def test_an_unchanged_status_is_sent_again_only_after_minutes(here: Nodes) -> None:
    """behaviour D1.2."""
    before = await here.call("GET", "/api/v1/nodes/n0")
    await here.after(140)
    assert await here.call("GET", "/api/v1/nodes/n0") == before
    await here.after(330)
    later = await here.call("GET", "/api/v1/nodes/n0")
    ready, was = (each["status"]["conditions"][-1] for each in (later, before))
    assert ready["lastHeartbeatTime"] > was["lastHeartbeatTime"]
    assert ready["lastTransitionTime"] == was["lastTransitionTime"]


UNKNOWN = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "Kubelet stopped posting node status.",
}


@on_nodes(seeds=3)
async def test_a_node_that_others_call_unknown_says_at_its_next_beat_that_it_is_there(
    here: Nodes,
) -> None:
    """behaviour D1.2: a write of another component is a change too, without `resume`."""
    await here.after(25)
    await here.client.patch(
        kinds.NODES,
        "n0",
        {"status": {"conditions": [UNKNOWN]}},
        patch_type="strategic",
        subresource="status",
    )
    await here.after(10.5)
    node = await here.call("GET", "/api/v1/nodes/n0")
    (ready,) = (each for each in node["status"]["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "KubeletReady")


@on_nodes(seeds=5)
async def test_a_node_that_was_deleted_does_not_come_back_at_the_next_beat(here: Nodes) -> None:
    """The pod collector must find the pods, as for a kubelet's deleted node, also if the next
    report was due just then."""
    await here.after(300 * here.sim.rand.random())
    await here.client.delete(kinds.NODES, "n0")
    await here.after(60)
    with pytest.raises(errors.NotFound):
        await here.client.get(kinds.NODES, "n0")


@on_nodes()
async def test_a_silent_node_renews_nothing_and_its_pods_run_on(here: Nodes) -> None:
    here.fleet.fail("n0", "freeze")
    await here.after(15)
    before = await lease(here)
    await here.after(60)
    assert await lease(here) == before
    here.fleet.heal("n0")
    await here.after(0.1)
    assert (await lease(here))["spec"]["renewTime"] > before["spec"]["renewTime"]


@on_nodes()
async def test_a_node_and_a_lease_that_were_deleted_come_back(here: Nodes) -> None:
    await here.client.delete(kinds.NODES, "n0")
    await here.client.delete(kinds.LEASES, "n0", namespace="kube-node-lease")
    await here.after(11)
    assert (await lease(here))["spec"]["holderIdentity"] == "n0"
    await here.after(470)
    assert (await here.call("GET", "/api/v1/nodes/n0"))["status"]["allocatable"]


@on_nodes()
async def test_a_restarted_agent_takes_over_its_node_and_lease(here: Nodes) -> None:
    before = await lease(here)
    await here.after(3)
    await here.restart()
    await here.after(1)
    after = await lease(here)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["renewTime"] > before["spec"]["renewTime"]


@on_nodes()
async def test_a_node_says_where_it_is_reached_and_whom_it_keeps_away(here: Nodes) -> None:
    await here.crash_agent()
    taint = {"key": "example.com/mine", "effect": "NoExecute"}
    here.settings = [
        NodeSettings(
            "real",
            version="v1",
            info={"bootID": "b"},
            address="10.0.0.7",
            port=10250,
            taints=(taint,),
        )
    ]
    here.runtimes["real"] = here.runtimes["n0"]
    await here.boot()
    await here.after(1)
    node = await here.call("GET", "/api/v1/nodes/real")
    assert node["spec"]["taints"] == [taint, NOT_READY]
    status = node["status"]
    assert status["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert (status["nodeInfo"]["kubeletVersion"], status["nodeInfo"]["bootID"]) == ("v1", "b")
