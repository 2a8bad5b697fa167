# SPDX-License-Identifier: Apache-2.0
"""Shutdowns of machines, which end their pods first (behaviour D1.4, D6.4)."""

import asyncio
from typing import Any

from refloat.policy.node.node_shutdown import ShutdownSettings
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes
from tests.virtual import virtual

TEXT = "Pod was terminated in response to imminent node shutdown."
CRITICAL = {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"}


def outcome(status: dict[str, Any]) -> tuple[str, str | None, str | None]:
    return status["phase"], status.get("reason"), status.get("message")


def ready(node: dict[str, Any]) -> tuple[str, str, str]:
    (condition,) = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    return condition["status"], condition["reason"], condition["message"]


@cases(
    "script code want",
    {
        "it does not listen: 137": ({"ignoreTerm": True}, 137, ("Failed", "Terminated", TEXT)),
        "it exits with 0": ({"stopExitCode": 0}, 0, ("Succeeded", None, None)),
    },
)
@on_nodes(seeds=3)
async def test_a_shutdown_ends_pods_with_the_grace_that_is_left(
    here: Nodes, script: dict[str, Any], code: int, want: tuple[str, str | None, str | None]
) -> None:
    """KEP-3329, "Graceful node shutdown", both variants; the grace is the group's 20 s."""
    await here.create(nodes.pod(script={"main": {"seconds": None, **script}}, grace=60))
    await here.after(1)
    off = asyncio.ensure_future(here.fleet.shut_down("n0"))
    await here.after(1)
    assert ready(await here.node()) == ("False", "KubeletNotReady", "node is shutting down")
    await here.after(22)
    await off
    status = await here.status()
    assert outcome(status) == want
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == code
    (target,) = [c for c in status["conditions"] if c["type"] == "DisruptionTarget"]
    assert (target["reason"], target["message"]) == ("TerminationByKubelet", TEXT)
    assert await here.names() == ["p"]
    assert here.fleet.fault("n0") == "crash"


@on_nodes()
async def test_a_node_that_shuts_down_takes_no_pods(here: Nodes) -> None:
    """behaviour D6.4."""
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 5}}))
    await here.after(1)
    off = asyncio.ensure_future(here.fleet.shut_down("n0"))
    await here.after(1)
    await here.create(nodes.pod("q"))
    await here.after(1)
    status = await here.status("q")
    text = "Pod was rejected as the node is shutting down."
    assert outcome(status) == ("Failed", "NodeShutdown", f"Pod was rejected: {text}")
    assert ("Warning", "NodeShutdown", text) in here.events
    await here.after(5)
    await off
    assert here.node_events[:2] == [
        ("Normal", "NodeShutdown", "Shutdown manager detected shutdown event"),
        ("Normal", "NodeNotReady", "Node n0 status is now: NodeNotReady"),
    ]


@on_nodes()
async def test_critical_pods_go_last_and_nobody_waits_longer_than_its_group(here: Nodes) -> None:
    """behaviour D6.4: 20 s for the rest, then 10 s for those."""
    slow = {"seconds": None, "stopSeconds": 7}
    deaf = {"seconds": None, "ignoreTerm": True, "killSeconds": 100}
    await here.create(nodes.pod("a", script={"main": slow}))
    await here.create(nodes.pod("b", script={"main": deaf}))
    await here.create(nodes.pod("c", script={"main": slow}, spec=CRITICAL))
    await here.after(1)
    off = asyncio.ensure_future(here.fleet.shut_down("n0"))
    await here.after(19)
    phases = [(await here.status(name))["phase"] for name in "abc"]
    assert phases == ["Failed", "Running", "Running"]
    killing = [reason for _, reason, _ in here.events if reason == "Killing"]
    assert len(killing) == 2
    await here.after(9)
    assert (await here.status("c"))["phase"] == "Failed"
    await off
    assert (await here.status("b"))[
        "phase"
    ] == "Running"  # the machine went off before the pod's end


@on_nodes()
async def test_a_machine_that_comes_back_is_ready_and_takes_pods(here: Nodes) -> None:
    await here.fleet.shut_down("n0")
    await here.after(1)
    here.fleet.heal("n0")
    await here.create(nodes.pod())
    await here.after(2)
    assert (await here.status())["phase"] == "Succeeded"
    assert ready(await here.node())[0] == "True"


@on_nodes()
async def test_a_shutdown_that_is_called_off_leaves_the_node_ready(here: Nodes) -> None:
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 15}}))
    await here.create(nodes.pod("c", script={"main": {"seconds": None}}, spec=CRITICAL))
    await here.after(1)
    off = asyncio.ensure_future(here.fleet.shut_down("n0"))
    await here.after(1)
    here.fleet.cancel_shutdown("n0")
    await here.after(30)
    await off
    assert ready(await here.node())[0] == "True"
    assert (await here.status())["reason"] == "Terminated"
    assert (await here.status("c"))["phase"] == "Running"
    assert here.fleet.fault("n0") is None


@virtual(
    nodes.running,
    ways=nodes.Ways(shutdown=ShutdownSettings(grace_seconds=0, critical_grace_seconds=0)),
)
async def test_a_node_without_grace_just_goes_off(here: Nodes) -> None:
    """behaviour D6.4: a kubelet's default."""
    await here.create(nodes.pod(script={"main": {"seconds": None}}))
    await here.after(1)
    await here.fleet.shut_down("n0")
    await here.after(5)
    assert (await here.status())["phase"] == "Running"
    assert here.fleet.fault("n0") == "crash"
