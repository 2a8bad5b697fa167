# SPDX-License-Identifier: Apache-2.0
"""Node lifecycle and taint eviction that are killed, lag or are refused: the same end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers.node_lifecycle.monitor import LEASE_NAMESPACE
from refloat.runtime.informer import Informer
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.node_world import NAMESPACE, World, world
from tests.virtual import virtual

NODES = ("lost", "back", "well", "fine", "good")
PODS = ("p", "q", "kept", "elsewhere")

TOLERATIONS = [
    {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 100,
    }
]

# The pods of the lost node leave at 150 s; after a restart then, a hundred seconds later.
END = 300.0


@contextlib.asynccontextmanager
async def witness(here: World) -> AsyncIterator[list[str]]:
    """Notes pods that were deleted before it was said why."""
    unsaid: list[str] = []

    def saw(_: Pod | None, pod: Pod | None) -> None:
        if pod is None or not pod.is_terminating:
            return
        if not structs.is_true(pod.status.conditions, "DisruptionTarget"):
            unsaid.append(pod.metadata.name)

    pods = Informer(here.client, kinds.PODS, clock=here.sim.clock, rand=here.sim.rand)
    pods.add_handler(saw)
    pods.start()
    try:
        yield unsaid
    finally:
        await pods.close()


async def play(here: World) -> dict[str, Any]:
    """One node is lost for good, one comes back; how it ends."""
    await here.nodes(NODES)
    here.keep_beating(*NODES[2:])
    for pod, node in zip(PODS, ("lost", "lost", "back", "well"), strict=True):
        await here.pod(pod, node=node, tolerations=TOLERATIONS)
    async with witness(here) as unsaid:
        await here.start()
        return_at = here.sim.clock.monotonic() + 120
        await until_dead_or(here, return_at)
        await here.post("back")
        here.keep_beating("back")
        await until_dead_or(here, return_at - 120 + END)
        ended = await end_of(here)
    assert unsaid == []
    return ended


async def until_dead_or(here: World, when: float) -> None:
    """Wait; controllers that die meanwhile are started anew."""
    while (left := when - here.sim.clock.monotonic()) > 0:
        with contextlib.suppress(TimeoutError):
            async with here.sim.clock.timeout(left):
                await here.process.client.died.wait()
                await here.start()


async def end_of(here: World) -> dict[str, Any]:
    ended: dict[str, Any] = {}
    for name in NODES:
        ended[name] = (await here.ready(name), sorted(await here.taints(name)))
    for name in PODS:
        pod = await here.get_pod(name)
        conditions = sorted((each.type, each.status) for each in pod.status.conditions or ())
        ended[name] = (pod.is_terminating, conditions)
    return ended


WANT: dict[str, Any] = {
    "lost": ("Unknown", ["unreachable:NoExecute", "unreachable:NoSchedule"]),
    "back": ("True", []),
    "well": ("True", []),
    "fine": ("True", []),
    "good": ("True", []),
    "p": (True, [("DisruptionTarget", "True"), ("Ready", "False")]),
    "q": (True, [("DisruptionTarget", "True"), ("Ready", "False")]),
    # Its node's kubelet, which is not played here, would make it ready again.
    "kept": (False, [("Ready", "False")]),
    "elsewhere": (False, [("Ready", "True")]),
}


@virtual(seeds=3)
async def test_undisturbed(sim: Sim) -> None:
    async with world(sim) as here:
        assert await play(here) == WANT
        # Five taints of new nodes, two lost nodes with a write each on the status and for
        # each taint, their three pods, two taints that go again, and two pods deleted.
        assert here.process.client.writes == 5 + 2 * 3 + 3 + 2 + 2 * 2


@pytest.mark.parametrize("dies_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 21))
def test_killed_at_a_write(number: int, dies_after: bool) -> None:
    @virtual()
    async def run(sim: Sim) -> None:
        async with world(sim) as here:
            before = here.start

            async def start() -> None:
                first = here.process.client.writes == 0
                await before()
                if first:
                    here.process.client.dies_at = number
                    here.process.client.dies_after = dies_after

            here.start = start  # type: ignore[method-assign]
            assert await play(here) == WANT

    run()


@virtual(seeds=5)
async def test_caches_that_lag(sim: Sim) -> None:
    async with world(sim) as here:
        here.lag = 3.0
        assert await play(here) == WANT


@pytest.mark.parametrize(
    "error",
    [errors.Unavailable("away"), errors.Conflict("changed"), errors.Timeout("late")],
    ids=["unavailable", "conflict", "timeout"],
)
def test_every_third_write_is_refused(error: errors.ClientError) -> None:
    @virtual()
    async def run(sim: Sim) -> None:
        async with world(sim) as here:
            await _refusing(here, lambda _, number: error if number % 3 == 0 else None)
            assert await play(here) == WANT

    run()


@virtual(seeds=3)
async def test_writes_that_happen_and_are_not_answered(sim: Sim) -> None:
    """Whatever happened once more does no harm."""
    async with world(sim) as here:
        before = here.start

        async def start() -> None:
            await before()
            here.process.client.loses = (5 + sim.rand.below(10),)

        here.start = start  # type: ignore[method-assign]
        assert await play(here) == WANT


@virtual()
async def test_a_server_that_is_away_for_a_minute(sim: Sim) -> None:
    """Kubernetes gives a pod up after five attempts; here it leaves when the server is back."""
    async with world(sim) as here:
        away = asyncio.Event()
        gone = errors.Unreachable("away")
        await _refusing(here, lambda request, _: gone if away.is_set() else None)
        await here.nodes(NODES[2:])
        here.keep_beating(*NODES[2:])
        await here.pod("p", node="well")
        await here.start()
        await here.taint("well", {"key": "k", "effect": "NoExecute"})
        away.set()
        await here.until(60)
        assert not (await here.get_pod()).is_terminating
        away.clear()
        await here.until(130)
        assert (await here.get_pod()).is_terminating


@virtual()
async def test_a_taint_that_goes_while_a_delete_fails_lets_the_pod_stay(sim: Sim) -> None:
    async with world(sim) as here:
        away = asyncio.Event()
        gone = errors.Unreachable("away")
        await _refusing(here, lambda request, _: gone if away.is_set() else None)
        await here.nodes(NODES[2:])
        here.keep_beating(*NODES[2:])
        await here.pod("p", node="well")
        await here.start()
        away.set()
        await here.taint("well", {"key": "k", "effect": "NoExecute"})
        await here.until(20)
        await here.taint("well")
        away.clear()
        await here.until(300)
        assert not (await here.get_pod()).is_terminating


async def _refusing(here: World, refuse: Any) -> None:
    """Have the controllers' writes refused, in all their lives."""
    before = here.start

    async def start() -> None:
        await before()

        def refused(request: Request, number: int) -> errors.ClientError | None:
            found: errors.ClientError | None = refuse(request, number)
            return found

        here.process.client.refuses = refused

    here.start = start  # type: ignore[method-assign]


@virtual()
async def test_nobody_is_called_lost_while_leases_are_not_seen(sim: Sim) -> None:
    """Behaviour C3.3: the server has newer leases than the cache."""
    async with world(sim) as here:
        await here.nodes(NODES)
        here.keep_beating(*NODES)
        await here.start()
        await here.until(12)
        await here.process.leases.close()  # its cache stays as it is
        await here.until(300)
        assert {await here.ready(each) for each in NODES} == {"True"}


@virtual()
async def test_after_the_leases_are_seen_again_lost_nodes_are_called_lost(sim: Sim) -> None:
    """Behaviour C3.3."""
    async with world(sim) as here:
        await here.nodes(NODES)
        here.keep_beating(*NODES[1:])
        await here.start()
        await here.until(12)
        await here.process.leases.close()
        await here.until(100)
        here.process.leases.start()
        await here.until(160)
        assert await here.ready("lost") == "Unknown"
        assert {await here.ready(each) for each in NODES[1:]} == {"True"}


@virtual()
async def test_a_lease_that_came_and_went_unseen_keeps_no_node_from_being_called_lost(
    sim: Sim,
) -> None:
    """Behaviour C3.3: the cache has caught up, though what it has of that lease is as before."""
    async with world(sim) as here:
        await here.nodes(NODES)
        await here.node("bare", leases=False)
        here.keep_beating(*NODES)
        await here.start()
        await here.until(12)
        await here.process.leases.close()
        await here.client.create(kinds.LEASES, builders.lease("bare"), namespace=LEASE_NAMESPACE)
        await here.until(57)
        assert await here.ready("bare") == "True"
        await here.client.delete(kinds.LEASES, "bare", namespace=LEASE_NAMESPACE)
        here.process.leases.start()
        here.silence("lost")
        await here.until(120)
        assert await here.ready("bare") == "Unknown"
        assert await here.ready("lost") == "Unknown"
        assert {await here.ready(each) for each in NODES[1:]} == {"True"}


@virtual()
async def test_what_is_seen_twice_is_done_once(sim: Sim) -> None:
    """All is told anew, as after a watch that was cut: no countdown begins anew, none is twice."""
    async with world(sim) as here:
        await here.nodes(NODES[2:])
        here.keep_beating(*NODES[2:])
        await here.pod("p", node="well")
        await here.start()
        await here.taint("well", {"key": "k", "effect": "NoExecute"})
        await here.until(5)
        for informer in (here.process.pods, here.process.nodes):
            await informer.close()
            informer.start()
        await here.until(60)
        marked = [each for each in here.told.about("Pod/p") if "Marking" in each[1]]
        assert len(marked) == 1
        pods = [page async for page in here.client.list(kinds.PODS, namespace=NAMESPACE)]
        assert len(pods[0].items) == 1
