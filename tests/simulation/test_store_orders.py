# SPDX-License-Identifier: Apache-2.0
"""The memory store under a thousand orders of the same few tasks."""

import asyncio

from refloat.sim.run import Sim
from refloat.store import errors
from refloat.store.contract import Event, Store
from refloat.store.memory import MemoryStore
from tests.virtual import virtual

WRITES = 6


async def _write(store: Store, key: str) -> int:
    """Update a key that others update too; the number of successes."""
    done = 0
    for _ in range(WRITES):
        entry = store.get(key)
        assert entry is not None
        try:
            await store.update(key, b"%d" % (int(entry.value) + 1), expected=entry.revision)
            done += 1
        except errors.Conflict:
            await asyncio.sleep(0)
    return done


async def _read(store: Store, prefix: str, revisions: list[Event]) -> None:
    watch = store.watch(prefix, after=0)
    try:
        async for events in watch:
            revisions += events
    finally:
        watch.close()


@virtual(seeds=1000)
async def test_no_write_is_lost_and_each_is_seen_once_in_order(sim: Sim) -> None:
    store = MemoryStore()
    everything: list[Event] = []
    only_a: list[Event] = []
    readers = [
        asyncio.create_task(_read(store, "", everything)),
        asyncio.create_task(_read(store, "a", only_a)),
    ]
    await asyncio.gather(store.create("a", b"0"), store.create("b", b"0"))
    done = await asyncio.gather(*(_write(store, key) for key in ("a", "a", "a", "b", "b")))
    await store.close()
    await asyncio.gather(*readers)

    values = {key: store.get(key) for key in "ab"}
    assert {key: entry and int(entry.value) for key, entry in values.items()} == {
        "a": sum(done[:3]),
        "b": sum(done[3:]),
    }
    assert [event.revision for event in everything] == list(range(1, store.revision + 1))
    assert only_a == [event for event in everything if event.key == "a"]


@virtual(seeds=200)
async def test_a_reader_that_is_cancelled_misses_nothing_when_it_goes_on(sim: Sim) -> None:
    store = MemoryStore()
    watch = aiter(store.watch("", after=0))
    revisions: list[int] = []
    writer = asyncio.gather(*(store.create(f"k{number}", b"") for number in range(10)))
    while len(revisions) < 10:
        reader = asyncio.ensure_future(anext(watch))
        for _ in range(sim.rand.below(4)):
            await asyncio.sleep(0)
        reader.cancel()
        try:
            revisions += [event.revision for event in await reader]
        except asyncio.CancelledError:
            continue
    await writer
    assert revisions == list(range(1, 11))
    await store.close()
