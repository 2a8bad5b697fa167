# SPDX-License-Identifier: Apache-2.0
"""Machines that go off, and tell their pods before (behaviour D1.4, D6.4)."""

import asyncio
from typing import Any

import pytest

from refloat.policy.node_shutdown import ShutdownSettings
from refloat.sim.run import Sim
from tests.unit.agent import nodes
from tests.virtual import virtual

TEXT = "Pod was terminated in response to imminent node shutdown."
CRITICAL = {"priority": 2_000_000_000, "priorityClassName": "system-cluster-critical"}


def told(status: dict[str, Any]) -> tuple[str, str | None, str | None]:
    return status["phase"], status.get("reason"), status.get("message")


def ready(node: dict[str, Any]) -> tuple[str, str, str]:
    (found,) = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("script", "code", "want"),
    [
        pytest.param(
            {"ignoreTerm": True}, 137, ("Failed", "Terminated", TEXT), id="it does not listen: 137"
        ),
        pytest.param({"stopExitCode": 0}, 0, ("Succeeded", None, None), id="it exits with 0"),
    ],
)
def test_a_shutdown_ends_pods_with_the_grace_that_is_left(
    script: dict[str, Any], code: int, want: tuple[str, str | None, str | None]
) -> None:
    """KEP-3329, "Graceful node shutdown", both variants; the grace is the group's 20 s."""

    @virtual(seeds=3)
    async def check(sim: Sim) -> None:
        async with nodes.running(sim) as here:
            await here.create(nodes.pod(script={"main": {"seconds": None, **script}}, grace=60))
            await here.after(1)
            off = asyncio.ensure_future(here.fleet.shut_down("n0"))
            await here.after(1)
            assert ready(await here.node()) == (
                "False",
                "KubeletNotReady",
                "node is shutting down",
            )
            await here.after(22)
            await off
            status = await here.status()
            assert told(status) == want
            ended = status["containerStatuses"][0]["state"]["terminated"]
            assert ended["exitCode"] == code
            (target,) = [c for c in status["conditions"] if c["type"] == "DisruptionTarget"]
            assert (target["reason"], target["message"]) == ("TerminationByKubelet", TEXT)
            assert await here.names() == ["p"]
            assert here.fleet.fault("n0") == "crash"

    check()


@virtual()
async def test_a_node_that_shuts_down_takes_no_pods(sim: Sim) -> None:
    """behaviour D6.4."""
    async with nodes.running(sim) as here:
        await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 5}}))
        await here.after(1)
        off = asyncio.ensure_future(here.fleet.shut_down("n0"))
        await here.after(1)
        await here.create(nodes.pod("q"))
        await here.after(1)
        status = await here.status("q")
        text = "Pod was rejected as the node is shutting down."
        assert told(status) == ("Failed", "NodeShutdown", f"Pod was rejected: {text}")
        assert ("Warning", "NodeShutdown", text) in here.told
        await here.after(5)
        await off
        assert here.told_of_nodes[:2] == [
            ("Normal", "NodeShutdown", "Shutdown manager detected shutdown event"),
            ("Normal", "NodeNotReady", "Node n0 status is now: NodeNotReady"),
        ]


@virtual()
async def test_critical_pods_go_last_and_nobody_waits_longer_than_its_group(sim: Sim) -> None:
    """behaviour D6.4: 20 s for the rest, then 10 s for those."""
    slow = {"seconds": None, "stopSeconds": 7}
    deaf = {"seconds": None, "ignoreTerm": True, "killSeconds": 100}
    async with nodes.running(sim) as here:
        await here.create(nodes.pod("a", script={"main": slow}))
        await here.create(nodes.pod("b", script={"main": deaf}))
        await here.create(nodes.pod("c", script={"main": slow}, spec=CRITICAL))
        await here.after(1)
        off = asyncio.ensure_future(here.fleet.shut_down("n0"))
        await here.after(19)
        phases = [(await here.status(name))["phase"] for name in "abc"]
        assert phases == ["Failed", "Running", "Running"]
        killing = [reason for _, reason, _ in here.told if reason == "Killing"]
        assert len(killing) == 2
        await here.after(9)
        assert (await here.status("c"))["phase"] == "Failed"
        await off
        assert (await here.status("b"))["phase"] == "Running"  # the machine went off under it


@virtual()
async def test_a_machine_that_comes_back_is_ready_and_takes_pods(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await here.fleet.shut_down("n0")
        await here.after(1)
        here.fleet.heal("n0")
        await here.create(nodes.pod())
        await here.after(2)
        assert (await here.status())["phase"] == "Succeeded"
        assert ready(await here.node())[0] == "True"


@virtual()
async def test_a_shutdown_that_is_called_off_leaves_the_node_ready(sim: Sim) -> None:
    async with nodes.running(sim) as here:
        await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 15}}))
        await here.create(nodes.pod("c", script={"main": {"seconds": None}}, spec=CRITICAL))
        await here.after(1)
        off = asyncio.ensure_future(here.fleet.shut_down("n0"))
        await here.after(1)
        here.fleet.call_off("n0")
        await here.after(30)
        await off
        assert ready(await here.node())[0] == "True"
        assert (await here.status())["reason"] == "Terminated"
        assert (await here.status("c"))["phase"] == "Running"
        assert here.fleet.fault("n0") is None


@virtual()
async def test_a_node_without_grace_just_goes_off(sim: Sim) -> None:
    """behaviour D6.4: a kubelet's default."""
    ways = nodes.Ways(shutdown=ShutdownSettings(grace_seconds=0, critical_grace_seconds=0))
    async with nodes.running(sim, ways=ways) as here:
        await here.create(nodes.pod(script={"main": {"seconds": None}}))
        await here.after(1)
        await here.fleet.shut_down("n0")
        await here.after(5)
        assert (await here.status())["phase"] == "Running"
        assert here.fleet.fault("n0") == "crash"
