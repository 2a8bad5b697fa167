# SPDX-License-Identifier: Apache-2.0
"""How fast nodes are tainted when many are lost, to the second (behaviour C3.8, C3.12-C3.15)."""

from refloat.api.meta import Object
from refloat.client import kinds
from refloat.controllers.node_lifecycle.monitor import LEASE_NAMESPACE
from refloat.sim.run import Sim
from tests.simulation.node_world import World, world
from tests.virtual import virtual

NO_EXECUTE = "unreachable:NoExecute"

SOON: Object = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 60,
}


def names(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def tainted(here: World, among: list[str]) -> int:
    return sum([NO_EXECUTE in await here.taints(each) for each in among])


async def unknown(here: World, among: list[str]) -> int:
    return sum([await here.ready(each) == "Unknown" for each in among])


def zone(name: str) -> Object:
    return {"topology.kubernetes.io/zone": name, "topology.kubernetes.io/region": "r"}


@virtual()
async def test_a_zone_that_is_well_loses_a_node_every_ten_seconds(sim: Sim) -> None:
    async with world(sim) as here:
        lost, well = names(3), names(7, "w")
        await here.nodes([*lost, *well])
        here.keep_beating(*well)
        await here.start()
        await here.until(50)
        assert await unknown(here, lost) == 3
        counts = []
        for seconds in (50, 59.8, 60, 69.8, 70, 100):
            await here.until(seconds)
            counts.append(await tainted(here, lost))
        assert counts == [1, 1, 2, 2, 3, 3]
        assert await tainted(here, well) == 0


@virtual()
async def test_one_that_is_back_before_its_turn_is_never_tainted(sim: Sim) -> None:
    async with world(sim) as here:
        lost, well = names(3), names(7, "w")
        await here.nodes([*lost, *well])
        here.keep_beating(*well)
        await here.start()
        await here.until(51)
        waiting = [each for each in lost if NO_EXECUTE not in await here.taints(each)]
        await here.post(waiting[0])
        here.keep_beating(waiting[0])
        await here.until(60)
        assert await here.taints(waiting[0]) == []
        assert NO_EXECUTE in await here.taints(waiting[1])


@virtual()
async def test_a_small_zone_of_which_much_is_down_is_left_alone(sim: Sim) -> None:
    """Behaviour C3.13, C3.14: three of five are more than 55 %."""
    async with world(sim) as here:
        lost, well = names(3), names(2, "w")
        await here.nodes([*lost, *well])
        here.keep_beating(*well)
        await here.start()
        await here.until(300)
        assert await unknown(here, lost) == 3
        assert await tainted(here, lost) == 0


@virtual()
async def test_a_large_zone_of_which_much_is_down_loses_a_node_every_hundred_seconds(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        lost, well = names(40), names(20, "w")
        await here.nodes([*lost, *well])
        here.keep_beating(*well)
        await here.start()
        counts = []
        for seconds in (51, 149, 151, 251):
            await here.until(seconds)
            counts.append(await tainted(here, lost))
        assert counts == [1, 1, 2, 3]


@virtual()
async def test_each_zone_has_its_own_turn(sim: Sim) -> None:
    async with world(sim) as here:
        await here.nodes(names(4, "a"), labels=zone("a"))
        await here.nodes(names(4, "b"), labels=zone("b"))
        here.keep_beating(*names(4, "a")[2:], *names(4, "b")[2:])
        await here.start()
        await here.until(50)
        assert await tainted(here, names(2, "a")) == 1
        assert await tainted(here, names(2, "b")) == 1


@virtual()
async def test_a_zone_that_is_wholly_down_while_another_is_well_goes_at_the_full_rate(
    sim: Sim,
) -> None:
    async with world(sim) as here:
        await here.nodes(names(4, "a"), labels=zone("a"))
        await here.nodes(names(4, "b"), labels=zone("b"))
        here.keep_beating(*names(4, "b"))
        await here.start()
        await here.until(80)
        assert await tainted(here, names(4, "a")) == 4


@virtual()
async def test_when_all_is_down_nobody_is_made_to_leave(sim: Sim) -> None:
    """Behaviour C3.15: taints that are there go, and none come."""
    async with world(sim) as here:
        every = names(4)
        await here.nodes(every)
        here.keep_beating(*every[1:])
        await here.pod("p", node=every[0])
        await here.start()
        await here.until(55)
        assert await tainted(here, every) == 1
        here.silence(*every)
        await here.until(120)
        assert await unknown(here, every) == 4
        assert await tainted(here, every) == 0
        await here.until(1000)
        assert await tainted(here, every) == 0
        assert not (await here.get_pod()).is_terminating
        for each in every:
            assert await here.taints(each) == ["unreachable:NoSchedule"]


@virtual()
async def test_when_something_is_back_silence_counts_anew(sim: Sim) -> None:
    """Behaviour C3.15: a node that beat last long ago has its whole grace, others their turn."""
    async with world(sim) as here:
        every = names(6)
        await here.nodes(every)
        await here.start()
        await here.until(102)
        assert await unknown(here, every) == 6
        await here.post(every[0])
        await here.post(every[1])
        here.keep_beating(every[1])
        for each in every[2:4]:  # back for a moment
            await here.post(each)
        await here.until(105)  # the pass that sees it
        assert await tainted(here, every) == 0
        await here.until(114.8)
        assert await tainted(here, every) == 0
        await here.until(115)  # whoever waited in vain begins its wait anew
        assert await tainted(here, every) == 1
        await here.until(154.8)
        assert await here.ready(every[0]) == "True"
        await here.until(155)
        assert await here.ready(every[0]) == "Unknown"


async def status_of(here: World, among: list[str]) -> list[str]:
    return [await here.ready(each) for each in among]


@virtual()
async def test_after_a_full_outage_each_node_has_its_whole_grace_anew(sim: Sim) -> None:
    """Behaviour C3.15: in each zone, whatever a node said last, and if it never said anything."""
    excluded = {"node.kubernetes.io/exclude-disruption": ""}
    last = ["not-ready", "ready", "new"]
    async with world(sim) as here:
        await here.nodes(names(2), labels=zone("a"))
        await here.start()
        await here.until(60)
        await here.node("not-ready", posts=False, labels=zone("b"))
        await here.post("not-ready", Ready="False")
        await here.node("ready", labels={**zone("a"), **excluded})
        await here.node("new", posts=False, leases=False, labels=zone("b"))
        await here.until(102)
        assert await status_of(here, last) == ["False", "True", ""]
        await here.post("n0")
        here.keep_beating("n0")
        await here.until(105)  # the pass that sees it: nothing before it counts
        await here.until(154.8)
        assert await status_of(here, last) == ["False", "True", ""]
        await here.until(155)
        assert await status_of(here, last) == ["Unknown", "Unknown", ""]
        await here.until(164.8)
        assert await status_of(here, last) == ["Unknown", "Unknown", ""]
        await here.until(165)
        assert await status_of(here, last) == ["Unknown", "Unknown", "Unknown"]


@virtual()
async def test_during_a_full_outage_silence_counts(sim: Sim) -> None:
    """Behaviour C3.15: only its end gives another grace, not its begin and not its length."""
    async with world(sim) as here:
        await here.nodes(names(2))
        await here.start()
        await here.until(40)
        await here.post("n0", Ready="False")
        await here.until(50)  # all is down from now on
        assert await status_of(here, names(2)) == ["False", "Unknown"]
        await here.until(89.8)
        assert await here.ready("n0") == "False"
        await here.until(95)
        assert await here.ready("n0") == "Unknown"


async def replace_all(here: World, old: list[str], new: list[str]) -> None:
    """In a pass between the two there are no nodes at all."""
    for each in old:
        await here.client.delete(kinds.NODES, each)
        await here.client.delete(kinds.LEASES, each, namespace=LEASE_NAMESPACE)
    await here.sleep(6)
    await here.nodes(new)
    here.keep_beating(*new)
    await here.sleep(6)


async def loses_its_pod(here: World, node: str) -> None:
    """It falls silent: it is tainted in its turn and stays so, until its pod leaves."""
    await here.pod("p", node=node, tolerations=[SOON])
    await here.post(node)
    here.silence(node)
    began = here.seconds
    await here.until(began + 70)
    assert NO_EXECUTE in await here.taints(node)
    for passes in range(1, 5):
        await here.until(began + 70 + 5 * passes)
        assert NO_EXECUTE in await here.taints(node)
    await here.until(began + 140)
    assert (await here.get_pod()).is_terminating


@virtual()
async def test_a_new_zone_that_is_well_ends_it_that_all_is_down(sim: Sim) -> None:
    """Behaviour C3.8, C3.15: a node of that zone is tainted like any other."""
    async with world(sim) as here:
        await here.nodes(names(2, "a"), labels=zone("a"))
        await here.start()
        await here.until(60)
        assert await unknown(here, names(2, "a")) == 2
        await here.nodes(names(6, "b"), labels=zone("b"))
        here.keep_beating(*names(6, "b"))
        await here.until(80)
        await loses_its_pod(here, "b0")


@virtual()
async def test_other_nodes_in_place_of_all_that_were_down_are_tainted_like_any(sim: Sim) -> None:
    """Behaviour C3.8, C3.15."""
    async with world(sim) as here:
        await here.nodes(names(2))
        await here.start()
        await here.until(60)
        assert await unknown(here, names(2)) == 2
        await replace_all(here, names(2), names(6, "c"))
        await loses_its_pod(here, "c0")


@virtual()
async def test_a_zone_that_is_down_keeps_its_taints_when_the_others_are_gone(sim: Sim) -> None:
    """Behaviour C3.15: it was down before, so nothing has changed."""
    async with world(sim) as here:
        await here.nodes(names(2, "a"), labels=zone("a"))
        await here.nodes(names(2, "b"), labels=zone("b"))
        here.keep_beating(*names(2, "b"))
        await here.start()
        await here.until(70)
        assert await tainted(here, names(2, "a")) == 2
        for each in names(2, "b"):
            await here.client.delete(kinds.NODES, each)
        for seconds in (80, 85, 90):
            await here.until(seconds)
            await here.client.patch(
                kinds.NODES, "a0", {"metadata": {"labels": {"looked-at": str(seconds)}}}
            )
            assert await tainted(here, names(2, "a")) == 2


@virtual()
async def test_nodes_that_are_excluded_do_not_count(sim: Sim) -> None:
    """Behaviour C3.13: with the excluded ones, three of five would be down."""
    async with world(sim) as here:
        lost, well = names(3), names(2, "w")
        excluded = {"node.kubernetes.io/exclude-disruption": ""}
        await here.nodes(lost[:1])
        await here.nodes(lost[1:], labels=excluded)
        await here.nodes(well)
        here.keep_beating(*well)
        await here.start()
        await here.until(75)
        assert await tainted(here, lost) == 3


@virtual()
async def test_what_is_counted_can_be_read(sim: Sim) -> None:
    """Behaviour C3.17."""
    async with world(sim) as here:
        lost, well = names(2), names(6, "w")
        await here.nodes([*lost, *well])
        here.keep_beating(*well)
        await here.start()
        await here.until(65)
        labels = {"zone": ""}
        found = {
            name: here.process.registry.get_sample_value(f"node_collector_{name}", labels)
            for name in ("evictions_total", "zone_health", "zone_size", "unhealthy_nodes_in_zone")
        }
        assert found == {
            "evictions_total": 2,
            "zone_health": 75,
            "zone_size": 8,
            "unhealthy_nodes_in_zone": 2,
        }
