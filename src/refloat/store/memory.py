# SPDX-License-Identifier: Apache-2.0
"""The store of the simulator and of tests: gone with its process.

It uses no thread and no timer, so it runs on a loop of virtual time. A write
still becomes visible turns after it was submitted, so that no race which
the durable store has is hidden by this one.
"""

from refloat.store.compaction import Compaction
from refloat.store.contract import Event
from refloat.store.log import Log
from refloat.store.store import LogStore
from refloat.store.yielding import give_way


class MemoryStore(LogStore):
    """A `contract.Store` that nothing outlives."""

    def __init__(self, compaction: Compaction | None = None) -> None:
        super().__init__(Log(), _Nowhere(), compaction or Compaction())


class _Nowhere:
    """A journal that keeps nothing."""

    size = None
    shortage = ""

    async def append(self, events: list[Event]) -> None:
        await give_way()

    async def forget(self, events: list[Event]) -> None:
        await give_way()

    async def maintain(self) -> None:
        pass

    async def close(self) -> None:
        pass
