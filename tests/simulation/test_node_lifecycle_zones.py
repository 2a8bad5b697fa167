# SPDX-License-Identifier: Apache-2.0
"""How fast nodes are tainted when many are lost, to the second (behaviour C3.8, C3.12-C3.15)."""

from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.meta import Object
from refloat.client import kinds
from tests.simulation.node_cluster import NodeCluster
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


async def tainted(cluster: NodeCluster, among: list[str]) -> int:
    return sum([NO_EXECUTE in await cluster.taints(each) for each in among])


async def unknown(cluster: NodeCluster, among: list[str]) -> int:
    return sum([await cluster.ready(each) == "Unknown" for each in among])


def zone(name: str) -> Object:
    return {"topology.kubernetes.io/zone": name, "topology.kubernetes.io/region": "r"}


@virtual(NodeCluster)
async def test_a_zone_that_is_well_loses_a_node_every_ten_seconds(cluster: NodeCluster) -> None:
    silent, well = names(3), names(7, "w")
    await cluster.nodes([*silent, *well])
    cluster.keep_beating(*well)
    await cluster.start()
    await cluster.until(50)
    assert await unknown(cluster, silent) == 3
    counts = []
    for seconds in (50, 59.8, 60, 69.8, 70, 100):
        await cluster.until(seconds)
        counts.append(await tainted(cluster, silent))
    assert counts == [1, 1, 2, 2, 3, 3]
    assert await tainted(cluster, well) == 0


@virtual(NodeCluster)
async def test_one_that_is_back_before_its_turn_is_never_tainted(cluster: NodeCluster) -> None:
    silent, well = names(3), names(7, "w")
    await cluster.nodes([*silent, *well])
    cluster.keep_beating(*well)
    await cluster.start()
    await cluster.until(51)
    waiting = [each for each in silent if NO_EXECUTE not in await cluster.taints(each)]
    await cluster.post(waiting[0])
    cluster.keep_beating(waiting[0])
    await cluster.until(60)
    assert await cluster.taints(waiting[0]) == []
    assert NO_EXECUTE in await cluster.taints(waiting[1])


@virtual(NodeCluster)
async def test_a_small_zone_of_which_much_is_down_is_left_alone(cluster: NodeCluster) -> None:
    """Behaviour C3.13, C3.14: three of five are more than 55 %."""
    silent, well = names(3), names(2, "w")
    await cluster.nodes([*silent, *well])
    cluster.keep_beating(*well)
    await cluster.start()
    await cluster.until(300)
    assert await unknown(cluster, silent) == 3
    assert await tainted(cluster, silent) == 0


@virtual(NodeCluster)
async def test_a_large_zone_of_which_much_is_down_loses_a_node_every_hundred_seconds(
    cluster: NodeCluster,
) -> None:
    silent, well = names(40), names(20, "w")
    await cluster.nodes([*silent, *well])
    cluster.keep_beating(*well)
    await cluster.start()
    counts = []
    for seconds in (51, 149, 151, 251):
        await cluster.until(seconds)
        counts.append(await tainted(cluster, silent))
    assert counts == [1, 1, 2, 3]


@virtual(NodeCluster)
async def test_each_zone_has_its_own_turn(cluster: NodeCluster) -> None:
    await cluster.nodes(names(4, "a"), labels=zone("a"))
    await cluster.nodes(names(4, "b"), labels=zone("b"))
    cluster.keep_beating(*names(4, "a")[2:], *names(4, "b")[2:])
    await cluster.start()
    await cluster.until(50)
    assert await tainted(cluster, names(2, "a")) == 1
    assert await tainted(cluster, names(2, "b")) == 1


@virtual(NodeCluster)
async def test_a_zone_that_is_wholly_down_while_another_is_well_goes_at_the_full_rate(
    cluster: NodeCluster,
) -> None:
    await cluster.nodes(names(4, "a"), labels=zone("a"))
    await cluster.nodes(names(4, "b"), labels=zone("b"))
    cluster.keep_beating(*names(4, "b"))
    await cluster.start()
    await cluster.until(80)
    assert await tainted(cluster, names(4, "a")) == 4


@virtual(NodeCluster)
async def test_when_all_is_down_nobody_is_made_to_leave(cluster: NodeCluster) -> None:
    """Behaviour C3.15: taints that are there go, and none come."""
    every = names(4)
    await cluster.nodes(every)
    cluster.keep_beating(*every[1:])
    await cluster.pod("p", node=every[0])
    await cluster.start()
    await cluster.until(55)
    assert await tainted(cluster, every) == 1
    cluster.silence(*every)
    await cluster.until(120)
    assert await unknown(cluster, every) == 4
    assert await tainted(cluster, every) == 0
    await cluster.until(1000)
    assert await tainted(cluster, every) == 0
    assert not (await cluster.get_pod()).is_terminating
    for each in every:
        assert await cluster.taints(each) == ["unreachable:NoSchedule"]


@virtual(NodeCluster)
async def test_when_something_is_back_silence_counts_anew(cluster: NodeCluster) -> None:
    """Behaviour C3.15: a node that beat last long ago has its whole grace, others their turn."""
    every = names(6)
    await cluster.nodes(every)
    await cluster.start()
    await cluster.until(102)
    assert await unknown(cluster, every) == 6
    await cluster.post(every[0])
    await cluster.post(every[1])
    cluster.keep_beating(every[1])
    for each in every[2:4]:  # back for a moment
        await cluster.post(each)
    await cluster.until(105)  # the pass that sees the outage
    assert await tainted(cluster, every) == 0
    await cluster.until(114.8)
    assert await tainted(cluster, every) == 0
    await cluster.until(115)  # nodes that waited in vain wait again
    assert await tainted(cluster, every) == 1
    await cluster.until(154.8)
    assert await cluster.ready(every[0]) == "True"
    await cluster.until(155)
    assert await cluster.ready(every[0]) == "Unknown"


async def status_of(cluster: NodeCluster, among: list[str]) -> list[str]:
    return [await cluster.ready(each) for each in among]


@virtual(NodeCluster)
async def test_after_a_full_outage_each_node_has_its_whole_grace_anew(cluster: NodeCluster) -> None:
    """Behaviour C3.15: in each zone, whatever condition a node posted last, or if none."""
    excluded = {"node.kubernetes.io/exclude-disruption": ""}
    last = ["not-ready", "ready", "new"]
    await cluster.nodes(names(2), labels=zone("a"))
    await cluster.start()
    await cluster.until(60)
    await cluster.node("not-ready", posts=False, labels=zone("b"))
    await cluster.post("not-ready", Ready="False")
    await cluster.node("ready", labels={**zone("a"), **excluded})
    await cluster.node("new", posts=False, leases=False, labels=zone("b"))
    await cluster.until(102)
    assert await status_of(cluster, last) == ["False", "True", ""]
    await cluster.post("n0")
    cluster.keep_beating("n0")
    await cluster.until(105)  # the pass that sees the end: nothing before counts
    await cluster.until(154.8)
    assert await status_of(cluster, last) == ["False", "True", ""]
    await cluster.until(155)
    assert await status_of(cluster, last) == ["Unknown", "Unknown", ""]
    await cluster.until(164.8)
    assert await status_of(cluster, last) == ["Unknown", "Unknown", ""]
    await cluster.until(165)
    assert await status_of(cluster, last) == ["Unknown", "Unknown", "Unknown"]


@virtual(NodeCluster)
async def test_during_a_full_outage_silence_counts(cluster: NodeCluster) -> None:
    """Behaviour C3.15: only the end of an outage gives another grace, not begin or length."""
    await cluster.nodes(names(2))
    await cluster.start()
    await cluster.until(40)
    await cluster.post("n0", Ready="False")
    await cluster.until(50)  # all is down from now on
    assert await status_of(cluster, names(2)) == ["False", "Unknown"]
    await cluster.until(89.8)
    assert await cluster.ready("n0") == "False"
    await cluster.until(95)
    assert await cluster.ready("n0") == "Unknown"


async def replace_all(cluster: NodeCluster, old: list[str], new: list[str]) -> None:
    """In a pass between the two there are no nodes at all."""
    for each in old:
        await cluster.client.delete(kinds.NODES, each)
        await cluster.client.delete(kinds.LEASES, each, namespace=NODE_NAMESPACE)
    await cluster.sleep(6)
    await cluster.nodes(new)
    cluster.keep_beating(*new)
    await cluster.sleep(6)


async def loses_its_pod(cluster: NodeCluster, node: str) -> None:
    """The node falls silent: gets its taint in turn and keeps the taint, until its pod leaves."""
    await cluster.pod("p", node=node, tolerations=[SOON])
    await cluster.post(node)
    cluster.silence(node)
    began = cluster.seconds
    await cluster.until(began + 70)
    assert NO_EXECUTE in await cluster.taints(node)
    for passes in range(1, 5):
        await cluster.until(began + 70 + 5 * passes)
        assert NO_EXECUTE in await cluster.taints(node)
    await cluster.until(began + 140)
    assert (await cluster.get_pod()).is_terminating


@virtual(NodeCluster)
async def test_a_new_zone_that_is_well_ends_it_that_all_is_down(cluster: NodeCluster) -> None:
    """Behaviour C3.8, C3.15: a node of that zone is tainted like any other."""
    await cluster.nodes(names(2, "a"), labels=zone("a"))
    await cluster.start()
    await cluster.until(60)
    assert await unknown(cluster, names(2, "a")) == 2
    await cluster.nodes(names(6, "b"), labels=zone("b"))
    cluster.keep_beating(*names(6, "b"))
    await cluster.until(80)
    await loses_its_pod(cluster, "b0")


@virtual(NodeCluster)
async def test_other_nodes_in_place_of_lost_ones_are_tainted_like_any(cluster: NodeCluster) -> None:
    """Behaviour C3.8, C3.15."""
    await cluster.nodes(names(2))
    await cluster.start()
    await cluster.until(60)
    assert await unknown(cluster, names(2)) == 2
    await replace_all(cluster, names(2), names(6, "c"))
    await loses_its_pod(cluster, "c0")


@virtual(NodeCluster)
async def test_zone_down_keeps_its_taints_when_the_others_are_gone(cluster: NodeCluster) -> None:
    """Behaviour C3.15: the node was down before, so nothing has changed."""
    await cluster.nodes(names(2, "a"), labels=zone("a"))
    await cluster.nodes(names(2, "b"), labels=zone("b"))
    cluster.keep_beating(*names(2, "b"))
    await cluster.start()
    await cluster.until(70)
    assert await tainted(cluster, names(2, "a")) == 2
    for each in names(2, "b"):
        await cluster.client.delete(kinds.NODES, each)
    for seconds in (80, 85, 90):
        await cluster.until(seconds)
        await cluster.client.patch(
            kinds.NODES, "a0", {"metadata": {"labels": {"looked-at": str(seconds)}}}
        )
        assert await tainted(cluster, names(2, "a")) == 2


@virtual(NodeCluster)
async def test_nodes_that_are_excluded_do_not_count(cluster: NodeCluster) -> None:
    """Behaviour C3.13: with the excluded ones, three of five would be down."""
    silent, well = names(3), names(2, "w")
    excluded = {"node.kubernetes.io/exclude-disruption": ""}
    await cluster.nodes(silent[:1])
    await cluster.nodes(silent[1:], labels=excluded)
    await cluster.nodes(well)
    cluster.keep_beating(*well)
    await cluster.start()
    await cluster.until(75)
    assert await tainted(cluster, silent) == 3


@virtual(NodeCluster)
async def test_what_is_counted_can_be_read(cluster: NodeCluster) -> None:
    """Behaviour C3.17."""
    silent, well = names(2), names(6, "w")
    await cluster.nodes([*silent, *well])
    cluster.keep_beating(*well)
    await cluster.start()
    await cluster.until(65)
    labels = {"zone": ""}
    samples = {
        name: cluster.metrics.get_sample_value(f"node_collector_{name}", labels)
        for name in ("evictions_total", "zone_health", "zone_size", "unhealthy_nodes_in_zone")
    }
    assert samples == {
        "evictions_total": 2,
        "zone_health": 75,
        "zone_size": 8,
        "unhealthy_nodes_in_zone": 2,
    }
