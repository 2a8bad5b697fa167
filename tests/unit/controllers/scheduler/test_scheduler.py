# SPDX-License-Identifier: Apache-2.0
"""Which pods get which node, the events of pods that get none, and what wakes these."""

import dataclasses
from collections import Counter
from typing import Any

from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.scheduler_cluster import SETTINGS, SchedulerCluster
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


@virtual(SchedulerCluster, seeds=10)
async def test_pods_are_spread(cluster: SchedulerCluster) -> None:
    for name in ("a", "b", "c"):
        await cluster.node(name)
    for number in range(9):
        await cluster.pod(f"p{number}", cpu="100m" if number % 2 else None)
        await cluster.settle(0.1)
    assert Counter((await cluster.places()).values()) == {"a": 3, "b": 3, "c": 3}


@virtual(SchedulerCluster)
async def test_pod_of_endless_request_keeps_none_from_its_node(cluster: SchedulerCluster) -> None:
    """It was put there by hand."""
    await cluster.node("a")
    await cluster.pod("huge", cpu="1e400", nodeName="a")
    await cluster.pod()
    await cluster.settle()
    assert (await cluster.places())["p"] == "a"


def test_chance_says_which_of_equal_nodes_is_taken() -> None:
    first: list[str] = []

    @virtual(seeds=12)
    async def look(sim: Sim) -> None:
        async with SchedulerCluster(sim) as cluster:
            for name in ("a", "b", "c"):
                await cluster.node(name)
            await cluster.pod()
            await cluster.settle()
            first.extend((await cluster.places()).values())

    look()
    assert set(first) == {"a", "b", "c"}


@virtual(SchedulerCluster)
async def test_a_bound_pod_says_so_and_an_event_does(cluster: SchedulerCluster) -> None:
    await cluster.node("a")
    await cluster.pod()
    await cluster.settle()
    condition = await cluster.condition()
    assert condition is not None
    assert condition["status"] == "True"
    assert cluster.event_log.events == [
        ("Normal", "Scheduled", "Successfully assigned default/p to a")
    ]


@cases(
    "node pod want",
    {
        "no node": (None, {}, "no nodes available to schedule pods"),
        "cordoned": ({"unschedulable": True}, {}, f"1 node(s) were unschedulable. {NOT_HELPFUL}"),
        "tainted": ({"taints": [TAINT]}, {}, f"1 node(s) had untolerated taint(s). {NOT_HELPFUL}"),
        "new and not ready, and tainted for it": (
            {"ready": False},
            {},
            f"1 node(s) had untolerated taint(s). {NOT_HELPFUL}",
        ),
        "full": ({"pods": 0}, {}, f"1 Too many pods. {NO_VICTIMS}"),
        "too small": ({"cpu": "1"}, {"cpu": "2"}, f"1 Insufficient cpu. {NOT_HELPFUL}"),
        "not selected": (
            {},
            {"nodeSelector": {"disk": "ssd"}},
            f"1 node(s) didn't match Pod's node affinity/selector. {NOT_HELPFUL}",
        ),
        "another is named": (
            {},
            {"affinity": named("b")},
            f"1 node(s) didn't satisfy plugin(s) [NodeAffinity]. {NOT_HELPFUL}",
        ),
        "two are named at once": (
            {},
            {"affinity": named("a", "b")},
            "pod affinity terms conflict. not found",
        ),
    },
)
@virtual()
async def test_a_pod_without_a_node_says_why(
    sim: Sim, node: dict[str, Any] | None, pod: dict[str, Any], want: str
) -> None:
    if node is not None:
        want = f"0/1 nodes are available: {want}"
    async with SchedulerCluster(sim) as cluster:
        if node is not None:
            await cluster.node("a", **node)
        await cluster.pod(**pod)
        await cluster.settle()
        result = await cluster.raw("pods", "p")
        (condition,) = result["status"]["conditions"]
        assert "nodeName" not in result["spec"]
        assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        assert condition["observedGeneration"] == 1
        assert await cluster.why() == want
        assert cluster.event_log.events == [("Warning", "FailedScheduling", want)]


@virtual(SchedulerCluster)
async def test_all_reasons_of_all_nodes_are_counted(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="1")
    await cluster.node("b", cpu="1", pods=0)
    await cluster.node("c", taints=[TAINT])
    await cluster.node("d", unschedulable=True, taints=[TAINT])
    await cluster.pod(cpu="3")
    await cluster.settle()
    assert await cluster.why() == (
        "0/4 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable, 2 Insufficient cpu. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )


@virtual(SchedulerCluster)
async def test_message_that_has_not_changed_is_not_written_again(cluster: SchedulerCluster) -> None:
    await cluster.node("a", pods=1)
    for name in ("p", "q", "r"):
        await cluster.pod(name)
        await cluster.settle()
    before = await cluster.raw("pods", "r")
    await cluster.status("p", phase="Succeeded")
    await cluster.settle()
    assert await cluster.places() == {"p": "a", "q": "a", "r": ""}
    assert await cluster.raw("pods", "r") == before


@virtual(SchedulerCluster)
async def test_message_is_brought_up_to_date_and_keeps_its_time(cluster: SchedulerCluster) -> None:
    await cluster.pod(cpu="3")
    await cluster.settle()
    await cluster.node("a")
    await cluster.pod("q", cpu="3")
    await cluster.settle()
    await cluster.delete("p" if (await cluster.places())["p"] else "q", grace=0)
    await cluster.settle()
    ((name, node),) = (await cluster.places()).items()
    assert node == "a"
    assert (await cluster.condition(name) or {})["status"] == "True"


@cases(
    "node pod",
    {
        "if it must": ({"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}, {}),
        "tolerated": (
            {"taints": [TAINT]},
            {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]},
        ),
        "cordoned and tolerated": (
            {"unschedulable": True},
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
        ),
        "selected": ({"labels": {ZONE: "x"}}, {"nodeSelector": {ZONE: "x"}}),
        "required": (
            {"labels": {ZONE: "x"}},
            {"affinity": required({"key": ZONE, "operator": "In", "values": ["w", "x"]})},
        ),
        "named": ({}, {"affinity": named("a")}),
    },
)
@virtual(SchedulerCluster)
async def test_a_node_takes_a_pod_that_puts_up_with_it(
    cluster: SchedulerCluster, node: Object, pod: Object
) -> None:
    await cluster.node("a", **node)
    await cluster.pod(**pod)
    await cluster.settle()
    assert await cluster.places() == {"p": "a"}


@virtual(SchedulerCluster, seeds=5)
async def test_taint_that_only_prefers_is_avoided_if_possible(cluster: SchedulerCluster) -> None:
    await cluster.node("a", taints=[{**TAINT, "effect": "PreferNoSchedule"}])
    await cluster.node("b", pods=3)
    for number in range(4):
        await cluster.pod(f"p{number}")
        await cluster.settle(0.1)
    assert Counter((await cluster.places()).values()) == {"b": 3, "a": 1}


@cases(
    "spec",
    {
        "gated": {"schedulingGates": [{"name": "example.com/wait"}]},
        "of another scheduler": {"schedulerName": "mine"},
    },
)
@virtual(SchedulerCluster)
async def test_pods_of_others_are_left_alone(
    cluster: SchedulerCluster, spec: dict[str, Any]
) -> None:
    await cluster.node("a")
    await cluster.pod(**spec)
    before = await cluster.raw("pods", "p")
    await cluster.settle()
    assert await cluster.raw("pods", "p") == before


async def _node_without_taint(cluster: SchedulerCluster) -> None:
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"taints": None}})


async def _bigger_node(cluster: SchedulerCluster) -> None:
    status = {"status": {"allocatable": {"cpu": "9"}}}
    await cluster.client.patch(kinds.NODES, "a", status, subresource="status")


async def _labelled_node(cluster: SchedulerCluster) -> None:
    await cluster.client.patch(kinds.NODES, "a", {"metadata": {"labels": {"disk": "ssd"}}})


async def _uncordoned_node(cluster: SchedulerCluster) -> None:
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": None}})


async def _open_gate(cluster: SchedulerCluster) -> None:
    patch = {"spec": {"schedulingGates": None}}
    await cluster.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)


async def _new_toleration(cluster: SchedulerCluster) -> None:
    tolerations = (await cluster.raw("pods", "p"))["spec"]["tolerations"]
    patch = {"spec": {"tolerations": [*tolerations, {"key": TAINT["key"], "operator": "Exists"}]}}
    await cluster.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)


@cases(
    "node pod change",
    {
        "a taint goes": ({"taints": [TAINT]}, {}, _node_without_taint),
        "a node grows": ({"cpu": "1"}, {"cpu": "5"}, _bigger_node),
        "a label comes": ({}, {"nodeSelector": {"disk": "ssd"}}, _labelled_node),
        "uncordoned": ({"unschedulable": True}, {}, _uncordoned_node),
        "a node comes": ({"cpu": "1"}, {"cpu": "5"}, lambda cluster: cluster.node("b", cpu="9")),
        "a gate opens": ({}, {"schedulingGates": [{"name": "x.y/z"}]}, _open_gate),
        "a toleration is added": ({"taints": [TAINT]}, {}, _new_toleration),
    },
)
@virtual(SchedulerCluster)
async def test_what_changes_wakes_whom_it_helps(
    cluster: SchedulerCluster, node: Object, pod: Object, change: Any
) -> None:
    await cluster.node("a", **node)
    await cluster.pod(**pod)
    await cluster.settle(1000)
    assert await cluster.places() == {"p": ""}
    await change(cluster)
    await cluster.settle()
    assert (await cluster.places())["p"]


@virtual(SchedulerCluster)
async def test_what_helps_nobody_wakes_nobody(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="1")
    await cluster.pod(cpu="5")
    await cluster.settle()
    writes = cluster.faulty.writes
    for number in range(5):
        await cluster.node(f"small-{number}", cpu="2")
    await cluster.settle()
    assert cluster.faulty.writes == writes
    assert len(cluster.event_log.events) == 1


@virtual(SchedulerCluster, seeds=10)
async def test_new_node_takes_those_who_waited_as_many_as_it_can(cluster: SchedulerCluster) -> None:
    for number in range(5):
        await cluster.pod(f"p{number}")
    await cluster.settle()
    await cluster.node("a", pods=3)
    await cluster.settle()
    assert Counter((await cluster.places()).values()) == {"a": 3, "": 2}


@virtual(SchedulerCluster, seeds=10)
async def test_free_place_is_taken_by_who_waited_longest(cluster: SchedulerCluster) -> None:
    await cluster.node("a", pods=1)
    for name in ("p", "q", "r"):
        await cluster.pod(name)
        await cluster.settle()
    assert await cluster.places() == {"p": "a", "q": "", "r": ""}
    await cluster.status("p", phase="Succeeded")
    await cluster.settle()
    assert await cluster.places() == {"p": "a", "q": "a", "r": ""}
    await cluster.delete("q", grace=0)
    await cluster.settle()
    assert await cluster.places() == {"p": "a", "r": "a"}


@virtual(SchedulerCluster, dataclasses.replace(SETTINGS, at_once=1), seeds=5)
async def test_who_is_called_and_then_deleted_passes_the_call_on(cluster: SchedulerCluster) -> None:
    await cluster.node("a", pods=1)
    for name in ("p", "q", "r"):
        await cluster.pod(name)
        await cluster.settle()
    await cluster.node("b", pods=1, labels={"is": "b"}, taints=[TAINT])

    async def slow(request: Request) -> None:
        await cluster.settle(10 if "/busy/binding" in request.path else 0)

    cluster.faulty.before = slow
    tolerations = [{"key": TAINT["key"], "operator": "Exists"}]
    await cluster.pod("busy", nodeSelector={"is": "b"}, tolerations=tolerations)
    await cluster.settle()
    await cluster.delete("p", grace=0)  # calls q, which has to wait for its turn
    await cluster.settle()
    await cluster.delete("q")
    await cluster.settle(20)
    assert await cluster.places() == {"busy": "b", "r": "a"}


@virtual(SchedulerCluster, seeds=20)
async def test_a_node_is_never_overfilled(cluster: SchedulerCluster) -> None:
    await cluster.node("a", pods=2)
    await cluster.node("b", cpu="3")
    for number in range(9):
        await cluster.pod(f"p{number}", cpu="900m")
    await cluster.settle()
    assert Counter((await cluster.places()).values()) == {"a": 2, "b": 3, "": 4}


@virtual(SchedulerCluster, seeds=5)
async def test_the_more_important_pod_comes_first(cluster: SchedulerCluster) -> None:
    await cluster.classes(high=10, higher=20)
    for name, priority in (("p", ""), ("q", "high"), ("r", "higher"), ("s", "high")):
        await cluster.pod(name, priority=priority)
    await cluster.settle()
    await cluster.node("a", pods=3)
    await cluster.settle()
    assert await cluster.places() == {"p": "", "q": "a", "r": "a", "s": "a"}


@virtual(SchedulerCluster)
async def test_pod_given_its_node_by_hand_takes_its_room(cluster: SchedulerCluster) -> None:
    await cluster.node("a", cpu="2")
    await cluster.pod("q", cpu="2", nodeName="a")
    await cluster.settle()
    await cluster.pod(cpu="1")
    await cluster.settle()
    assert await cluster.places() == {"p": "", "q": "a"}


@virtual(SchedulerCluster)
async def test_pods_of_a_node_that_comes_later_count_from_start(cluster: SchedulerCluster) -> None:
    await cluster.pod("q", cpu="2", nodeName="a")
    await cluster.settle()
    await cluster.node("a", cpu="2")
    await cluster.pod(cpu="1")
    await cluster.settle()
    assert await cluster.places() == {"p": "", "q": "a"}


@virtual(SchedulerCluster)
async def test_a_node_that_is_gone_takes_nobody(cluster: SchedulerCluster) -> None:
    await cluster.node("a")
    await cluster.pod("q")
    await cluster.settle()
    await cluster.client.delete(kinds.NODES, "a")
    await cluster.settle()
    await cluster.pod()
    await cluster.settle()
    assert await cluster.why() == "no nodes available to schedule pods"


@virtual(SchedulerCluster, seeds=3)
async def test_a_bind_that_was_refused_gives_its_place_back(cluster: SchedulerCluster) -> None:
    await cluster.node("a", pods=1)
    cluster.faulty.refuses = lambda request, number: (
        errors.Forbidden("not you") if "/p/binding" in request.path else None
    )
    await cluster.pod()
    await cluster.settle(0.1)
    await cluster.pod("q")
    await cluster.settle()
    assert await cluster.places() == {"p": "", "q": "a"}
