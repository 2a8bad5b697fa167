# SPDX-License-Identifier: Apache-2.0
"""The races of a waiting reader, one step at a time."""

import asyncio

import pytest

from refloat.store.contract import Entry, Event
from refloat.store.log import Log
from refloat.store.watch import Watches


class Publisher:
    """A log with watches, written to without any store."""

    def __init__(self) -> None:
        self.log = Log()
        self.watches = Watches(self.log)

    def create(self, *keys: str) -> None:
        events: list[Event] = []
        for key in keys:
            revision = self.log.revision + len(events) + 1
            events.append(Event(revision, key, Entry(key, b"", revision, revision), None))
        self.log.apply(events)
        self.watches.publish(events)


def keys(batch: list[Event]) -> list[str]:
    return [event.key for event in batch]


@pytest.fixture
def publisher() -> Publisher:
    return Publisher()


async def test_a_change_between_a_cancellation_and_its_arrival_is_not_lost(
    publisher: Publisher,
) -> None:
    reader = aiter(publisher.watches.open("a", after=0))
    wait = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    wait.cancel()
    publisher.create("b", "a1", "b", "a2")
    publisher.create("a3")
    with pytest.raises(asyncio.CancelledError):
        await wait
    publisher.create("a4")
    assert keys(await anext(reader)) == ["a1", "a2", "a3", "a4"]


async def test_a_cancellation_between_a_change_and_its_arrival_loses_nothing(
    publisher: Publisher,
) -> None:
    reader = aiter(publisher.watches.open("a", after=0))
    wait = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    publisher.create("b", "a1", "b", "a2")
    wait.cancel()
    publisher.create("a3")
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert keys(await anext(reader)) == ["a1", "a2", "a3"]


async def test_changes_after_the_one_that_woke_it_are_neither_lost_nor_doubled(
    publisher: Publisher,
) -> None:
    reader = aiter(publisher.watches.open("a", after=0))
    wait = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    publisher.create("a1", "b")
    publisher.create("a2")
    assert keys(await wait) == ["a1"]
    assert keys(await anext(reader)) == ["a2"]


async def test_closing_after_a_change_still_yields_the_change(publisher: Publisher) -> None:
    watch = publisher.watches.open("a", after=0)
    wait = asyncio.ensure_future(anext(aiter(watch)))
    await asyncio.sleep(0)
    publisher.create("a1")
    watch.close()
    assert keys(await wait) == ["a1"]
    with pytest.raises(StopAsyncIteration):
        await anext(aiter(watch))


async def test_readers_of_one_prefix_share_a_batch(publisher: Publisher) -> None:
    waits = [
        asyncio.ensure_future(anext(aiter(publisher.watches.open("a", after=0)))) for _ in range(3)
    ]
    await asyncio.sleep(0)
    publisher.create("a1")
    first, second, third = await asyncio.gather(*waits)
    assert first is second is third


async def test_a_reader_that_is_gone_is_not_kept(publisher: Publisher) -> None:
    watch = publisher.watches.open("a", after=0)
    wait = asyncio.ensure_future(anext(aiter(watch)))
    await asyncio.sleep(0)
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert not publisher.watches._waiting
