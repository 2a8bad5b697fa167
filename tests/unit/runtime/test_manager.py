# SPDX-License-Identifier: Apache-2.0
"""In which order the parts of a process start and stop, and what ends it."""

import asyncio
import logging
from typing import Any

import pytest

from refloat.runtime.errors import LeadershipLost, SyncTimeout
from refloat.runtime.manager import Manager, ManagerSettings, Parts
from refloat.sim.run import Sim
from tests.virtual import virtual


class Part:
    """Anything that a manager runs; notes what is asked of it."""

    def __init__(self, sim: Sim, name: str, story: list[str]) -> None:
        self.sim = sim
        self.name = name
        self.story = story
        self.takes = 0.0  # to sync, to acquire, to end
        self.fails: Exception | None = None
        self.ended = True
        self.has_synced = False
        self.leads = False
        self.gone: asyncio.Event = asyncio.Event()
        self.checks: dict[str, Any] = {}

    def _say(self, what: str) -> None:
        self.story.append(f"{self.name} {what}")

    async def _do(self, what: str) -> None:
        self._say(what)
        await self.sim.clock.sleep(self.takes)
        if self.fails is not None:
            raise self.fails


class FakeInformer(Part):
    def start(self) -> None:
        self._say("start")
        self.sim.clock.call_at(
            self.sim.clock.monotonic() + self.takes, lambda: setattr(self, "has_synced", True)
        )

    async def close(self) -> None:
        self._say("close")


class FakeController(Part):
    def start(self) -> None:
        self._say("start")

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        await self._do(f"stop {drain_seconds:g}")
        return self.ended


class FakeRecorder(Part):
    def start(self) -> None:
        self._say("start")

    async def stop(self, flush_seconds: float = 0.0) -> None:
        await self._do(f"stop {flush_seconds:g}")


class FakeLeadership(Part):
    async def acquire(self) -> None:
        await self._do("acquire")

    async def lost(self) -> LeadershipLost:
        await self.gone.wait()
        return LeadershipLost("not renewed in time")

    async def release(self) -> None:
        self._say("release")

    async def close(self) -> None:
        self._say("close")


class FakeServing(Part):
    def ready_when(self, name: str, check: Any, note: Any = None) -> None:
        self.checks[name] = check

    async def start(self) -> None:
        await self._do("start")

    async def close(self) -> None:
        self._say("close")


class ManagerFixture:
    """One part of each kind, and a manager of them."""

    def __init__(self, sim: Sim, **settings: Any) -> None:
        self.sim = sim
        self.story: list[str] = []
        self.informer = FakeInformer(sim, "informer", self.story)
        self.controller = FakeController(sim, "controller", self.story)
        self.recorder = FakeRecorder(sim, "recorder", self.story)
        self.leadership = FakeLeadership(sim, "lease", self.story)
        self.serving = FakeServing(sim, "endpoints", self.story)
        self.manager = Manager(
            Parts(
                informers=[self.informer],
                controllers=[self.controller],
                recorders=[self.recorder],
                leadership=self.leadership,
                serving=self.serving,
            ),
            clock=sim.clock,
            settings=ManagerSettings(**settings),
        )
        self.running = asyncio.ensure_future(self.manager.run())

    def not_ready(self) -> list[str]:
        return [why for check in self.serving.checks.values() if (why := check())]


UP = ["endpoints start", "informer start", "lease acquire", "recorder start", "controller start"]
DOWN = [
    "controller stop 10",
    "recorder stop 3",
    "lease release",
    "informer close",
    "endpoints close",
]


@virtual(seeds=10)
async def test_parts_start_in_order_and_stop_in_order(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    await sim.clock.sleep(100)
    assert stage.story == UP
    stage.manager.stop()
    stage.manager.stop()
    await stage.running
    assert stage.story == UP + DOWN


@virtual()
async def test_caches_are_filled_before_leadership_is_sought(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    stage.informer.takes = 50
    await sim.clock.sleep(49)
    assert stage.story == UP[:2]
    assert stage.not_ready() == ["not synced: informer"]
    await sim.clock.sleep(2)
    assert stage.story == UP
    assert stage.not_ready() == []
    stage.manager.stop()
    await stage.running


@virtual()
async def test_a_stand_by_is_ready_and_starts_nothing_that_acts(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    stage.leadership.takes = 1e6
    await sim.clock.sleep(1000)
    assert stage.story == UP[:3]
    assert stage.not_ready() == []
    stage.manager.stop()
    await stage.running
    assert stage.story == [*UP[:3], "lease release", "informer close", "endpoints close"]


@virtual()
async def test_an_api_server_that_is_away_is_waited_for_and_said_so(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    stage = ManagerFixture(sim)
    stage.informer.takes = 75
    await sim.clock.sleep(100)
    messages = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert messages == ["waiting for the API server: not synced: informer"] * 3
    assert stage.story == UP
    stage.manager.stop()
    await stage.running


@virtual()
async def test_a_first_sync_can_have_a_bound(sim: Sim) -> None:
    stage = ManagerFixture(sim, sync_seconds=20)
    stage.informer.takes = 75
    with pytest.raises(SyncTimeout, match="no first sync in 20 s: not synced: informer"):
        await stage.running
    assert stage.story[2:] == ["lease close", "informer close", "endpoints close"]


@virtual()
async def test_when_leadership_is_lost_all_that_acts_is_cancelled_at_once_and_the_run_fails(
    sim: Sim,
) -> None:
    stage = ManagerFixture(sim)
    await sim.clock.sleep(10)
    stage.leadership.gone.set()
    with pytest.raises(LeadershipLost, match="not renewed in time"):
        await stage.running
    assert stage.story[len(UP) : len(UP) + 2] == ["controller stop 0", "recorder stop 0"]
    assert sim.clock.monotonic() == 10


@virtual()
async def test_the_lease_is_not_released_while_something_may_still_act(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    stage.controller.ended = False
    await sim.clock.sleep(1)
    stage.manager.stop()
    await stage.running
    assert "lease release" not in stage.story
    assert "lease close" in stage.story


@virtual()
async def test_a_part_that_does_not_stop_in_time_is_left_behind(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    stage = ManagerFixture(sim, drain_seconds=10, phase_seconds=5)
    stage.controller.takes = 1e6
    await sim.clock.sleep(1)
    stage.manager.stop()
    await stage.running
    assert sim.clock.monotonic() == 16
    assert "stopping controllers took longer than 15 s; left behind" in caplog.text
    assert stage.story[len(UP) :] == [DOWN[0], DOWN[1], "lease close", *DOWN[3:]]


@virtual()
async def test_a_part_that_fails_to_stop_does_not_keep_the_rest(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    stage = ManagerFixture(sim)
    stage.recorder.fails = ValueError("broken")
    await sim.clock.sleep(1)
    stage.manager.stop()
    await stage.running
    assert stage.story == UP + DOWN
    assert "stopping events failed" in caplog.text


@virtual()
async def test_what_fails_at_the_start_ends_the_run(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    stage.serving.fails = OSError("address in use")
    with pytest.raises(OSError, match="address in use"):
        await stage.running
    assert stage.story == ["endpoints start", "lease close", "informer close", "endpoints close"]


@virtual()
async def test_while_it_stops_a_process_is_not_ready(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    stage.controller.takes = 5
    await sim.clock.sleep(1)
    stage.manager.stop()
    await sim.clock.sleep(1)
    assert stage.not_ready() == ["stopping"]
    await stage.running


@virtual()
async def test_a_manager_of_nothing_runs_and_stops(sim: Sim) -> None:
    manager = Manager(Parts(), clock=sim.clock)
    running = asyncio.ensure_future(manager.run())
    await sim.clock.sleep(1)
    assert not running.done()
    manager.stop()
    await running


@virtual()
async def test_a_cancelled_run_stops_everything_too(sim: Sim) -> None:
    stage = ManagerFixture(sim)
    await sim.clock.sleep(1)
    stage.running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage.running
    assert stage.story == [*UP, "controller stop 0", "recorder stop 0", *DOWN[2:]]
