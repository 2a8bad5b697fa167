# SPDX-License-Identifier: Apache-2.0
"""When a reflector says that it has seen a version: not before all initial events came."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec

from refloat.api.core import Pod
from refloat.client import errors, kinds
from refloat.client.contract import Client, ListPage, WatchEvent
from refloat.runtime.reflector import RESUME_SECONDS, FollowSettings, Reflector
from refloat.sim.run import Sim
from tests.virtual import virtual


def pod(name: str, version: str) -> Pod:
    metadata = {"name": name, "namespace": "default", "resourceVersion": version}
    return kinds.PODS.decoder.decode(msgspec.json.encode({"metadata": metadata}))


class Script:
    """A server that sends what a test wrote down, and then nothing more."""

    def __init__(self, events: list[WatchEvent[Pod]], pages: list[ListPage[Pod]]) -> None:
        self._events, self._pages = events, pages

    async def watch(self, kind: object, **_how: Any) -> AsyncIterator[WatchEvent[Pod]]:
        for event in self._events:
            yield event
        await asyncio.Event().wait()

    async def list(self, kind: object, **_how: Any) -> AsyncIterator[ListPage[Pod]]:
        for page in self._pages:
            yield page


class SyncRecorder:
    """A mirror that asks, at each step, whether the reflector says that it has seen all."""

    def __init__(self) -> None:
        self.reflector: Reflector[Pod] | None = None
        self.steps: list[tuple[str, bool]] = []

    def _step(self, what: str) -> None:
        assert self.reflector is not None
        self.steps.append((what, self.reflector.has_seen("1")))

    def begin(self) -> None:
        self._step("begin")

    def put(self, obj: Pod) -> None:
        self._step(obj.metadata.name)

    def remove(self, obj: Pod) -> None:
        self._step(f"-{obj.metadata.name}")

    def complete(self) -> None:
        self._step("complete")


async def follow(sim: Sim, script: Script, *, initial_events: bool) -> SyncRecorder:
    mirror = SyncRecorder()
    mirror.reflector = Reflector(
        cast("Client", script),
        kinds.PODS,
        mirror,
        clock=sim.clock,
        rand=sim.rand,
        settings=FollowSettings(initial_events=initial_events),
    )
    running = asyncio.ensure_future(mirror.reflector.run())
    await sim.clock.sleep(10)
    running.cancel()
    return mirror


@virtual()
async def test_no_initial_event_and_no_other_bookmark_moves_the_position(sim: Sim) -> None:
    """Objects come in the order of their names; a bookmark of the stream says nothing of them."""
    events: list[WatchEvent[Pod]] = [
        WatchEvent("ADDED", pod("a", "105"), "105"),
        WatchEvent("BOOKMARK", None, "110"),
        WatchEvent("ADDED", pod("b", "103"), "103"),
        WatchEvent("BOOKMARK", None, "111", initial_end=True),
        WatchEvent("ADDED", pod("c", "112"), "112"),
    ]
    mirror = await follow(sim, Script(events, []), initial_events=True)
    first = [("begin", False), ("a", False), ("b", False), ("complete", False)]
    assert mirror.steps == [*first, ("c", True)]
    assert mirror.reflector is not None
    assert (mirror.reflector.has_seen("112"), mirror.reflector.has_seen("113")) == (True, False)


@virtual()
async def test_no_page_but_the_last_moves_the_position(sim: Sim) -> None:
    pages = [
        ListPage([pod("a", "105")], "110", last=False),
        ListPage([pod("b", "103")], "110", last=True),
    ]
    mirror = await follow(sim, Script([], pages), initial_events=False)
    assert mirror.steps == [("begin", False), ("a", False), ("b", False), ("complete", False)]
    assert mirror.reflector is not None
    assert mirror.reflector.has_seen("110")


class Cuts(Script):
    """A server that tells something every so often; watches are cut, and lists may take long."""

    def __init__(self, sim: Sim, *, lasts: int, every: int) -> None:
        super().__init__([], [])
        self._sim, self._lasts, self._every = sim, lasts, every
        self.version = 1
        self.cuts = 0
        self.takes = 0.0

    async def watch(self, kind: object, **_how: Any) -> AsyncIterator[WatchEvent[Pod]]:
        for second in range(1, self._lasts + 1):
            await self._sim.clock.sleep(1)
            if second % self._every == 0:
                self.version += 1
                yield WatchEvent("BOOKMARK", None, str(self.version))
        self.cuts += 1
        raise errors.Unavailable("cut")

    async def list(self, kind: object, **_how: Any) -> AsyncIterator[ListPage[Pod]]:
        await self._sim.clock.sleep(self.takes)
        yield ListPage([], str(self.version), last=True)


@contextlib.asynccontextmanager
async def followed(sim: Sim, server: Cuts) -> AsyncIterator[Reflector[Pod]]:
    mirror = SyncRecorder()
    mirror.reflector = Reflector(
        cast("Client", server),
        kinds.PODS,
        mirror,
        clock=sim.clock,
        rand=sim.rand,
        settings=FollowSettings(initial_events=False),
    )
    running = asyncio.ensure_future(mirror.reflector.run())
    yield mirror.reflector
    running.cancel()


@virtual(seeds=3)
async def test_a_watch_that_is_cut_often_and_soon_goes_on_has_not_failed(sim: Sim) -> None:
    server = Cuts(sim, lasts=35, every=2)
    async with followed(sim, server) as reflector:
        await sim.clock.sleep(600)
        assert server.cuts > 10
        assert reflector.failed_at is None


@virtual(seeds=3)
async def test_a_server_that_does_not_come_back_soon_has_failed_until_it_does(sim: Sim) -> None:
    server = Cuts(sim, lasts=100, every=1)
    async with followed(sim, server) as reflector:
        await sim.clock.sleep(50)
        server.takes = 20
        await sim.clock.sleep(51)
        assert server.cuts == 1
        assert reflector.failed_at is None
        await sim.clock.sleep(RESUME_SECONDS)
        assert reflector.failed_at == sim.clock.monotonic()
        await sim.clock.sleep(50)
        assert reflector.failed_at is not None
        assert 120 <= reflector.failed_at <= 121


@virtual(seeds=3)
async def test_a_watch_that_was_silent_before_it_was_cut_has_failed(sim: Sim) -> None:
    """The server may have stood still before."""
    server = Cuts(sim, lasts=35, every=20)
    async with followed(sim, server) as reflector:
        await sim.clock.sleep(36)
        assert server.cuts == 1
        assert reflector.failed_at is not None
        assert 35 <= reflector.failed_at <= 36
