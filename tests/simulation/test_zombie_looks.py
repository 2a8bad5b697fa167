# SPDX-License-Identifier: Apache-2.0
"""What changes while a node is looked at, and what only the look can see."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Generic, TypeAlias, TypeVar

import pytest

from refloat.client import errors, kinds
from refloat.client.contract import Kind, Watch, WatchEvent
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.policy import out_of_service, zombie
from refloat.policy.failure_recovery import (
    Annotated,
    Budget,
    FailureRecoveryPolicy,
    TaintNodeOutOfService,
)
from refloat.sim.run import Sim, run
from tests.simulation.job_world import nothing
from tests.simulation.recovery_world import FREED_AFTER, NODE_GRACE, SAFE, Stage, stage
from tests.virtual import virtual

T = TypeVar("T")

TAINT_AFTER = 600
TAINTING = FailureRecoveryPolicy(
    taint=(TaintNodeOutOfService("rules[0]", timedelta(seconds=TAINT_AFTER)),)
)
HOURLY = FailureRecoveryPolicy(budget=Budget(1, timedelta(hours=1)))
AT_ONCE = FailureRecoveryPolicy(annotated=Annotated(delete_after=timedelta(minutes=1)))
LOOK_SECONDS = 10
EXPIRED = errors.Expired("too old resource version")


# -- gate, mode and hold

Change: TypeAlias = Callable[[Stage], Awaitable[None]]


async def _off(s: Stage) -> None:
    s.switch(on=False)


async def _report(s: Stage) -> None:
    s.switch(replace(s.policy, mode="Report"))


async def _on(s: Stage) -> None:
    s.switch()


async def _lost(s: Stage) -> None:
    await s.lose("n1")
    await s.lose("n2")


async def _found(s: Stage) -> None:
    await s.find("n1")


CHANGES = pytest.mark.parametrize(
    ("change", "undo"),
    [
        pytest.param(_off, _on, id="the gate is switched off"),
        pytest.param(_report, _on, id="the mode becomes Report"),
        pytest.param(_lost, _found, id="too many nodes are lost"),
    ],
)


async def looked_at_slowly(s: Stage, change: Change) -> None:
    """Start; while the node is looked at for the first time, something changes."""

    async def slowly(request: Request) -> None:
        if "/nodes/" in request.path:
            s.world.mortal.before_read = nothing
            await change(s)
            await s.sim.clock.sleep(2)

    await s.node()
    for name in ("n1", "n2"):
        await s.node(name, lost=False)
    await s.start(before_read=slowly)


@CHANGES
def test_what_changes_while_a_node_is_looked_at_keeps_its_pod(change: Change, undo: Change) -> None:
    """And the slot of the budget is there when it may be forced again."""

    async def program(sim: Sim) -> None:
        async with stage(sim, HOURLY) as s:
            await looked_at_slowly(s, change)
            await s.zombie()
            await s.until(FREED_AFTER + 100)
            assert await s.phase() == "Running"
            assert s.world.mortal.writes == 0
            assert s.decided("terminated", "Annotation") == 0
            await undo(s)
            await s.until(FREED_AFTER + 101)
            assert await s.freed_at() == FREED_AFTER + 100

    run(program, seed=0)


@CHANGES
def test_what_changes_while_a_node_is_looked_at_keeps_its_object(
    change: Change, undo: Change
) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, AT_ONCE) as s:
            await looked_at_slowly(s, change)
            await s.zombie()
            await s.world.status("p", phase="Succeeded")
            await s.until(FREED_AFTER + 100)
            assert await s.phase() == "Succeeded"
            assert s.world.mortal.writes == 0
            await undo(s)
            await s.until(FREED_AFTER + 101)
            assert await s.phase() == "gone"

    run(program, seed=0)


@CHANGES
def test_what_changes_while_a_node_is_looked_at_keeps_it_in_service(
    change: Change, undo: Change
) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, TAINTING) as s:
            await looked_at_slowly(s, change)
            await s.running()
            await s.until(TAINT_AFTER + 100)
            assert s.world.mortal.writes == 0
            assert s.told("FailureRecoveryTaintedNode") == []
            await undo(s)
            await s.until(TAINT_AFTER + 101)
            assert len(s.told("FailureRecoveryTaintedNode")) == 1

    run(program, seed=0)


@virtual()
async def test_a_gate_that_is_switched_off_during_the_look_leaves_the_taint(sim: Sim) -> None:
    ours = {"key": "node.kubernetes.io/out-of-service", "value": out_of_service.OURS}
    async with stage(sim, TAINTING) as s:

        async def slowly(request: Request) -> None:
            s.world.mortal.before_read = nothing
            s.switch(on=False)
            await sim.clock.sleep(2)

        await s.node(lost=False)
        await s.start(before_read=slowly)
        await s.taint("n", {**ours, "effect": "NoExecute"})
        await s.until(60)
        assert s.world.mortal.writes == 0


@virtual()
async def test_a_pod_that_is_kept_in_mode_report_is_told_of(sim: Sim) -> None:
    async with stage(sim) as s:
        await looked_at_slowly(s, _report)
        await s.zombie()
        await s.until(FREED_AFTER + 100)
        assert len(s.told("WouldForcefullyTerminate")) == 1


# -- caches that are behind


class Cut(LocalClient):
    """Watches of one kind tell nothing while they are cut; then all is listed anew."""

    def __init__(self, s: Stage, cut: Kind[T], error: errors.ClientError = EXPIRED) -> None:
        super().__init__(s.world.api, field_manager="test")
        self._cut = cut.resource
        self.error = error
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def _open(self, request: Request, kind: Kind[T]) -> Watch[T]:
        watch = super()._open(request, kind)
        if kind.resource != self._cut:
            return watch
        return CutWatch(watch, self.goes_on, self.error)


class CutWatch(Generic[T]):
    def __init__(self, watch: Watch[T], goes_on: asyncio.Event, error: errors.ClientError) -> None:
        self._watch = watch
        self._goes_on = goes_on
        self._error = error

    def __aiter__(self) -> "CutWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        event = await self._watch.__anext__()
        if not self._goes_on.is_set():
            await self._goes_on.wait()
            raise self._error
        return event

    async def aclose(self) -> None:
        await self._watch.aclose()


async def _takes_it_back(s: Stage) -> None:
    await s.annotate("p", dict.fromkeys(SAFE))


async def _is_bound(s: Stage) -> None:
    await s.running("other", annotations={})


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_takes_it_back, id="its user takes the opt-in back"),
        pytest.param(_is_bound, id="another is bound to the node"),
    ],
)
def test_a_pod_that_the_cache_does_not_know_keeps_its_node_in_service(change: Change) -> None:
    async def program(sim: Sim) -> None:
        async with stage(sim, TAINTING) as s:
            s.world.client = cut = Cut(s, kinds.PODS)
            await s.node()
            await s.running()
            await s.start()
            await s.until(500)
            cut.goes_on.clear()
            await change(s)
            await s.until(TAINT_AFTER + 100)
            assert s.world.mortal.writes == 0
            assert s.decided("ignored", "PodNotOptedIn", "node") == 1

    run(program, seed=0)


@virtual()
async def test_a_node_whose_pods_opt_in_after_the_look_is_tainted_when_they_do(sim: Sim) -> None:
    async with stage(sim, TAINTING) as s:
        s.world.client = cut = Cut(s, kinds.PODS)
        await s.node()
        await s.running()
        await s.start()
        await s.until(500)
        cut.goes_on.clear()
        await _takes_it_back(s)
        await s.until(TAINT_AFTER + 5)
        await s.annotate("p", SAFE)
        await s.until(TAINT_AFTER + LOOK_SECONDS + 1)
        assert len(s.told("FailureRecoveryTaintedNode")) == 1


@pytest.mark.parametrize("over", [False, True], ids=["to be freed", "to be deleted"])
def test_a_pod_is_not_forgotten_that_only_the_look_kept(over: bool) -> None:
    """The node was back for a moment, and no watch ever tells of it."""

    async def program(sim: Sim) -> None:
        async with stage(sim, AT_ONCE) as s:
            s.world.client = cut = Cut(s, kinds.NODES)
            await s.node()
            await s.start()
            await s.zombie()
            if over:
                await s.world.status("p", phase="Succeeded")
            await s.until(FREED_AFTER - 5)
            cut.goes_on.clear()
            await s.find()
            await s.until(FREED_AFTER + 1)
            assert await s.phase() == ("Succeeded" if over else "Running")
            assert s.decided("ignored", "NodeReachable") == 1
            await s.lose()
            cut.goes_on.set()
            await s.until(FREED_AFTER + LOOK_SECONDS + 1)
            assert await s.phase() == ("gone" if over else "Failed")

    run(program, seed=0)


@virtual()
async def test_a_pod_whose_node_is_back_for_good_is_left_alone(sim: Sim) -> None:
    async with stage(sim) as s:
        s.world.client = cut = Cut(s, kinds.NODES)
        await s.node()
        await s.start()
        await s.zombie()
        await s.until(FREED_AFTER - 5)
        cut.goes_on.clear()
        await s.find()
        await s.until(FREED_AFTER + 1)
        cut.goes_on.set()
        await s.until(5000)
        assert await s.phase() == "Running"
        assert s.told(zombie.REASON) == []
        assert s.decided("ignored", "NodeReachable") == 1


@virtual(seeds=3)
async def test_a_silence_from_before_an_outage_of_the_server_does_not_count(sim: Sim) -> None:
    """While the server is out no node can renew its lease, so that one did not proves nothing."""
    async with stage(sim) as s:
        s.world.client = cut = Cut(s, kinds.LEASES, errors.Unavailable("the connection broke"))
        await s.node()
        await s.node("n1", lost=False)
        await s.start()
        await s.zombie()
        await s.until(70)
        cut.goes_on.clear()
        await s.renew("n1")
        await s.until(80)
        cut.goes_on.set()
        await s.until(80 + NODE_GRACE - 1)
        assert await s.phase() == "Running"
        assert s.decided("waiting", "LeaseSilence") == 1
        await s.until(80 + NODE_GRACE + 5)
        assert await s.phase() == "Failed"
