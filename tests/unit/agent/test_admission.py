# SPDX-License-Identifier: Apache-2.0
"""Which pods a node takes, and who leaves for a critical one (behaviour D6)."""

from typing import Any

import pytest

from refloat.client import kinds
from refloat.policy.job.job_gates import JobGates
from tests.cases import cases
from tests.unit.agent import nodes
from tests.unit.agent.nodes import Nodes, on_nodes

CRITICAL = {"priority": 2_000_001_000, "priorityClassName": "system-node-critical"}


def spec(cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"containers": [nodes.container("main", resources={"requests": requests})], **more}


def busy(name: str = "p", *, stop: int = 0, **more: Any) -> dict[str, Any]:
    return nodes.pod(name, script={"main": {"seconds": None, "stopSeconds": stop}}, **more)


@cases(
    "first second reason text",
    {
        "cpu, in thousandths": (
            spec(cpu="6"),
            spec(cpu="2500m"),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 2500, used: 6000, capacity: 8000",
        ),
        "memory": (
            spec(memory="7Gi"),
            spec(memory="2Gi"),
            "OutOfmemory",
            (
                "Node didn't have enough resource: memory, "
                "requested: 2147483648, used: 7516192768, capacity: 8589934592"
            ),
        ),
        "the first of two": (
            spec(cpu="6", memory="7Gi"),
            spec(cpu="4", memory="2Gi"),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 4000, used: 6000, capacity: 8000",
        ),
        "labels": (
            {},
            {"nodeSelector": {"disk": "ssd"}},
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
    },
)
@on_nodes(seeds=3)
async def test_a_node_turns_away_whom_it_cannot_hold(
    here: Nodes, first: dict[str, Any], second: dict[str, Any], reason: str, text: str
) -> None:
    """behaviour D6, the row of admission."""
    await here.create(busy("a", spec=first))
    await here.after(1)
    await here.create(busy("b", spec=second))
    await here.after(1)
    status = await here.status("b")
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert status["message"] == f"Pod was rejected: {text}"
    assert "containerStatuses" not in status
    assert "conditions" not in status
    assert here.events == [("Warning", reason, text)]
    assert (await here.status("a"))["phase"] == "Running"


@on_nodes()
async def test_what_a_pod_took_is_free_when_it_has_ended(here: Nodes) -> None:
    await here.create(nodes.pod("a", spec=spec(cpu="8")))
    await here.after(2)
    await here.create(nodes.pod("b", spec=spec(cpu="8")))
    await here.after(2)
    assert (await here.status("b"))["phase"] == "Succeeded"


@pytest.mark.parametrize("restart", [False, True], ids=["one agent", "restarted meanwhile"])
@on_nodes(seeds=3)
async def test_a_pod_that_others_called_ended_keeps_its_room_while_it_runs(
    here: Nodes, restart: bool
) -> None:
    await here.create(busy("a", stop=10, spec=spec(cpu="8")))
    await here.after(1)
    await here.patch_status({"phase": "Failed"}, "a")
    await here.after(1)
    if restart:
        await here.restart()
    await here.create(nodes.pod("b", spec=spec(cpu="8")))
    await here.after(20)
    await here.create(nodes.pod("c", spec=spec(cpu="8")))
    await here.after(2)
    assert (await here.status("b"))["reason"] == "OutOfcpu"
    assert (await here.status("c"))["phase"] == "Succeeded"


@on_nodes(seeds=20)
async def test_two_that_come_at_once_do_not_both_get_the_last_place(here: Nodes) -> None:
    # Both ask the API for the node.
    pod_spec = {**spec(cpu="5"), "nodeSelector": {"disk": "ssd"}}
    await here.client.patch(kinds.NODES, "n0", {"metadata": {"labels": {"disk": "ssd"}}})
    for name in ("a", "b"):
        await here.create(busy(name, spec=pod_spec))
    await here.after(2)
    phases = sorted([(await here.status(name))["phase"] for name in ("a", "b")])
    assert phases == ["Failed", "Running"]


@on_nodes()
async def test_labels_that_others_gave_the_node_count(here: Nodes) -> None:
    await here.client.patch(kinds.NODES, "n0", {"metadata": {"labels": {"disk": "ssd"}}})
    await here.create(nodes.pod(spec={"nodeSelector": {"disk": "ssd"}}))
    await here.after(2)
    assert (await here.status())["phase"] == "Succeeded"


@on_nodes(seeds=20)
async def test_a_restarted_agent_counts_those_that_were_there(here: Nodes) -> None:
    """The new pod came while no agent ran, and its name comes first in the order."""
    await here.create(busy("b", spec=spec(cpu="6")))
    await here.after(1)
    await here.crash_agent()
    await here.create(busy("a", spec=spec(cpu="6")))
    await here.boot()
    await here.after(1)
    assert (await here.status("b"))["phase"] == "Running"
    assert (await here.status("a"))["reason"] == "OutOfcpu"


@on_nodes(seeds=5)
async def test_others_leave_for_a_critical_pod_and_it_starts_when_they_have(here: Nodes) -> None:
    """behaviour D6, the row of preemption; F."""
    await here.create(busy("a", stop=5, spec=spec(cpu="6")))
    await here.create(busy("b", spec=spec(cpu="1")))
    await here.after(1)
    await here.create(busy("c", spec={**spec(cpu="3"), **CRITICAL}))
    await here.after(4)
    assert (await here.status("a"))["phase"] == "Running"
    waiting = await here.status("c")
    assert (waiting["phase"], waiting.get("startTime")) == ("Pending", None)
    await here.after(3)
    status = await here.status("a")
    assert (status["phase"], status["reason"]) == ("Failed", "Preempting")
    assert status["message"] == "Preempted in order to admit critical pod"
    (target,) = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert target["reason"] == "TerminationByKubelet"
    assert target["message"] == "Pod was preempted by Kubelet to accommodate a critical pod."
    assert (await here.status("b"))["phase"] == "Running"
    assert (await here.status("c"))["phase"] == "Running"
    assert here.events[0] == ("Warning", "Preempting", "Preempted in order to admit critical pod")
    assert [reason for _, reason, _ in here.events] == ["Preempting", "Killing"]


@on_nodes(seeds=5)
async def test_two_critical_pods_do_not_end_more_than_they_need(here: Nodes) -> None:
    for name in "abcd":
        await here.create(busy(name, stop=5, spec=spec(cpu="2")))
    await here.after(1)
    for name in "xy":
        await here.create(busy(name, spec={**spec(cpu="2"), **CRITICAL}))
    await here.after(12)  # one after the other, as where an admission waits for the ends
    phases = [(await here.status(name))["phase"] for name in "abcdxy"]
    assert sorted(phases[:4]) == ["Failed", "Failed", "Running", "Running"]
    assert phases[4:] == ["Running", "Running"]


@on_nodes()
async def test_a_critical_pod_that_nobody_can_make_room_for_is_turned_away(here: Nodes) -> None:
    await here.create(busy("a", spec=spec(cpu="6")))
    await here.after(1)
    await here.create(busy("c", spec={**spec(cpu="9"), **CRITICAL}))
    await here.after(1)
    status = await here.status("c")
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert status["message"] == (
        "Pod was rejected: Unexpected error while attempting to recover from admission "
        "failure: preemption: error finding a set of pods to preempt: "
        "no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"
    )
    assert (await here.status("a"))["phase"] == "Running"


@on_nodes()
async def test_nobody_leaves_for_a_critical_pod_that_would_not_fit_anyway(here: Nodes) -> None:
    await here.create(busy("a", spec=spec(cpu="6")))
    await here.after(1)
    wrong = {**spec(cpu="3", nodeSelector={"disk": "ssd"}), **CRITICAL}
    await here.create(busy("c", spec=wrong))
    await here.after(1)
    assert (await here.status("c"))["reason"] == "NodeAffinity"
    assert (await here.status("a"))["phase"] == "Running"


@on_nodes()
async def test_a_critical_pod_that_is_deleted_while_it_waits_is_gone(here: Nodes) -> None:
    await here.create(busy("a", stop=10, spec=spec(cpu="6")))
    await here.after(1)
    await here.create(busy("c", spec={**spec(cpu="3"), **CRITICAL}))
    await here.after(1)
    await here.delete("c")
    await here.after(1)
    assert await here.names() == ["a"]
    await here.after(10)
    assert here.runtimes["n0"].containers(here.history[-1]["metadata"]["uid"]) != {}


@on_nodes(ways=nodes.Ways(job_gates=JobGates(pod_disruption_conditions=False)))
async def test_without_its_gate_the_preempted_are_not_said_to_be_disrupted(here: Nodes) -> None:
    """KEP-3329: `PodDisruptionConditions` off."""
    await here.create(busy("a", spec=spec(cpu="6")))
    await here.after(1)
    await here.create(busy("c", spec={**spec(cpu="3"), **CRITICAL}))
    await here.after(2)
    status = await here.status("a")
    assert status["reason"] == "Preempting"
    assert "DisruptionTarget" not in [each["type"] for each in status["conditions"]]
