# SPDX-License-Identifier: Apache-2.0
"""Taint eviction, to the second: who must leave, when, and what is said of it (behaviour C2)."""

from typing import Any

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.policy.switches import Switches
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.node_world import NAMESPACE, Choice, World, world
from tests.virtual import virtual

ALONE = Choice(lifecycle=False)

DEDICATED: Object = {"key": "dedicated", "value": "a", "effect": "NoExecute"}
OTHER: Object = {"key": "other", "effect": "NoExecute"}

MARKED = ("Normal TaintManagerEviction", "Marking for deletion Pod default/p")
CANCELLED = ("Normal TaintManagerEviction", "Cancelling deletion of Pod default/p")


def tolerates(key: str, seconds: int | None = None, **more: Any) -> Object:
    toleration: Object = {"key": key, "operator": "Exists", "effect": "NoExecute", **more}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def terminating(here: World, name: str = "p") -> bool:
    return (await here.get_pod(name)).is_terminating


async def leaves_at(here: World, seconds: float, name: str = "p") -> None:
    """It is not deleted before, and is then."""
    await here.until(seconds - 0.2)
    assert not await terminating(here, name)
    await here.until(seconds)
    assert await terminating(here, name)


@virtual()
async def test_a_pod_that_tolerates_nothing_leaves_at_once(sim: Sim) -> None:
    """Behaviour C2.4, C2.9, C2.10, F."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        before = await here.pod()
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        pod = await here.get_pod()
        target = structs.find(pod.status.conditions, "DisruptionTarget")
        assert target is not None
        assert target.status == "True"
        assert target.reason == "DeletionByTaintManager"
        assert target.message == "Taint manager: deleting due to NoExecute taint"
        assert target.observed_generation == before.metadata.generation
        assert pod.metadata.generation == before.metadata.generation + 1
        assert pod.metadata.deletion_grace_period_seconds == 30
        assert here.told.about("Pod/p") == [MARKED]
        assert [each.type for each in pod.status.conditions or ()] == ["Ready", "DisruptionTarget"]


@virtual()
async def test_other_effects_make_nobody_leave(sim: Sim) -> None:
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod()
        await here.start()
        await here.taint("n", {**DEDICATED, "effect": "NoSchedule"})
        await here.until(1000)
        assert not await terminating(here)


@virtual()
async def test_a_pod_stays_for_as_long_as_it_tolerates(sim: Sim) -> None:
    """Behaviour C2.5: the least of the tolerations that are used."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 40), tolerates("other", 30)])
        await here.pod("q", tolerations=[tolerates("dedicated"), tolerates("other")])
        await here.start()
        await here.taint("n", DEDICATED, OTHER)
        await leaves_at(here, 30)
        assert not await terminating(here, "q")


@virtual()
async def test_the_countdown_begins_when_the_taint_is_seen(sim: Sim) -> None:
    """Behaviour C2.6: what the taint says of its time does not matter."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.taint("n", {**DEDICATED, "timeAdded": "1999-12-31T23:00:00Z"})
        await here.sleep(100)
        await here.start()
        await leaves_at(here, 30)


@virtual()
async def test_after_a_restart_countdowns_begin_anew(sim: Sim) -> None:
    """Behaviour C2.6."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.taint("n", DEDICATED)
        await here.start()
        await here.until(29)
        await here.start()
        await leaves_at(here, 30)


@virtual()
async def test_a_countdown_that_runs_is_neither_longer_nor_shorter(sim: Sim) -> None:
    """Behaviour C2.7."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        every = [tolerates("dedicated", 30), tolerates("other", 300), tolerates("third", 1)]
        await here.pod(tolerations=every)
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.taint("n", {**OTHER})
        await here.until(15)
        await here.taint("n", DEDICATED, {"key": "third", "effect": "NoExecute"})
        await leaves_at(here, 30)
        assert here.told.about("Pod/p") == [MARKED]


@virtual()
async def test_a_taint_that_goes_lets_the_pod_stay(sim: Sim) -> None:
    """Behaviour C2.8, C2.10."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(29)
        await here.taint("n")
        await here.until(100)
        assert not await terminating(here)
        assert here.told.about("Pod/p") == [CANCELLED]


@virtual()
async def test_a_node_that_comes_back_without_the_taint_lets_its_pods_stay(sim: Sim) -> None:
    """It was deleted meanwhile, and registered anew."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 300)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.client.delete(kinds.NODES, "n")
        await here.until(40)
        assert here.told.about("Pod/p") == []
        await here.node("n", leases=False)
        await here.until(400)
        assert not await terminating(here)
        assert here.told.about("Pod/p") == [CANCELLED]


@virtual()
async def test_a_node_that_comes_back_with_the_taint_gives_no_more_time(sim: Sim) -> None:
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 300)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.client.delete(kinds.NODES, "n")
        await here.until(40)
        await here.client.create(kinds.NODES, builders.node("n", taints=[DEDICATED]))
        await leaves_at(here, 300)
        assert here.told.about("Pod/p") == [MARKED]


@virtual()
async def test_a_second_taint_begins_another_countdown(sim: Sim) -> None:
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(20)
        await here.taint("n")
        await here.until(24.91)
        await here.taint("n", DEDICATED)
        await leaves_at(here, 55)


@virtual()
async def test_one_that_is_suddenly_not_tolerated_ends_the_countdown(sim: Sim) -> None:
    """Behaviour C2.4."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.taint("n", DEDICATED, OTHER)
        await leaves_at(here, 10.1)
        assert here.told.about("Pod/p") == [CANCELLED, MARKED]


@virtual()
async def test_a_toleration_that_comes_later_counts(sim: Sim) -> None:
    """Behaviour C2.2, C2.5: tolerated for ever, the countdown ends."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        pod = await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        held = [
            {"key": each.key, "operator": each.operator, "effect": each.effect}
            | ({} if each.toleration_seconds is None else {"tolerationSeconds": 300})
            for each in pod.spec.tolerations or ()
            if each.key != "dedicated"
        ]
        first = [{"key": "dedicated", "operator": "Exists"}]
        kept = [tolerates("dedicated", 30)]
        patch = {"spec": {"tolerations": [*kept, *held, *first]}}
        await here.client.patch(kinds.PODS, "p", patch, namespace=NAMESPACE)
        await leaves_at(here, 30)  # the first that matches is the one that counts (C2.3)


@virtual()
async def test_a_pod_that_is_bound_to_a_tainted_node_leaves(sim: Sim) -> None:
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.taint("n", DEDICATED)
        await here.start()
        await here.until(5)
        await here.pod()
        await here.until(5.2)
        assert await terminating(here)


@virtual()
async def test_the_end_of_a_node_does_not_end_countdowns(sim: Sim) -> None:
    """Behaviour C2.8."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.client.delete(kinds.NODES, "n")
        await leaves_at(here, 30)


@virtual()
async def test_a_pod_that_is_gone_takes_its_countdown_along(sim: Sim) -> None:
    """Behaviour C2.2: another one of its name has its own."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30)], terminationGracePeriodSeconds=0)
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(10)
        await here.client.delete(kinds.PODS, "p", namespace=NAMESPACE)
        await here.until(19.91)
        assert here.told.about("Pod/p") == [CANCELLED]
        await here.pod(tolerations=[tolerates("dedicated", 30)])
        await leaves_at(here, 50)


@virtual()
async def test_all_pods_leave_also_those_that_are_over(sim: Sim) -> None:
    """Behaviour C2.11: and no budget is asked."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod("done")
        await here.pod_status("done", {"phase": "Succeeded"})
        await here.pod(terminationGracePeriodSeconds=5)
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        assert await terminating(here)
        with pytest.raises(errors.NotFound):
            await here.get_pod("done")


@virtual()
async def test_without_its_gate_no_condition_is_written(sim: Sim) -> None:
    """KEP-3329: the gate `PodDisruptionConditions` off."""
    switches = Switches(pod_disruption_conditions=False)
    async with world(sim, Choice(lifecycle=False, switches=switches)) as here:
        await here.node("n")
        await here.pod()
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        pod = await here.get_pod()
        assert pod.is_terminating
        assert structs.find(pod.status.conditions, "DisruptionTarget") is None


@pytest.mark.parametrize(("on", "want"), [(True, "TaintEviction"), (False, "")])
@virtual()
async def test_the_delete_says_why_while_its_gate_is_on(sim: Sim, on: bool, want: str) -> None:
    """KEP-3329, first design."""
    switches = Switches(retriable_and_non_retriable_failures=on)
    async with world(sim, Choice(lifecycle=False, switches=switches)) as here:
        await here.node("n")
        await here.pod()
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        pod = await here.get_pod()
        assert (pod.is_terminating, pod.status.reason) == (True, want)


@virtual()
async def test_a_pod_with_names_that_stand_twice_leaves_like_any_other(sim: Sim) -> None:
    """A known failure of Kubernetes: a patch of such lists is refused."""
    container = {
        "name": "main",
        "image": "busybox",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "ports": [{"containerPort": 80}, {"containerPort": 80, "name": "again"}],
    }
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(containers=[container])
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        pod = await here.get_pod()
        assert pod.is_terminating
        assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual()
async def test_the_first_true_keeps_its_time(sim: Sim) -> None:
    """Behaviour F.2: another writer's reason is replaced, the time is not."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod()
        old = "2020-01-01T00:00:00Z"
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "lastTransitionTime": old,
        }
        await here.pod_status("p", {"conditions": [condition]})
        await here.start()
        await here.taint("n", DEDICATED)
        await here.until(0)
        target = structs.find((await here.get_pod()).status.conditions, "DisruptionTarget")
        assert target is not None
        assert (target.reason, target.last_transition_time) == ("DeletionByTaintManager", old)


@virtual()
async def test_another_taint_marks_a_pod_that_is_leaving_again_and_changes_nothing(
    sim: Sim,
) -> None:
    """Behaviour C2.9: Kubernetes counts down and tells anew, and finds all done."""
    async with world(sim, ALONE) as here:
        await here.node("n")
        await here.pod(tolerations=[tolerates("dedicated", 30), tolerates("other", 30)])
        await here.start()
        await here.taint("n", DEDICATED)
        await leaves_at(here, 30)
        before = await here.get_pod()
        await here.taint("n", OTHER)
        await here.until(100)
        assert await here.get_pod() == before
        assert here.told.about("Pod/p") == [MARKED, MARKED]


@virtual()
async def test_a_lost_node_loses_its_pods_after_five_minutes_and_keeps_them_terminating(
    sim: Sim,
) -> None:
    """KEP-6757, node lost before the pod was marked; behaviour G5, C4.1."""
    async with world(sim) as here:
        await here.node("n")
        await here.node("other")
        here.keep_beating("other")
        await here.pod()
        await here.start()
        await here.until(50)
        assert "unreachable:NoExecute" in await here.taints("n")
        await leaves_at(here, 350)
        await here.until(5000)
        pod = await here.get_pod()
        assert pod.is_terminating
        assert pod.status.phase == "Running"
        assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual()
async def test_a_pod_that_was_deleted_before_its_node_was_lost_hangs_too(sim: Sim) -> None:
    """KEP-6757, node lost after the pod was marked."""
    async with world(sim) as here:
        await here.node("n")
        await here.node("other")
        here.keep_beating("other")
        await here.pod()
        await here.start()
        await here.client.delete(kinds.PODS, "p", namespace=NAMESPACE)
        marked = (await here.get_pod()).metadata.deletion_timestamp
        await here.until(340)
        assert structs.find((await here.get_pod()).status.conditions, "DisruptionTarget") is None
        await here.until(5000)
        pod = await here.get_pod()
        assert pod.metadata.deletion_timestamp == marked
        assert structs.is_true(pod.status.conditions, "DisruptionTarget")


@virtual()
async def test_a_node_that_is_back_in_time_keeps_its_pods(sim: Sim) -> None:
    """KEP-6757, "If the heartbeat is resumed within this toleration period"."""
    async with world(sim) as here:
        await here.node("n")
        await here.node("other")
        here.keep_beating("other")
        await here.pod()
        await here.start()
        await here.until(340)
        await here.post("n")
        here.keep_beating("n")
        await here.until(1000)
        assert not await terminating(here)
        assert here.told.about("Pod/p") == [
            ("Warning NodeNotReady", "Node is not ready"),
            CANCELLED,
        ]


@virtual()
async def test_a_restart_of_both_gives_another_five_minutes(sim: Sim) -> None:
    """Behaviour C3.10, C2.6."""
    async with world(sim) as here:
        await here.node("n")
        await here.node("other")
        here.keep_beating("other")
        await here.pod()
        await here.start()
        await here.until(340)
        await here.start()
        await leaves_at(here, 300)


@virtual()
async def test_tolerations_by_default_are_those_that_are_missing(sim: Sim) -> None:
    """Behaviour C4: with one of its own the other is added."""
    async with world(sim, ALONE) as here:
        own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
        pod: Pod = await here.client.create(
            kinds.PODS, builders.pod("p", spec={"tolerations": [own]}), namespace=NAMESPACE
        )
        assert [(each.key, each.toleration_seconds) for each in pod.spec.tolerations or ()] == [
            ("node.kubernetes.io/not-ready", None),
            ("node.kubernetes.io/unreachable", 300),
        ]
