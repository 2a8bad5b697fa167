# SPDX-License-Identifier: Apache-2.0
"""Preemption on a whole API server: what stands on the pods, when, and who runs in the end."""

from collections import Counter
from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.base.gates import (
    POD_DISRUPTION_CONDITIONS,
    RETRIABLE_AND_NON_RETRIABLE_FAILURES,
    Gates,
)
from refloat.client import errors, kinds
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.scheduler_cluster import SchedulerCluster
from tests.virtual import virtual

MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


async def _filled(cluster: SchedulerCluster, *victims: str, grace: int = 30, **spec: Any) -> None:
    """One node of four cpus, full of pods of no priority."""
    await cluster.classes(high=1000, higher=2000)
    await cluster.node("a")
    for name in victims:
        await cluster.pod(name, cpu=f"{4000 // len(victims)}m", grace=grace, **spec)
    await cluster.settle()
    assert set((await cluster.places()).values()) == {"a"}


@virtual(SchedulerCluster, seeds=5)
async def test_a_victim_is_marked_then_deleted_and_then_replaced(cluster: SchedulerCluster) -> None:
    """Behaviour C7.1, C7.2, F, F.4."""
    await _filled(cluster, "low")
    before = await cluster.raw("pods", "low")
    preemptor = await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle()
    victim = await cluster.raw("pods", "low")
    assert cluster.seen == ["low condition", "low deletion"]
    assert await cluster.condition("low", "DisruptionTarget") == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": MESSAGE,
        "lastProbeTime": None,
        "lastTransitionTime": victim["metadata"]["deletionTimestamp"].replace(":31Z", ":01Z"),
        "observedGeneration": before["metadata"]["generation"],
    }
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 30
    assert victim["metadata"]["generation"] == before["metadata"]["generation"] + 1
    waiting = await cluster.raw("pods", "p")
    assert waiting["status"]["nominatedNodeName"] == "a"
    assert await cluster.why("p") == "0/1 nodes are available: 1 Insufficient cpu."
    note = f"Preempted by pod {preemptor.metadata.uid} on node a"
    assert ("Normal", "Preempted", note) in cluster.event_log.events
    await cluster.settle(40)
    assert await cluster.places() == {"p": "a"}
    assert "nominatedNodeName" not in (await cluster.raw("pods", "p"))["status"]
    assert cluster.most["a"] == 4000


@virtual(SchedulerCluster, seeds=5)
async def test_the_least_is_lost(cluster: SchedulerCluster) -> None:
    """Of three full nodes: one victim of priority 3, not two, and none of priority 5."""
    await cluster.classes(low=3, middle=5, high=10)
    pods = {"a": ("middle", ""), "b": ("low",), "c": ("low", "low")}
    for node, priorities in pods.items():
        await cluster.node(node, cpu="2")
        for number, priority in enumerate(priorities):
            cpu = f"{2000 // len(priorities)}m"
            await cluster.pod(f"{node}{number}", cpu=cpu, nodeName=node, priority=priority)
    await cluster.settle()
    await cluster.pod("p", cpu="2", priority="high")
    await cluster.settle(0.5)
    assert cluster.seen == ["b0 condition", "b0 deletion"]
    await cluster.pod("q", cpu="1", priority="high")
    await cluster.settle(0.5)
    assert cluster.seen[2:] == ["a1 condition", "a1 deletion"]


@virtual(SchedulerCluster, seeds=3)
async def test_preemptor_looked_at_again_says_for_whom_it_waits(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=300)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    status = {"status": {"allocatable": {"cpu": "4001m"}}}
    await cluster.client.patch(kinds.NODES, "a", status, subresource="status")
    await cluster.settle()
    assert await cluster.why("p") == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert (await cluster.raw("pods", "p"))["status"]["nominatedNodeName"] == "a"
    assert cluster.seen == ["low condition", "low deletion"]


@virtual(SchedulerCluster, seeds=3)
async def test_nothing_is_written_while_victim_takes_its_time(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=300)
    await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle()
    writes = cluster.faulty.writes
    await cluster.settle(200)
    assert cluster.faulty.writes == writes
    assert cluster.seen == ["low condition", "low deletion"]


@virtual(SchedulerCluster, seeds=3)
async def test_the_promised_room_is_kept_from_the_less_important(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=5)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    await cluster.pod("sneaky", cpu="1")
    await cluster.settle(20)
    assert await cluster.places() == {"p": "a", "sneaky": ""}


@virtual(SchedulerCluster, seeds=3)
async def test_still_more_important_pod_takes_the_promised_room(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=5)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    await cluster.pod("q", cpu="4", priority="higher")
    await cluster.settle(20)
    assert await cluster.places() == {"p": "", "q": "a"}
    assert "nominatedNodeName" not in (await cluster.raw("pods", "p"))["status"]


@virtual(SchedulerCluster, seeds=3)
async def test_a_pod_that_may_not_preempt_waits(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low")
    never = builders.priority_class("never", value=9999, preemptionPolicy="Never")
    await cluster.client.create(kinds.PRIORITY_CLASSES, never)
    await cluster.pod("p", cpu="3", priority="never")
    await cluster.settle(10)
    assert cluster.seen == []
    assert await cluster.why("p") == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to preemptionPolicy=Never."
    )


@virtual(SchedulerCluster, seeds=3)
async def test_a_node_that_opens_lets_all_preempt_who_can(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "l0", "l1", "l2", "l3", grace=2)
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": True}})
    for number in range(5):
        await cluster.pod(f"h{number}", cpu="1", priority="high")
    await cluster.settle()
    assert cluster.seen == []
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": None}})
    await cluster.settle(10)
    assert sorted((await cluster.places()).values()) == ["", "a", "a", "a", "a"]
    assert cluster.most["a"] == 4000


@virtual(SchedulerCluster, seeds=3)
async def test_a_preemptor_tries_once_and_waits(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "l0", "l1", grace=5)
    for number in range(2):
        await cluster.pod(f"h{number}", cpu="2", priority="high")
    await cluster.settle(20)
    assert set((await cluster.places()).values()) == {"a"}
    assert cluster.event_log.reasons().count("FailedScheduling") == 2


@virtual(SchedulerCluster, seeds=3)
async def test_equals_are_never_preempted(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "first", priority="high")
    await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle(10)
    assert cluster.seen == []
    assert await cluster.places() == {"first": "a", "p": ""}


@pytest.mark.parametrize(("on", "want"), [(True, "Preemption"), (False, None)])
@virtual(seeds=3)
async def test_delete_says_why_while_its_gate_is_on(sim: Sim, on: bool, want: str | None) -> None:
    """KEP-3329, first design."""
    gates = Gates({RETRIABLE_AND_NON_RETRIABLE_FAILURES: on})
    async with SchedulerCluster(sim, gates=gates) as cluster:
        await _filled(cluster, "low", grace=10)
        await cluster.pod("p", cpu="3", priority="high")
        await cluster.settle()
        assert (await cluster.raw("pods", "low"))["status"].get("reason") == want


@virtual(SchedulerCluster, gates=Gates({POD_DISRUPTION_CONDITIONS: False}), seeds=3)
async def test_no_condition_with_the_gate_off(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=10)
    await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle()
    assert cluster.seen == ["low deletion"]
    assert await cluster.condition("low", "DisruptionTarget") is None
    await cluster.settle(5)
    assert cluster.seen == ["low deletion"]
    await cluster.settle(20)
    assert await cluster.places() == {"p": "a"}


TWICE: list[Object] = [
    {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": "4"}},
        "env": [{"name": "X", "value": "1"}, {"name": "X", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80}],
    }
]


@virtual(SchedulerCluster)
async def test_pods_with_duplicate_names_are_preempted_too(cluster: SchedulerCluster) -> None:
    """Written with an apply, their status would be refused for what the spec holds twice."""
    await _filled(cluster, "low", grace=1, containers=TWICE)
    await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle(5)
    assert cluster.seen == ["low condition", "low deletion"]
    assert await cluster.places() == {"p": "a"}


@virtual(SchedulerCluster, seeds=3)
async def test_a_disruption_budget_is_respected_where_possible(cluster: SchedulerCluster) -> None:
    await cluster.classes(high=1000)
    for name in ("a", "b"):
        await cluster.node(name)
        await cluster.pod(f"on-{name}", cpu="4", nodeName=name, labels={"app": name})
    budget = builders.budget("keep", app="b", spec={"maxUnavailable": 0})
    await cluster.client.create(kinds.POD_DISRUPTION_BUDGETS, budget, namespace=NAMESPACE)
    await cluster.settle()
    await cluster.pod("p", cpu="3", priority="high")
    await cluster.settle()
    assert cluster.seen == ["on-a condition", "on-a deletion"]


@virtual(SchedulerCluster, seeds=3)
async def test_room_elsewhere_is_taken_and_the_promise_given_up(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "low", grace=300)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    await cluster.node("b")
    await cluster.settle()
    assert (await cluster.places())["p"] == "b"
    await cluster.settle(400)
    await cluster.pod("q", cpu="4")
    await cluster.settle()
    assert await cluster.places() == {"p": "b", "q": "a"}


@virtual(SchedulerCluster, seeds=5)
async def test_a_job_of_high_priority_takes_just_what_it_needs(cluster: SchedulerCluster) -> None:
    await cluster.classes(high=1000)
    for name in ("a", "b", "c"):
        await cluster.node(name)
    for number in range(12):
        await cluster.pod(f"low-{number}", cpu="1")
    await cluster.settle()
    for number in range(6):
        await cluster.pod(f"high-{number}", cpu="1", priority="high")
    await cluster.settle(30)
    places = await cluster.places()
    assert all(places[f"high-{number}"] for number in range(6))
    assert Counter(each.split()[1] for each in cluster.seen) == {"condition": 6, "deletion": 6}
    assert all(cluster.most[name] <= 4000 for name in ("a", "b", "c"))


@pytest.mark.parametrize("cordoned", [False, True])
@virtual(SchedulerCluster, seeds=3)
async def test_a_promise_on_a_node_that_is_lost_does_not_bind_its_pod(
    cluster: SchedulerCluster, cordoned: bool
) -> None:
    await _filled(cluster, "low", grace=300)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    if cordoned:
        await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": True}})
    else:
        await cluster.client.delete(kinds.NODES, "a")
    await cluster.settle()
    await cluster.node("b")
    await cluster.settle()
    assert (await cluster.places())["p"] == "b"


@pytest.mark.parametrize("cordoned", [False, True])
@virtual(SchedulerCluster, seeds=3)
async def test_who_loses_the_promised_node_preempts_elsewhere(
    cluster: SchedulerCluster, cordoned: bool
) -> None:
    await _filled(cluster, "low", grace=300)
    await cluster.pod("p", cpu="4", priority="high")
    await cluster.settle()
    await cluster.node("b")
    await cluster.pod("other", cpu="4", nodeName="b", priority="high")
    await cluster.settle()
    if cordoned:
        await cluster.client.patch(kinds.NODES, "a", {"spec": {"unschedulable": True}})
    else:
        await cluster.client.delete(kinds.NODES, "a")
    await cluster.settle()
    assert "nominatedNodeName" not in (await cluster.raw("pods", "p"))["status"]
    await cluster.delete("other", grace=0)
    await cluster.pod("later", cpu="1", nodeName="b")
    await cluster.settle(5)
    assert (await cluster.places())["p"] == "b"


@virtual(SchedulerCluster, seeds=5)
async def test_promise_whose_write_failed_is_written_with_next(cluster: SchedulerCluster) -> None:
    await _filled(cluster, "l0", "l1", "l2", "l3", grace=20)
    failing = iter([True] * 4)
    cluster.faulty.refuses = lambda request, number: (
        errors.TooManyRequests("not now")
        if request.path.endswith("/status") and next(failing, False)
        else None
    )
    for number in range(4):
        await cluster.pod(f"h{number}", cpu="1", priority="high")
    await cluster.settle(60)
    assert sorted((await cluster.places()).values()) == ["a"] * 4
