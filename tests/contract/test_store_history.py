# SPDX-License-Identifier: Apache-2.0
"""The contract of every store about watches and compaction."""

import asyncio

import pytest

from refloat.store import errors
from refloat.store.contract import Store
from refloat.store.store import FORGET_CHANGES
from refloat.store.watch import PIECE
from tests.contract.stores import fill, keys, read, told, turns


class TestWatches:
    async def test_a_watch_begins_with_the_past_and_goes_on(self, store: Store) -> None:
        await fill(store, "a", "b")
        watch = store.watch("", after=1)
        assert [e.key for e in await read(watch, 1)] == ["b"]
        await fill(store, "c")
        assert [e.key for e in await read(watch, 1)] == ["c"]

    async def test_a_watch_cannot_begin_in_the_future(self, store: Store) -> None:
        with pytest.raises(errors.FutureRevision):
            store.watch("", after=1)

    async def test_no_gap_and_no_duplicate_while_many_write(self, store: Store) -> None:
        total, watchers = 400, 5

        async def write(name: str) -> None:
            for n in range(50):
                await store.create(f"{name}/{n}", b"")

        async def follow(after: int, prefix: str, want: int) -> list[int]:
            watch = store.watch(prefix, after=after)
            return [event.revision for event in await read(watch, want)]

        early = [asyncio.ensure_future(follow(0, "", total)) for _ in range(watchers)]
        one = asyncio.ensure_future(follow(0, "w3/", 50))
        writers = asyncio.gather(*(write(f"w{n}") for n in range(8)))
        late = []
        for _ in range(watchers):
            await turns(7)
            after = store.revision
            late.append((after, asyncio.ensure_future(follow(after, "", total - after))))
        await writers
        for task in early:
            assert await task == list(range(1, total + 1))
        for after, task in late:
            assert await task == list(range(after + 1, total + 1))
        assert await one == [e.revision for e in store.events("w3/", after=0)]

    async def test_a_slow_reader_misses_nothing(self, store: Store) -> None:
        watch = store.watch("a/", after=0)
        reader = aiter(watch)
        await fill(store, "a/0")
        keys = [e.key for e in await anext(reader)]
        for n in range(1, 15):
            await fill(store, f"a/{n}", f"b/{n}")
            if n % 5 == 0:
                keys += [e.key for e in await anext(reader)]
        keys += [e.key for e in await anext(reader)]
        assert keys == [f"a/{n}" for n in range(15)]

    async def test_a_long_past_comes_in_pieces(self, store: Store) -> None:
        count = PIECE + 10
        await asyncio.gather(*(store.create(f"a/{n}", b"") for n in range(count)))
        await fill(store, "b/1")
        batches = []
        async for batch in store.watch("a/", after=0):
            batches.append(len(batch))
            if sum(batches) == count:
                break
        assert batches == [PIECE, 10]
        assert len(await read(store.watch("b/", after=0), 1)) == 1

    async def test_changes_of_another_prefix_do_not_wake_a_watch(self, store: Store) -> None:
        waiting = asyncio.ensure_future(read(store.watch("a/", after=0), 1))
        await turns()
        await fill(store, "b/1", "b/2")
        await turns()
        assert not waiting.done()
        await fill(store, "a/1")
        assert [e.revision for e in await waiting] == [3]

    async def test_a_waiting_watch_outlives_the_compaction_of_what_it_does_not_want(
        self, store: Store
    ) -> None:
        waiting = asyncio.ensure_future(read(store.watch("a/", after=0), 1))
        await turns()
        await fill(store, "b/1", "b/2")
        await store.compact(2)
        await fill(store, "a/1")
        assert [e.revision for e in await waiting] == [3]

    async def test_a_wait_that_was_cancelled_can_be_taken_up_again(self, store: Store) -> None:
        reader = aiter(store.watch("a/", after=0))
        for n in range(1, 6):
            wait = asyncio.ensure_future(anext(reader))
            await turns()
            wait.cancel()
            # The watch does not know yet that its reader has stopped.
            write = asyncio.ensure_future(store.create(f"a/{n}", b""))
            with pytest.raises(asyncio.CancelledError):
                await wait
            await write
            assert [e.key for e in await anext(reader)] == [f"a/{n}"]

    async def test_a_wait_given_up_does_not_make_its_reader_late(self, store: Store) -> None:
        reader = aiter(store.watch("a/", after=0))
        wait = asyncio.ensure_future(anext(reader))
        await turns()
        await fill(store, "b/1")
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        await store.compact(1)
        await fill(store, "a/1")
        assert [e.revision for e in await anext(reader)] == [2]

    async def test_closing_ends_a_watch_that_waits(self, store: Store) -> None:
        watch = store.watch("", after=0)
        waiting = asyncio.ensure_future(read(watch, 1))
        await turns()
        watch.close()
        assert await waiting == []

    async def test_a_closed_watch_yields_nothing_more(self, store: Store) -> None:
        await fill(store, "a")
        watch = store.watch("", after=0)
        watch.close()
        watch.close()
        assert await read(watch, 1) == []

    async def test_a_watch_has_one_reader(self, store: Store) -> None:
        watch = store.watch("", after=0)
        first = asyncio.ensure_future(read(watch, 1))
        await turns()
        with pytest.raises(RuntimeError, match="one reader"):
            await anext(aiter(watch))
        await fill(store, "a")
        assert len(await first) == 1


class TestCompaction:
    async def test_the_past_before_it_is_forgotten_and_its_state_is_not(self, store: Store) -> None:
        await store.create("a", b"1")
        await store.create("b", b"2")
        await store.update("a", b"3", expected=1)
        await store.delete("b", expected=2)
        await store.compact(3)
        assert (store.compacted, store.revision) == (3, 4)
        assert [(e.key, e.value) for e in store.page("", revision=3).entries] == [
            ("a", b"3"),
            ("b", b"2"),
        ]
        assert told(store.events("", after=3)) == [(4, "b", None, b"2")]
        for revision in (0, 2):
            for ask in (
                lambda r: store.page("", revision=r),
                lambda r: store.events("", after=r),
                lambda r: store.watch("", after=r),
            ):
                with pytest.raises(errors.Compacted) as error:
                    ask(revision)
                assert error.value.compacted == 3

    async def test_the_current_state_stays(self, store: Store) -> None:
        await fill(store, "a", "b", "c")
        await store.delete("b", expected=2)
        await store.compact(store.revision)
        assert keys(store.page("")) == ["a", "c"]
        assert (await store.update("a", b"new", expected=1)).created == 1
        assert (await store.create("b", b"")).revision == 6

    async def test_it_may_be_repeated_and_never_goes_back(self, store: Store) -> None:
        await fill(store, "a", "b", "c")
        await store.compact(2)
        await store.compact(2)
        await store.compact(1)
        assert store.compacted == 2

    async def test_the_future_cannot_be_forgotten(self, store: Store) -> None:
        await fill(store, "a")
        with pytest.raises(errors.FutureRevision):
            await store.compact(2)
        assert store.compacted == 0

    async def test_a_reader_that_is_too_slow_is_told(self, store: Store) -> None:
        reader = aiter(store.watch("", after=0))
        await fill(store, "a")
        await anext(reader)
        await fill(store, "b", "c")
        await store.compact(2)
        with pytest.raises(errors.Compacted):
            await anext(reader)

    async def test_long_pasts_go_in_pieces_between_which_writes_happen(self, store: Store) -> None:
        count = 3 * FORGET_CHANGES
        await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(count)))
        compaction = asyncio.ensure_future(store.compact(count))
        await asyncio.sleep(0)
        entry = await store.create("urgent", b"")
        assert entry.revision == count + 1
        assert not compaction.done()
        await compaction
        assert store.compacted == count
        assert store.page("").remaining == 0
        assert len(store.page("").entries) == count + 1

    async def test_compactions_at_the_same_time_all_end(self, store: Store) -> None:
        await fill(store, *(f"k{n}" for n in range(10)))
        await asyncio.gather(store.compact(3), store.compact(9), store.compact(5))
        assert store.compacted == 9

    async def test_a_watch_across_compactions_sees_everything(self, store: Store) -> None:
        async def write() -> None:
            for n in range(100):
                await store.create(f"k{n}", b"")
                if n % 10 == 9:
                    await turns()
                    await store.compact(store.revision)

        reading = asyncio.ensure_future(read(store.watch("", after=0), 100))
        await turns()
        await write()
        assert [e.revision for e in await reading] == list(range(1, 101))


class TestMaintenance:
    """With limits of 60 seconds, 20 changes and 1,000 superseded bytes."""

    async def test_changes_are_forgotten_when_they_are_old(self, store: Store) -> None:
        await fill(store, "a", "b")
        await store.maintain(1000.0)
        await fill(store, "c")
        await store.maintain(1059.0)
        assert store.compacted == 0
        await store.maintain(1060.0)
        assert store.compacted == 2
        await store.maintain(1119.0)
        assert store.compacted == 3

    async def test_changes_are_not_forgotten_when_they_are_young(self, store: Store) -> None:
        for second in range(1000, 1060):
            await store.maintain(float(second))
        await fill(store, "a")
        await store.maintain(1060.0)
        await store.maintain(1119.0)
        assert store.compacted == 0

    async def test_changes_are_forgotten_when_they_are_many(self, store: Store) -> None:
        await fill(store, *(f"k{n}" for n in range(25)))
        await store.maintain(1000.0)
        assert (store.compacted, store.revision) == (5, 25)

    async def test_changes_are_forgotten_when_old_versions_are_large(self, store: Store) -> None:
        await store.create("a", b"x" * 400)
        for revision in range(1, 5):
            await store.update("a", b"x" * 400, expected=revision)
        await store.maintain(1000.0)
        # Of the four old versions two may stay: those that 4 and 5 superseded.
        assert store.compacted == 3

    async def test_large_current_versions_do_not_count_as_old(self, store: Store) -> None:
        await store.create("a", b"x" * 4000)
        await store.maintain(1000.0)
        assert store.compacted == 0
