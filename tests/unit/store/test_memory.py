# SPDX-License-Identifier: Apache-2.0
"""What the memory store alone promises."""

import asyncio
import threading

import pytest

from refloat.store import errors
from refloat.store.memory import MemoryStore


async def test_it_uses_no_thread() -> None:
    before = threading.active_count()
    store = MemoryStore()
    await store.create("a", b"")
    await store.compact(1)
    assert threading.active_count() == before
    await store.close()


def test_it_uses_no_timer() -> None:
    """The store runs on a loop without threads."""

    async def use() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later = loop.call_at = None  # type: ignore[assignment]
        store = MemoryStore()
        watch = aiter(store.watch("", after=0))
        wait = asyncio.ensure_future(anext(watch))
        await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(10)))
        assert len(await wait) == 10
        await store.compact(5)
        await store.close()

    runner = asyncio.Runner()
    try:
        runner.get_loop().run_until_complete(use())
    finally:
        runner.get_loop().close()


async def test_a_write_becomes_visible_turns_after_it_was_submitted() -> None:
    store = MemoryStore()
    write = asyncio.ensure_future(store.create("a", b""))
    turns = 0
    while store.revision == 0:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 3, "submitted, taken, made durable: a turn each"
    await write
    await store.close()


async def test_no_task_is_left_when_there_is_nothing_to_do() -> None:
    store = MemoryStore()
    await store.create("a", b"")
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_store_whose_work_is_cancelled_says_so_ever_after() -> None:
    """The loop of the flusher ends: no caller waits forever."""
    store = MemoryStore()
    writes = [asyncio.ensure_future(store.create(f"k{n}", b"")) for n in range(3)]
    await asyncio.sleep(0)
    [flusher] = [task for task in asyncio.all_tasks() if task.get_name() == "store flusher"]
    await asyncio.sleep(0)
    flusher.cancel()
    for write in writes:
        with pytest.raises(errors.StoreError, match="stopped"):
            await write
    with pytest.raises(errors.StoreError, match="closed"):
        await store.create("later", b"")
    assert store.revision == 0
    await store.close()


async def test_all_versions_of_a_key_share_one_string() -> None:
    store = MemoryStore()
    await store.create(f"key-{store.size}", b"")
    await store.update(f"key-{store.size}", b"", expected=1)
    await store.delete(f"key-{store.size}", expected=2)
    first, *others = (event.key for event in store.events("", after=0))
    assert all(other is first for other in others)
    await store.close()
