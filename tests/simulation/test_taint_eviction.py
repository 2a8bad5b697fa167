# SPDX-License-Identifier: Apache-2.0
"""Taint eviction, to the second: which pods leave, when, and their events (behaviour C2)."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app.controller_names import TAINT_EVICTION
from refloat.base.gates import (
    POD_DISRUPTION_CONDITIONS,
    RETRIABLE_AND_NON_RETRIABLE_FAILURES,
    Gates,
)
from refloat.client import errors, kinds
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.node_cluster import NodeCluster
from tests.simulation.test_node_lifecycle import silent_node
from tests.virtual import virtual

DEDICATED: Object = {"key": "dedicated", "value": "a", "effect": "NoExecute"}
OTHER: Object = {"key": "other", "effect": "NoExecute"}

MARKED = ("Normal TaintManagerEviction", "Marking for deletion Pod default/p")
CANCELLED = ("Normal TaintManagerEviction", "Cancelling deletion of Pod default/p")


def tolerates(key: str, seconds: int | None = None, **more: Any) -> Object:
    toleration: Object = {"key": key, "operator": "Exists", "effect": "NoExecute", **more}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def terminating(cluster: NodeCluster, name: str = "p") -> bool:
    return (await cluster.get_pod(name)).is_terminating


async def leaves_at(cluster: NodeCluster, seconds: float, name: str = "p") -> None:
    """The pod is not deleted before, and is deleted then."""
    await cluster.until(seconds - 0.2)
    assert not await terminating(cluster, name)
    await cluster.until(seconds)
    assert await terminating(cluster, name)


@contextlib.asynccontextmanager
async def evictable_pod(
    sim: Sim, tolerations: list[Object] | None = None
) -> AsyncIterator[NodeCluster]:
    """Taint eviction runs; a pod tolerates the taint for 30 s, or has these tolerations."""
    async with NodeCluster(sim, TAINT_EVICTION) as cluster:
        await cluster.node("n")
        if tolerations is None:
            tolerations = [tolerates("dedicated", 30)]
        await cluster.pod(tolerations=tolerations)
        await cluster.start()
        yield cluster


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_pod_that_tolerates_nothing_leaves_at_once(cluster: NodeCluster) -> None:
    """Behaviour C2.4, C2.9, C2.10, F."""
    await cluster.node("n")
    before = await cluster.pod()
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(0)
    pod = await cluster.get_pod()
    target = structs.find(pod.status.conditions, "DisruptionTarget")
    assert target is not None
    assert target.status == "True"
    assert target.reason == "DeletionByTaintManager"
    assert target.message == "Taint manager: deleting due to NoExecute taint"
    assert target.observed_generation == before.metadata.generation
    assert pod.metadata.generation == before.metadata.generation + 1
    assert pod.metadata.deletion_grace_period_seconds == 30
    assert cluster.event_log.about("Pod/p") == [MARKED]
    assert [each.type for each in pod.status.conditions or ()] == ["Ready", "DisruptionTarget"]


@virtual(evictable_pod, tolerations=[])
async def test_other_effects_make_nobody_leave(cluster: NodeCluster) -> None:
    await cluster.taint("n", {**DEDICATED, "effect": "NoSchedule"})
    await cluster.until(1000)
    assert not await terminating(cluster)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_pod_stays_for_as_long_as_it_tolerates(cluster: NodeCluster) -> None:
    """Behaviour C2.5: the least of the tolerations that are used."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 40), tolerates("other", 30)])
    await cluster.pod("q", tolerations=[tolerates("dedicated"), tolerates("other")])
    await cluster.start()
    await cluster.taint("n", DEDICATED, OTHER)
    await leaves_at(cluster, 30)
    assert not await terminating(cluster, "q")


@virtual(NodeCluster, TAINT_EVICTION)
async def test_the_countdown_begins_when_the_taint_is_seen(cluster: NodeCluster) -> None:
    """Behaviour C2.6: the time in the taint does not matter."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 30)])
    await cluster.taint("n", {**DEDICATED, "timeAdded": "1999-12-31T23:00:00Z"})
    await cluster.sleep(100)
    await cluster.start()
    await leaves_at(cluster, 30)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_after_a_restart_countdowns_begin_anew(cluster: NodeCluster) -> None:
    """Behaviour C2.6."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 30)])
    await cluster.taint("n", DEDICATED)
    await cluster.start()
    await cluster.until(29)
    await cluster.start()
    await leaves_at(cluster, 30)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_countdown_that_runs_is_neither_longer_nor_shorter(cluster: NodeCluster) -> None:
    """Behaviour C2.7."""
    await cluster.node("n")
    every = [tolerates("dedicated", 30), tolerates("other", 300), tolerates("third", 1)]
    await cluster.pod(tolerations=every)
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    await cluster.taint("n", {**OTHER})
    await cluster.until(15)
    await cluster.taint("n", DEDICATED, {"key": "third", "effect": "NoExecute"})
    await leaves_at(cluster, 30)
    assert cluster.event_log.about("Pod/p") == [MARKED]


@virtual(evictable_pod)
async def test_a_taint_that_goes_lets_the_pod_stay(cluster: NodeCluster) -> None:
    """Behaviour C2.8, C2.10."""
    await cluster.taint("n", DEDICATED)
    await cluster.until(29)
    await cluster.taint("n")
    await cluster.until(100)
    assert not await terminating(cluster)
    assert cluster.event_log.about("Pod/p") == [CANCELLED]


async def delete_tainted_node(cluster: NodeCluster) -> None:
    """The node is tainted at the start and deleted after 10 s; its pod may stay for 300 s."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 300)])
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    await cluster.client.delete(kinds.NODES, "n")
    await cluster.until(40)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_node_that_comes_back_without_taint_lets_its_pods_stay(cluster: NodeCluster) -> None:
    """The node was deleted meanwhile, and registered again."""
    await delete_tainted_node(cluster)
    assert cluster.event_log.about("Pod/p") == []
    await cluster.node("n", leases=False)
    await cluster.until(400)
    assert not await terminating(cluster)
    assert cluster.event_log.about("Pod/p") == [CANCELLED]


@virtual(NodeCluster, TAINT_EVICTION)
async def test_node_that_comes_back_with_the_taint_gives_no_more_time(cluster: NodeCluster) -> None:
    await delete_tainted_node(cluster)
    await cluster.client.create(kinds.NODES, builders.node("n", taints=[DEDICATED]))
    await leaves_at(cluster, 300)
    assert cluster.event_log.about("Pod/p") == [MARKED]


@virtual(evictable_pod)
async def test_a_second_taint_begins_another_countdown(cluster: NodeCluster) -> None:
    await cluster.taint("n", DEDICATED)
    await cluster.until(20)
    await cluster.taint("n")
    await cluster.until(24.91)
    await cluster.taint("n", DEDICATED)
    await leaves_at(cluster, 55)


@virtual(evictable_pod)
async def test_one_that_is_suddenly_not_tolerated_ends_the_countdown(cluster: NodeCluster) -> None:
    """Behaviour C2.4."""
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    await cluster.taint("n", DEDICATED, OTHER)
    await leaves_at(cluster, 10.1)
    assert cluster.event_log.about("Pod/p") == [CANCELLED, MARKED]


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_toleration_that_comes_later_counts(cluster: NodeCluster) -> None:
    """Behaviour C2.2, C2.5: tolerated for ever, the countdown ends."""
    await cluster.node("n")
    pod = await cluster.pod(tolerations=[tolerates("dedicated", 30)])
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    tolerations = [
        {"key": each.key, "operator": each.operator, "effect": each.effect}
        | ({} if each.toleration_seconds is None else {"tolerationSeconds": 300})
        for each in pod.spec.tolerations or ()
        if each.key != "dedicated"
    ]
    first = [{"key": "dedicated", "operator": "Exists"}]
    longer = [tolerates("dedicated", 30)]
    patch = {"spec": {"tolerations": [*longer, *tolerations, *first]}}
    await cluster.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)
    await leaves_at(cluster, 30)  # the first that matches is the one that counts (C2.3)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_pod_that_is_bound_to_a_tainted_node_leaves(cluster: NodeCluster) -> None:
    await cluster.node("n")
    await cluster.taint("n", DEDICATED)
    await cluster.start()
    await cluster.until(5)
    await cluster.pod()
    await cluster.until(5.2)
    assert await terminating(cluster)


@virtual(evictable_pod)
async def test_the_end_of_a_node_does_not_end_countdowns(cluster: NodeCluster) -> None:
    """Behaviour C2.8."""
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    await cluster.client.delete(kinds.NODES, "n")
    await leaves_at(cluster, 30)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_a_pod_that_is_gone_takes_its_countdown_along(cluster: NodeCluster) -> None:
    """Behaviour C2.2: another pod of that name has its own countdown."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 30)], terminationGracePeriodSeconds=0)
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(10)
    await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE)
    await cluster.until(19.91)
    assert cluster.event_log.about("Pod/p") == [CANCELLED]
    await cluster.pod(tolerations=[tolerates("dedicated", 30)])
    await leaves_at(cluster, 50)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_all_pods_leave_also_those_that_are_over(cluster: NodeCluster) -> None:
    """Behaviour C2.11: and no budget is asked."""
    await cluster.node("n")
    await cluster.pod("done")
    await cluster.status("done", phase="Succeeded")
    await cluster.pod(terminationGracePeriodSeconds=5)
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(0)
    assert await terminating(cluster)
    with pytest.raises(errors.NotFound):
        await cluster.get_pod("done")


@virtual(NodeCluster, TAINT_EVICTION, gates=Gates({POD_DISRUPTION_CONDITIONS: False}))
async def test_without_its_gate_no_condition_is_written(cluster: NodeCluster) -> None:
    """KEP-3329: the gate `PodDisruptionConditions` off."""
    await cluster.node("n")
    await cluster.pod()
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(0)
    pod = await cluster.get_pod()
    assert pod.is_terminating
    assert structs.find(pod.status.conditions, "DisruptionTarget") is None


@pytest.mark.parametrize(("on", "want"), [(True, "TaintEviction"), (False, "")])
@virtual()
async def test_the_delete_says_why_while_its_gate_is_on(sim: Sim, on: bool, want: str) -> None:
    """KEP-3329, first design."""
    gates = Gates({RETRIABLE_AND_NON_RETRIABLE_FAILURES: on})
    async with NodeCluster(sim, TAINT_EVICTION, gates=gates) as cluster:
        await cluster.node("n")
        await cluster.pod()
        await cluster.start()
        await cluster.taint("n", DEDICATED)
        await cluster.until(0)
        pod = await cluster.get_pod()
        assert (pod.is_terminating, pod.status.reason) == (True, want)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_pod_with_names_that_stand_twice_leaves_like_any_other(cluster: NodeCluster) -> None:
    """A known failure of Kubernetes: a patch of such lists is refused."""
    container = {
        "name": "main",
        "image": "busybox",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "name": "again"}],
    }
    await cluster.node("n")
    await cluster.pod(containers=[container])
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(0)
    pod = await cluster.get_pod()
    assert pod.is_terminating
    assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual(NodeCluster, TAINT_EVICTION)
async def test_the_first_true_keeps_its_time(cluster: NodeCluster) -> None:
    """Behaviour F.2: another writer's reason is replaced, the time is not."""
    await cluster.node("n")
    await cluster.pod()
    old = "2020-01-01T00:00:00Z"
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "lastTransitionTime": old,
    }
    await cluster.status("p", conditions=[condition])
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await cluster.until(0)
    target = structs.find((await cluster.get_pod()).status.conditions, "DisruptionTarget")
    assert target is not None
    assert (target.reason, target.last_transition_time) == ("DeletionByTaintManager", old)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_another_taint_marks_a_pod_that_is_leaving_again_and_changes_nothing(
    cluster: NodeCluster,
) -> None:
    """Behaviour C2.9: Kubernetes counts down and records again, and finds all done."""
    await cluster.node("n")
    await cluster.pod(tolerations=[tolerates("dedicated", 30), tolerates("other", 30)])
    await cluster.start()
    await cluster.taint("n", DEDICATED)
    await leaves_at(cluster, 30)
    before = await cluster.get_pod()
    await cluster.taint("n", OTHER)
    await cluster.until(100)
    assert await cluster.get_pod() == before
    assert cluster.event_log.about("Pod/p") == [MARKED, MARKED]


@virtual(silent_node)
async def test_a_lost_node_loses_its_pods_after_five_minutes_and_keeps_them_terminating(
    cluster: NodeCluster,
) -> None:
    """KEP-6757, node lost before the pod was marked; behaviour G5, C4.1."""
    await cluster.pod()
    await cluster.start()
    await cluster.until(50)
    assert "unreachable:NoExecute" in await cluster.taints("n")
    await leaves_at(cluster, 350)
    await cluster.until(5000)
    pod = await cluster.get_pod()
    assert pod.is_terminating
    assert pod.status.phase == "Running"
    assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual(silent_node)
async def test_pod_deleted_before_its_node_was_lost_hangs_too(cluster: NodeCluster) -> None:
    """KEP-6757, node lost after the pod was marked."""
    await cluster.pod()
    await cluster.start()
    await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE)
    marked = (await cluster.get_pod()).metadata.deletion_timestamp
    await cluster.until(340)
    assert structs.find((await cluster.get_pod()).status.conditions, "DisruptionTarget") is None
    await cluster.until(5000)
    pod = await cluster.get_pod()
    assert pod.metadata.deletion_timestamp == marked
    assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual(silent_node)
async def test_a_node_that_is_back_in_time_keeps_its_pods(cluster: NodeCluster) -> None:
    """KEP-6757, "If the heartbeat is resumed within this toleration period"."""
    await cluster.pod()
    await cluster.start()
    await cluster.until(340)
    await cluster.post("n")
    cluster.keep_beating("n")
    await cluster.until(1000)
    assert not await terminating(cluster)
    assert cluster.event_log.about("Pod/p") == [
        ("Warning NodeNotReady", "Node is not ready"),
        CANCELLED,
    ]


@virtual(silent_node)
async def test_a_restart_of_both_gives_another_five_minutes(cluster: NodeCluster) -> None:
    """Behaviour C3.10, C2.6."""
    await cluster.pod()
    await cluster.start()
    await cluster.until(340)
    await cluster.start()
    await leaves_at(cluster, 300)


@virtual(NodeCluster, TAINT_EVICTION)
async def test_tolerations_by_default_are_those_that_are_missing(cluster: NodeCluster) -> None:
    """Behaviour C4: a pod with one toleration gets the other."""
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    pod: Pod = await cluster.client.create(
        kinds.PODS, builders.pod("p", spec={"tolerations": [own]}), namespace=NAMESPACE
    )
    assert [(each.key, each.toleration_seconds) for each in pod.spec.tolerations or ()] == [
        ("node.kubernetes.io/not-ready", None),
        ("node.kubernetes.io/unreachable", 300),
    ]
