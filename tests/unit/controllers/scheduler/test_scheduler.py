# SPDX-License-Identifier: Apache-2.0
"""Which pods get which node, what is said of those that get none, and what wakes them."""

import dataclasses
from collections import Counter
from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.simulation.scheduler_world import NAMESPACE, SETTINGS, World, world
from tests.virtual import virtual

TAINT: Object = {"key": "example.com/mine", "effect": "NoSchedule"}
ZONE = "topology.kubernetes.io/zone"

NOBODY = "no new claims to deallocate, preemption: 0/1 nodes are available: "
NO_VICTIMS = f"{NOBODY}1 No preemption victims found for incoming pod."
NOT_HELPFUL = f"{NOBODY}1 Preemption is not helpful for scheduling."


def required(*expressions: Object, fields: tuple[Object, ...] = ()) -> Object:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }


def named(*names: str) -> Object:
    field = {"key": "metadata.name", "operator": "In"}
    return required(fields=tuple({**field, "values": [name]} for name in names))


@virtual(seeds=10)
async def test_pods_are_spread(sim: Sim) -> None:
    async with world(sim) as here:
        for name in ("a", "b", "c"):
            await here.node(name)
        for number in range(9):
            await here.pod(f"p{number}", cpu="100m" if number % 2 else None)
            await here.settle(0.1)
        assert Counter((await here.places()).values()) == {"a": 3, "b": 3, "c": 3}


@virtual()
async def test_a_pod_that_asks_for_more_than_any_number_keeps_none_from_its_node(sim: Sim) -> None:
    """It was put there by hand."""
    async with world(sim) as here:
        await here.node("a")
        await here.pod("huge", cpu="1e400", nodeName="a")
        await here.pod()
        await here.settle()
        assert (await here.places())["p"] == "a"


def test_chance_says_which_of_equal_nodes_is_taken() -> None:
    first: list[str] = []

    @virtual(seeds=12)
    async def look(sim: Sim) -> None:
        async with world(sim) as here:
            for name in ("a", "b", "c"):
                await here.node(name)
            await here.pod()
            await here.settle()
            first.extend((await here.places()).values())

    look()
    assert set(first) == {"a", "b", "c"}


@virtual()
async def test_a_bound_pod_says_so_and_an_event_does(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a")
        await here.pod()
        await here.settle()
        condition = await here.condition()
        assert condition is not None
        assert condition["status"] == "True"
        assert here.told.events == [("Normal", "Scheduled", "Successfully assigned default/p to a")]


@pytest.mark.parametrize(
    ("node", "pod", "want"),
    [
        pytest.param(None, {}, "no nodes available to schedule pods", id="no node"),
        pytest.param(
            {"unschedulable": True},
            {},
            f"1 node(s) were unschedulable. {NOT_HELPFUL}",
            id="cordoned",
        ),
        pytest.param(
            {"taints": [TAINT]},
            {},
            f"1 node(s) had untolerated taint(s). {NOT_HELPFUL}",
            id="tainted",
        ),
        pytest.param(
            {"ready": False},
            {},
            f"1 node(s) had untolerated taint(s). {NOT_HELPFUL}",
            id="new and not ready, and tainted for it",
        ),
        pytest.param({"pods": 0}, {}, f"1 Too many pods. {NO_VICTIMS}", id="full"),
        pytest.param(
            {"cpu": "1"}, {"cpu": "2"}, f"1 Insufficient cpu. {NOT_HELPFUL}", id="too small"
        ),
        pytest.param(
            {},
            {"nodeSelector": {"disk": "ssd"}},
            f"1 node(s) didn't match Pod's node affinity/selector. {NOT_HELPFUL}",
            id="not selected",
        ),
        pytest.param(
            {},
            {"affinity": named("b")},
            f"1 node(s) didn't satisfy plugin(s) [NodeAffinity]. {NOT_HELPFUL}",
            id="another is named",
        ),
        pytest.param(
            {},
            {"affinity": named("a", "b")},
            "pod affinity terms conflict. not found",
            id="two are named at once",
        ),
    ],
)
def test_a_pod_without_a_node_says_why(
    node: dict[str, Any] | None, pod: dict[str, Any], want: str
) -> None:
    if node is not None:
        want = f"0/1 nodes are available: {want}"

    @virtual()
    async def check(sim: Sim) -> None:
        async with world(sim) as here:
            if node is not None:
                await here.node("a", **node)
            await here.pod(**pod)
            await here.settle()
            found = await here.get()
            (condition,) = found["status"]["conditions"]
            assert "nodeName" not in found["spec"]
            assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
            assert condition["observedGeneration"] == 1
            assert await here.why() == want
            assert here.told.events == [("Warning", "FailedScheduling", want)]

    check()


@virtual()
async def test_all_reasons_of_all_nodes_are_counted(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", cpu="1")
        await here.node("b", cpu="1", pods=0)
        await here.node("c", taints=[TAINT])
        await here.node("d", unschedulable=True, taints=[TAINT])
        await here.pod(cpu="3")
        await here.settle()
        assert await here.why() == (
            "0/4 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, "
            "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
        )


@virtual()
async def test_a_message_that_has_not_changed_is_not_written_again(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", pods=1)
        for name in ("p", "q", "r"):
            await here.pod(name)
            await here.settle()
        before = await here.get("r")
        await here.change("p", {"phase": "Succeeded"})
        await here.settle()
        assert await here.places() == {"p": "a", "q": "a", "r": ""}
        assert await here.get("r") == before


@virtual()
async def test_a_message_is_brought_up_to_date_and_keeps_its_time(sim: Sim) -> None:
    async with world(sim) as here:
        await here.pod(cpu="3")
        await here.settle()
        await here.node("a")
        await here.pod("q", cpu="3")
        await here.settle()
        await here.delete("p" if (await here.places())["p"] else "q", grace=0)
        await here.settle()
        ((name, node),) = (await here.places()).items()
        assert node == "a"
        assert (await here.condition(name) or {})["status"] == "True"


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        pytest.param({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}, id="if it must"),
        pytest.param(
            {"taints": [TAINT]},
            {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]},
            id="tolerated",
        ),
        pytest.param(
            {"unschedulable": True},
            {
                "tolerations": [
                    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                ]
            },
            id="cordoned and tolerated",
        ),
        pytest.param({"labels": {ZONE: "x"}}, {"nodeSelector": {ZONE: "x"}}, id="selected"),
        pytest.param(
            {"labels": {ZONE: "x"}},
            {"affinity": required({"key": ZONE, "operator": "In", "values": ["w", "x"]})},
            id="required",
        ),
        pytest.param({}, {"affinity": named("a")}, id="named"),
    ],
)
def test_a_node_takes_a_pod_that_puts_up_with_it(node: Object, pod: Object) -> None:
    @virtual()
    async def check(sim: Sim) -> None:
        async with world(sim) as here:
            await here.node("a", **node)
            await here.pod(**pod)
            await here.settle()
            assert await here.places() == {"p": "a"}

    check()


@virtual(seeds=5)
async def test_a_taint_that_only_prefers_is_avoided_while_there_are_others(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
        await here.node("b", pods=3)
        for number in range(4):
            await here.pod(f"p{number}")
            await here.settle(0.1)
        assert Counter((await here.places()).values()) == {"b": 3, "a": 1}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulingGates": [{"name": "example.com/wait"}]}, id="gated"),
        pytest.param({"schedulerName": "mine"}, id="of another scheduler"),
    ],
)
def test_pods_of_others_are_left_alone(spec: dict[str, Any]) -> None:
    @virtual()
    async def check(sim: Sim) -> None:
        async with world(sim) as here:
            await here.node("a")
            await here.pod(**spec)
            before = await here.get()
            await here.settle()
            assert await here.get() == before

    check()


async def _node_without_taint(here: World) -> None:
    await here.client.patch(kinds.NODES, "a", {"spec": {"taints": None}})


async def _bigger_node(here: World) -> None:
    status = {"status": {"allocatable": {"cpu": "9"}}}
    await here.client.patch(kinds.NODES, "a", status, subresource="status")


async def _labelled_node(here: World) -> None:
    await here.client.patch(kinds.NODES, "a", {"metadata": {"labels": {"disk": "ssd"}}})


async def _uncordoned_node(here: World) -> None:
    await here.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": None}})


async def _new_node(here: World) -> None:
    await here.node("b", cpu="9")


async def _open_gate(here: World) -> None:
    patch = {"spec": {"schedulingGates": None}}
    await here.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)


async def _new_toleration(here: World) -> None:
    found = (await here.get())["spec"]["tolerations"]
    patch = {"spec": {"tolerations": [*found, {"key": TAINT["key"], "operator": "Exists"}]}}
    await here.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)


@pytest.mark.parametrize(
    ("node", "pod", "change"),
    [
        pytest.param({"taints": [TAINT]}, {}, _node_without_taint, id="a taint goes"),
        pytest.param({"cpu": "1"}, {"cpu": "5"}, _bigger_node, id="a node grows"),
        pytest.param({}, {"nodeSelector": {"disk": "ssd"}}, _labelled_node, id="a label comes"),
        pytest.param({"unschedulable": True}, {}, _uncordoned_node, id="uncordoned"),
        pytest.param({"cpu": "1"}, {"cpu": "5"}, _new_node, id="a node comes"),
        pytest.param({}, {"schedulingGates": [{"name": "x.y/z"}]}, _open_gate, id="a gate opens"),
        pytest.param({"taints": [TAINT]}, {}, _new_toleration, id="a toleration is added"),
    ],
)
def test_what_changes_wakes_whom_it_helps(node: Object, pod: Object, change: Any) -> None:
    @virtual()
    async def check(sim: Sim) -> None:
        async with world(sim) as here:
            await here.node("a", **node)
            await here.pod(**pod)
            await here.settle(1000)
            assert await here.places() == {"p": ""}
            await change(here)
            await here.settle()
            assert (await here.places())["p"]

    check()


@virtual()
async def test_what_helps_nobody_wakes_nobody(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", cpu="1")
        await here.pod(cpu="5")
        await here.settle()
        writes = here.process.client.writes
        for number in range(5):
            await here.node(f"small-{number}", cpu="2")
        await here.settle()
        assert here.process.client.writes == writes
        assert len(here.told.events) == 1


@virtual(seeds=10)
async def test_a_new_node_takes_those_who_waited_as_many_as_it_can(sim: Sim) -> None:
    async with world(sim) as here:
        for number in range(5):
            await here.pod(f"p{number}")
        await here.settle()
        await here.node("a", pods=3)
        await here.settle()
        assert Counter((await here.places()).values()) == {"a": 3, "": 2}


@virtual(seeds=10)
async def test_a_place_that_becomes_free_is_taken_by_who_waited_longest(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", pods=1)
        for name in ("p", "q", "r"):
            await here.pod(name)
            await here.settle()
        assert await here.places() == {"p": "a", "q": "", "r": ""}
        await here.change("p", {"phase": "Succeeded"})
        await here.settle()
        assert await here.places() == {"p": "a", "q": "a", "r": ""}
        await here.delete("q", grace=0)
        await here.settle()
        assert await here.places() == {"p": "a", "r": "a"}


@virtual(seeds=5)
async def test_who_is_called_and_then_deleted_passes_the_call_on(sim: Sim) -> None:
    async with world(sim, dataclasses.replace(SETTINGS, at_once=1)) as here:
        await here.node("a", pods=1)
        for name in ("p", "q", "r"):
            await here.pod(name)
            await here.settle()
        await here.node("b", pods=1, labels={"is": "b"}, taints=[TAINT])

        async def slow(request: Request) -> None:
            await here.settle(10 if "/busy/binding" in request.path else 0)

        here.process.client.before = slow
        tolerations = [{"key": TAINT["key"], "operator": "Exists"}]
        await here.pod("busy", nodeSelector={"is": "b"}, tolerations=tolerations)
        await here.settle()
        await here.delete("p", grace=0)  # calls q, which has to wait for its turn
        await here.settle()
        await here.delete("q")
        await here.settle(20)
        assert await here.places() == {"busy": "b", "r": "a"}


@virtual(seeds=20)
async def test_a_node_is_never_overfilled(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", pods=2)
        await here.node("b", cpu="3")
        for number in range(9):
            await here.pod(f"p{number}", cpu="900m")
        await here.settle()
        assert Counter((await here.places()).values()) == {"a": 2, "b": 3, "": 4}


@virtual(seeds=5)
async def test_the_more_important_pod_comes_first(sim: Sim) -> None:
    async with world(sim) as here:
        await here.classes(high=10, higher=20)
        for name, priority in (("p", ""), ("q", "high"), ("r", "higher"), ("s", "high")):
            await here.pod(name, priority=priority)
        await here.settle()
        await here.node("a", pods=3)
        await here.settle()
        assert await here.places() == {"p": "", "q": "a", "r": "a", "s": "a"}


@virtual()
async def test_a_pod_that_was_given_its_node_by_hand_takes_its_room(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", cpu="2")
        await here.pod("q", cpu="2", nodeName="a")
        await here.settle()
        await here.pod(cpu="1")
        await here.settle()
        assert await here.places() == {"p": "", "q": "a"}


@virtual()
async def test_pods_of_a_node_that_comes_later_count_from_the_start(sim: Sim) -> None:
    async with world(sim) as here:
        await here.pod("q", cpu="2", nodeName="a")
        await here.settle()
        await here.node("a", cpu="2")
        await here.pod(cpu="1")
        await here.settle()
        assert await here.places() == {"p": "", "q": "a"}


@virtual()
async def test_a_node_that_is_gone_takes_nobody(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a")
        await here.pod("q")
        await here.settle()
        await here.client.delete(kinds.NODES, "a")
        await here.settle()
        await here.pod()
        await here.settle()
        assert await here.why() == "no nodes available to schedule pods"


@virtual(seeds=3)
async def test_a_bind_that_was_refused_gives_its_place_back(sim: Sim) -> None:
    async with world(sim) as here:
        await here.node("a", pods=1)
        here.process.client.refuses = lambda request, number: (
            errors.Forbidden("not you") if "/p/binding" in request.path else None
        )
        await here.pod()
        await here.settle(0.1)
        await here.pod("q")
        await here.settle()
        assert await here.places() == {"p": "", "q": "a"}
