# SPDX-License-Identifier: Apache-2.0
"""KEP-36's scenarios on a whole cluster in virtual time, in every order of their steps."""

import pytest

from refloat.api import structs
from refloat.client import kinds
from refloat.sim.journal import describe_pod
from refloat.sim.run import Sim, run
from tests.simulation.force_eviction_cluster import FREE, EvictedNodeCluster, Moment
from tests.virtual import virtual

# How long a node is off before a user asks for the eviction: the node is not Ready by then, and
# its Lease has not changed for longer than its duration.
OFF_SECONDS = 70

# From then on everything has its end: the Job's delay, the start of its next pod.
END_SECONDS = 300

# Those of force eviction, with or without that of the attachment, which may be gone by then.
WRITES = 6

MOMENTS: list[Moment] = [(n, side) for n in range(1, WRITES + 1) for side in ("before", "after")]
# The third write makes the pod fail: a node that returns before that write is refused.
REFUSED = MOMENTS.index((3, "before")) + 1


@virtual(EvictedNodeCluster, seeds=5)
async def test_a_node_that_stays_off(s: EvictedNodeCluster) -> None:
    """Scenario 1, and the node stays away: at once, where six minutes would pass otherwise."""
    node = await s.begin()
    [pod] = s.pods()
    s.fleet.fail(node, "crash")
    await s.sim.clock.sleep(OFF_SECONDS)
    await s.request_eviction(node)
    await s.sim.clock.sleep(30)
    assert s.hooked is not None
    assert s.hooked.writes in (WRITES - 1, WRITES)
    assert s.running()
    assert node not in s.running()
    lines = [text for _, text in s.history(pod)]
    assert "Failed terminating(0) DeletionByForceEviction" in lines[-3:]
    await s.sim.clock.sleep(END_SECONDS)
    await s.settled()
    assert s.job().status.failed == 1


@virtual(EvictedNodeCluster)
async def test_without_wish_the_volume_is_not_free_for_six_minutes(s: EvictedNodeCluster) -> None:
    node = await s.begin()
    [pod] = s.pods()
    s.fleet.fail(node, "crash")
    await s.sim.clock.sleep(OFF_SECONDS)
    status = {"phase": "Failed"}
    await s.client.patch(
        kinds.PODS, pod.metadata.name, {"status": status}, namespace="default", subresource="status"
    )
    await s.sim.clock.sleep(350)
    assert not s.running()
    assert "Pending" in describe_pod(s.pods()[-1])
    await s.sim.clock.sleep(60)
    assert s.running()
    assert node not in s.running()
    assert s.wrong == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[1]} {moment[0]}")
@virtual(EvictedNodeCluster, seed_from="seed")
async def test_a_node_that_returns_in_the_middle(
    s: EvictedNodeCluster, moment: Moment, seed: int
) -> None:
    """Scenario 1, step 5, before and after every step of the controller.

    Until its pod has failed, the eviction is refused.
    """
    node = await s.begin()
    s.returns_at, s.returns = moment, lambda: back(s, node)
    s.fleet.fail(node, "crash")
    await s.sim.clock.sleep(OFF_SECONDS)
    await s.request_eviction(node)
    await s.sim.clock.sleep(END_SECONDS)
    if s.fleet.fault(node):  # there was no such write: the attachment was gone by then
        s.fleet.heal(node)
        await s.sim.clock.sleep(60)
    await s.settled()
    is_refusal = moment in MOMENTS[:REFUSED]
    assert s.job().status.failed == (0 if is_refusal else 1)


# The end of an eviction without a volume is its fifth.
@pytest.mark.parametrize("number", range(3, 6))
@virtual(EvictedNodeCluster, seed_from="number")
async def test_a_node_that_does_not_hear_what_became_of_its_pod(
    s: EvictedNodeCluster, number: int
) -> None:
    """Scenario 1, step 8: when the taint is gone, its watch is still behind."""
    node = await s.begin(FREE)
    s.returns_at, s.returns = (number, "after"), lambda: back(s, node)
    # Nor would the cache hear of a replacement there.
    await s.client.patch(kinds.NODES, node, {"spec": {"unschedulable": True}})
    s.fleet.fail(node, "crash")
    s.late.untold = node
    await s.sim.clock.sleep(OFF_SECONDS)
    await s.request_eviction(node)
    await s.sim.clock.sleep(60)
    assert s.fleet.fault(node) is None
    assert s.wrong == []
    assert s.running()
    assert node not in s.running()


async def back(s: EvictedNodeCluster, node: str) -> None:
    """The node returns, and has time to act."""
    s.fleet.heal(node)
    await s.sim.clock.sleep(3)


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[1]} {moment[0]}")
def test_a_node_that_returns_and_cannot_reach_the_api_server(moment: Moment) -> None:
    """Scenario 2, in every order; later the line is mended."""

    async def program(sim: Sim) -> None:
        async with EvictedNodeCluster(sim) as s:
            node = await s.begin()

            async def comes_back() -> None:
                s.fleet.heal(node)
                s.fleet.fail(node, "partition")
                await sim.clock.sleep(3)

            s.returns_at, s.returns = moment, comes_back
            s.fleet.fail(node, "crash")
            await sim.clock.sleep(OFF_SECONDS)
            await s.request_eviction(node)
            await sim.clock.sleep(60)
            assert s.wrong == []
            assert node not in s.running()
            s.fleet.heal(node)
            await sim.clock.sleep(END_SECONDS)
            await s.settled()
            assert s.job().status.failed == 1

    run(program, seed=1)


@pytest.mark.parametrize("early", [0.0, 0.5, 5.0, 15.0])
def test_a_node_that_returns_before_the_check(early: float) -> None:
    """Scenario 3: the eviction is refused, and the pod goes on where it was."""

    async def program(sim: Sim) -> None:
        async with EvictedNodeCluster(sim) as s:
            node = await s.begin()
            [pod] = s.pods()
            s.fleet.fail(node, "crash")
            await sim.clock.sleep(OFF_SECONDS - early)
            s.fleet.heal(node)
            await sim.clock.sleep(early)
            await s.request_eviction(node)
            await sim.clock.sleep(END_SECONDS)
            await s.settled()
            assert s.job().status.failed == 0
            assert list(s.running()) == [node]
            newest = await s.find_pod(pod.metadata.name)
            assert newest is not None
            assert newest.metadata.uid == pod.metadata.uid

    run(program, seed=3)


@virtual(EvictedNodeCluster, seeds=3)
async def test_a_node_that_never_was_off_is_refused(s: EvictedNodeCluster) -> None:
    node = await s.begin()
    await s.request_eviction(node)
    await s.sim.clock.sleep(60)
    await s.settled()
    assert list(s.running()) == [node]
    current = await s.client.get(kinds.NODES, node)
    assert structs.is_true(current.status.conditions, "Ready")


@virtual(EvictedNodeCluster, seeds=3)
async def test_a_tool_that_says_so_again_and_again_starts_no_loop(s: EvictedNodeCluster) -> None:
    """Each request is one check; a node that is back is refused each time and keeps its pods."""
    node = await s.begin()
    s.fleet.fail(node, "crash")
    await s.sim.clock.sleep(OFF_SECONDS)
    await s.request_eviction(node)
    await s.sim.clock.sleep(60)
    s.fleet.heal(node)
    await s.sim.clock.sleep(20)
    assert s.hooked is not None
    before = s.hooked.writes
    for _ in range(5):
        await s.request_eviction(node)
        await s.sim.clock.sleep(20)
    assert s.hooked.writes == before + 5
    await s.settled()
    assert s.job().status.failed == 1
