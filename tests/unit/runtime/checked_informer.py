# SPDX-License-Identifier: Apache-2.0
"""An informer on a server that fails on command, and a handler that checks what it is told."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from refloat.api.core import Pod
from refloat.client import kinds
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.informer import Change, Informer
from refloat.runtime.reflector import FollowSettings
from refloat.sim.run import Sim
from tests.fake_server import FollowedClient

APP = index.label("app")

# Longer than the longest wait before another attempt, and than a silent watch
# is borne, together.
EVENTUALLY = 200.0


class Told:
    """A handler that insists on legal histories and notes them."""

    def __init__(self, cache: Cache[Pod]) -> None:
        self._cache = cache
        self.state: dict[str, Pod] = {}
        self.log: list[str] = []

    def __call__(self, change: Change[Pod]) -> None:
        old, new, key = change.old, change.new, key_of(change.current)
        assert self.state.get(key) is old, f"{key}: not what was told before"
        assert self._cache.get(key) is new, f"{key}: not what the cache says"
        if old is not None and new is not None:
            assert old.metadata.uid == new.metadata.uid, f"{key}: another object"
            assert old != new, f"{key}: nothing changed"
        self._note(key, old, new)

    def _note(self, key: str, old: Pod | None, new: Pod | None) -> None:
        sign = "+" if old is None else "-" if new is None else "~"
        self.log.append(f"{sign}{key.partition('/')[2]}")
        if new is None:
            del self.state[key]
        else:
            self.state[key] = new

    def taken(self) -> list[str]:
        """What was told since the last time."""
        log, self.log = self.log, []
        return log


class CheckedInformer:
    """Server, informer and handler."""

    def __init__(self, sim: Sim, **settings: Any) -> None:
        self.sim = sim
        self.server = FollowedClient(sim.clock)
        self.informer: Informer[Pod] = Informer(
            self.server,
            kinds.PODS,
            clock=sim.clock,
            rand=sim.rand,
            indexes=[index.NODE, index.OWNER, APP],
            settings=FollowSettings(**settings),
        )
        self.cache = self.informer.cache
        self.told = Told(self.cache)
        self.informer.add_handler(self.told)

    async def settle(self, seconds: float = EVENTUALLY) -> None:
        """Let so much time pass."""
        await self.sim.clock.sleep(seconds)

    async def sync(self) -> None:
        """Start, and wait until the first part is complete; then begin to count anew."""
        self.informer.start()
        await self.informer.wait_synced()
        await self.settle(0.1)
        self.told.taken()
        self.server.calls.clear()

    def assert_true_to_the_server(self) -> None:
        truth = {key: kinds.PODS.decoder.decode(body) for key, body in self.server.objects.items()}
        assert {key_of(each): each for each in self.cache} == truth
        assert self.told.state == truth


@contextlib.asynccontextmanager
async def world(sim: Sim, *names: str, **settings: Any) -> AsyncIterator[CheckedInformer]:
    """A world with pods of these names, closed in the end."""
    informer = CheckedInformer(sim, **settings)
    for name in names:
        informer.server.put(name)
    try:
        yield informer
    finally:
        await informer.informer.close()
    assert informer.server.watches == []


@contextlib.asynccontextmanager
async def synced(sim: Sim, *names: str, **settings: Any) -> AsyncIterator[CheckedInformer]:
    """A world whose informer has read these pods."""
    async with world(sim, *names, **settings) as informer:
        await informer.sync()
        yield informer
