# SPDX-License-Identifier: Apache-2.0
"""Nodes that fail and return (behaviour D8)."""

import pytest

from refloat.agent.fleet import Fault
from refloat.api.meta import Object
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes

SILENT: list[Fault] = ["crash", "freeze", "partition"]

TEN = {"main": {"seconds": 10, "exitCode": 3}}
LONG = {"main": {"seconds": None}}


def state(status: Object, of: str = "state") -> Object:
    (container,) = status["containerStatuses"]
    state: Object = container[of]
    return state


@pytest.mark.parametrize("fault", SILENT)
@on_nodes()
async def test_node_that_fails_says_nothing_of_its_pods_any_more(here: Nodes, fault: Fault) -> None:
    await here.create(nodes.pod(script=TEN))
    await here.after(1)
    before = await here.status()
    here.fleet.fail("n0", fault)
    await here.after(100)
    assert before["phase"] == "Running"
    assert await here.status() == before


@on_nodes()
async def test_what_ended_while_a_node_was_frozen_is_told_when_it_thaws(here: Nodes) -> None:
    await here.create(nodes.pod(script=TEN))
    await here.after(1)
    here.fleet.fail("n0", "freeze")
    await here.after(100)
    here.fleet.heal("n0")
    await here.after(1)
    status = await here.status()
    assert status["phase"] == "Failed"
    assert state(status)["terminated"]["exitCode"] == 3


@on_nodes()
async def test_a_machine_that_was_off_has_lost_its_containers(here: Nodes) -> None:
    """behaviour D5.2"""
    await here.create(nodes.pod("never", script=LONG))
    await here.create(nodes.pod("again", script=LONG, policy="OnFailure"))
    await here.after(1)
    here.fleet.fail("n0", "crash")
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(30)
    never, again = await here.status("never"), await here.status("again")
    assert never["phase"] == "Failed"
    assert again["phase"] == "Running"
    assert "running" in state(again)
    terminated = state(again, "lastState")["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "ContainerStatusUnknown")


@on_nodes()
async def test_a_node_that_is_cut_off_goes_on_with_what_it_knows(here: Nodes) -> None:
    """Containers restart while the agent cannot report."""
    await here.create(nodes.pod(script=TEN, policy="OnFailure"))
    await here.after(1)
    here.fleet.fail("n0", "partition")
    await here.after(100)
    assert (await here.status())["containerStatuses"][0]["restartCount"] == 0
    here.fleet.heal("n0")
    await here.after(1)
    assert (await here.status())["containerStatuses"][0]["restartCount"] > 1


@pytest.mark.parametrize("fault", ["freeze", "partition"])
@on_nodes()
async def test_a_pod_deleted_meanwhile_ends_with_its_grace_after_the_heal(
    here: Nodes, fault: Fault
) -> None:
    """behaviour D8.1"""
    await here.create(nodes.pod(script={"main": {"seconds": None, "stopSeconds": 5}}))
    await here.after(1)
    here.fleet.fail("n0", fault)
    await here.delete()
    await here.after(100)
    assert await here.names() == ["p"]
    here.fleet.heal("n0")
    await here.after(4)
    assert await here.names() == ["p"]
    await here.after(2)
    assert await here.names() == []
    assert here.runtimes["n0"].pods() == []


@on_nodes()
async def test_a_phase_that_was_set_meanwhile_is_kept(here: Nodes) -> None:
    """behaviour D8.2: even where the containers ended well."""
    script = {"main": {"seconds": None, "stopExitCode": 0}}
    await here.create(nodes.pod(script=script, finalizers=["example.com/held"]))
    await here.after(1)
    here.fleet.fail("n0", "freeze")
    await here.delete()
    await here.patch_status({"phase": "Failed", "reason": "Lost"})
    await here.after(60)
    here.fleet.heal("n0")
    await here.after(60)
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Lost")
    assert here.runtimes["n0"].containers("p") == {}


@on_nodes()
async def test_a_phase_that_the_node_has_not_heard_of_is_kept(here: Nodes) -> None:
    """behaviour D8.2: a container ends before the watch delivers the writes of others."""
    script = {"main": {"seconds": 10, "exitCode": 0}}
    await here.create(nodes.pod(script=script, finalizers=["example.com/held"]))
    await here.after(5)
    here.fleet.fail("n0", "partition")
    await here.patch_status({"phase": "Failed", "reason": "Lost"})
    await here.after(1)
    here.fleet._faults.clear()  # the node may write again, but missed all events
    await here.after(60)
    assert here.runtimes["n0"].containers("p") == {}
    status = await here.status()
    assert (status["phase"], status["reason"]) == ("Failed", "Lost")


@on_nodes()
async def test_a_refused_write_tells_the_node_what_its_watch_has_not(here: Nodes) -> None:
    """behaviour D4.1: the other container is ended as soon as the phase is seen."""
    script = {"main": {"seconds": 10}, "other": {"seconds": None, "stopSeconds": 1}}
    two = [nodes.container("main"), nodes.container("other")]
    pod = await here.create(nodes.pod(script=script, spec={"containers": two}))
    await here.after(5)
    here.fleet.fail("n0", "partition")
    await here.patch_status({"phase": "Failed", "reason": "Lost"})
    await here.after(1)
    here.fleet._faults.clear()  # the node may write again, but missed all events
    await here.after(10)
    containers = here.runtimes["n0"].containers(pod["metadata"]["uid"])
    assert containers["other"].current.has_ended
    assert (await here.status())["reason"] == "Lost"


@on_nodes()
async def test_what_is_left_of_a_pod_that_is_gone_is_killed(here: Nodes) -> None:
    """behaviour D8.3: a later pod of the same name is another pod."""
    first = await here.create(nodes.pod(script=LONG))
    await here.after(1)
    here.fleet.fail("n0", "freeze")
    await here.delete(gracePeriodSeconds=0)
    second = await here.create(nodes.pod(script=LONG))
    await here.after(60)
    assert here.runtimes["n0"].pods() == [first["metadata"]["uid"]]
    here.fleet.heal("n0")
    await here.after(5)
    assert here.runtimes["n0"].pods() == [second["metadata"]["uid"]]
    assert (await here.status())["phase"] == "Running"


@on_nodes(count=2)
async def test_other_nodes_do_not_notice(here: Nodes) -> None:
    here.fleet.fail("n0", "crash")
    await here.create(nodes.pod("q", node="n1", script={"main": {"seconds": 1}}))
    await here.after(3)
    assert (await here.status("q"))["phase"] == "Succeeded"
    assert (here.fleet.fault("n0"), here.fleet.fault("n1")) == ("crash", None)
