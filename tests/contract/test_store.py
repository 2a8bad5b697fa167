# SPDX-License-Identifier: Apache-2.0
"""What every store promises of reading, writing and closing, asked of each of them.

`test_store_history` asks about watches and compaction, and
`tests/unit/store/test_store_model.py` checks the same claims on random histories.
"""

import asyncio

import pytest

from refloat.store import errors
from refloat.store.contract import Entry, Page, Store
from refloat.store.store import BATCH_BYTES, BATCH_WRITES, FORGET_CHANGES
from tests.cases import cases
from tests.contract.stores import fill, keys, read, told, turns


class TestWrites:
    async def test_an_empty_store_is_at_revision_0(self, store: Store) -> None:
        assert (store.revision, store.compacted) == (0, 0)
        assert store.page("") == Page([], 0, more=False, remaining=0)

    async def test_each_write_takes_the_next_revision(self, store: Store) -> None:
        created = await store.create("a", b"1")
        updated = await store.update("a", b"2", expected=1)
        await store.create("b", b"3")
        deleted = await store.delete("a", expected=2)
        assert (created.created, created.revision, created.value) == (1, 1, b"1")
        assert (updated.created, updated.revision, updated.value) == (1, 2, b"2")
        assert (deleted.created, deleted.revision, deleted.value) == (1, 4, b"2")
        assert store.revision == 4

    async def test_get_returns_the_current_entry_or_none(self, store: Store) -> None:
        entry = await store.create("a", b"1")
        assert store.get("a") is entry
        assert store.get("b") is None
        await store.delete("a", expected=1)
        assert store.get("a") is None

    async def test_a_key_that_was_deleted_is_created_anew(self, store: Store) -> None:
        await store.create("a", b"1")
        await store.delete("a", expected=1)
        entry = await store.create("a", b"2")
        assert (entry.created, entry.revision) == (3, 3)

    async def test_create_refuses_a_key_that_exists(self, store: Store) -> None:
        await store.create("a", b"1")
        with pytest.raises(errors.Exists, match="key 'a' exists"):
            await store.create("a", b"2")
        assert store.revision == 1

    @pytest.mark.parametrize("expected", [0, 1, 3])
    async def test_update_and_delete_refuse_another_revision(
        self, store: Store, expected: int
    ) -> None:
        await store.create("a", b"1")
        await store.update("a", b"2", expected=1)
        for write in (
            store.update("a", b"3", expected=expected),
            store.delete("a", expected=expected),
        ):
            with pytest.raises(errors.Conflict) as error:
                await write
            assert error.value.actual == 2
        assert (store.revision, store.page("").entries[0].value) == (2, b"2")

    @pytest.mark.parametrize("expected", [0, 1])
    async def test_update_and_delete_refuse_a_key_that_is_gone(
        self, store: Store, expected: int
    ) -> None:
        for write in (
            store.update("a", b"3", expected=expected),
            store.delete("a", expected=expected),
        ):
            with pytest.raises(errors.Conflict, match="is gone") as error:
                await write
            assert error.value.actual is None
        assert store.revision == 0

    async def test_values_are_kept_as_they_are(self, store: Store) -> None:
        values = [b"", b"\0", bytes(range(256)), b"x" * 100_000]
        for number, value in enumerate(values):
            assert (await store.create(f"k{number}", value)).value is value

    async def test_keys_may_hold_any_text(self, store: Store) -> None:
        names = ["", "a/b:c%", "ключ", "a\0b", "\U0010ffff"]
        await fill(store, *names)
        assert keys(store.page("")) == sorted(names)

    async def test_a_key_that_cannot_be_encoded_harms_nobody_else(self, store: Store) -> None:
        async def bad() -> None:
            with pytest.raises(UnicodeEncodeError):
                await store.create("\ud800", b"")

        await asyncio.gather(bad(), store.create("a", b""))
        assert store.revision == 1


class TestGroupCommit:
    async def test_each_write_of_a_batch_sees_those_before_it(self, store: Store) -> None:
        """All in one batch: they are submitted before the store begins with any of them."""
        outcomes = await asyncio.gather(
            store.create("a", b"1"),
            store.create("a", b"too late"),
            store.update("a", b"2", expected=1),
            store.update("a", b"too late", expected=1),
            store.delete("a", expected=2),
            store.update("a", b"too late", expected=2),
            store.create("a", b"4"),
            store.delete("a", expected=1),
            store.update("a", b"5", expected=4),
            return_exceptions=True,
        )
        results = [each.revision if isinstance(each, Entry) else type(each) for each in outcomes]
        conflict = errors.Conflict
        assert results == [1, errors.Exists, 2, conflict, 3, conflict, 4, conflict, 5]
        entry = store.get("a")
        assert entry is not None
        assert (entry.value, entry.created, entry.revision) == (b"5", 4, 5)
        assert [each.revision for each in store.events("", after=0)] == [1, 2, 3, 4, 5]
        assert [each.previous and each.previous.revision for each in store.events("", after=0)] == [
            None,
            1,
            2,
            None,
            4,
        ]

    async def test_of_writers_that_want_the_same_the_first_wins(self, store: Store) -> None:
        outcomes = await asyncio.gather(
            *(store.create("a", b"%d" % n) for n in range(10)), return_exceptions=True
        )
        assert not isinstance(outcomes[0], BaseException)
        assert all(isinstance(outcome, errors.Exists) for outcome in outcomes[1:])
        assert [e.value for e in store.page("").entries] == [b"0"]

    async def test_a_loser_can_read_what_it_lost_against(self, store: Store) -> None:
        await store.create("a", b"0")

        conflicts = []

        async def update(value: bytes) -> int:
            for tries in range(1, 100):
                entry = store.get("a")
                assert entry is not None
                try:
                    await store.update("a", entry.value + value, expected=entry.revision)
                except errors.Conflict as conflict:
                    now = store.get("a")
                    conflicts.append((entry.revision, conflict.actual, now and now.revision))
                else:
                    return tries
            raise AssertionError("never won")

        tries = await asyncio.gather(*(update(b"%d" % n) for n in range(1, 9)))
        last = store.get("a")
        assert last is not None
        assert sorted(last.value) == sorted(b"012345678")
        assert max(tries) == 8, "nobody needs more tries than there are writers"
        assert conflicts
        assert all(expected < (actual or 0) <= (now or 0) for expected, actual, now in conflicts)

    async def test_nobody_sees_a_write_before_it_is_done(self, store: Store) -> None:
        watch = store.watch("", after=0)
        reader = asyncio.ensure_future(read(watch, 1))
        writer = asyncio.ensure_future(store.create("a", b"1"))
        await asyncio.sleep(0)
        assert not writer.done()
        assert (store.revision, store.get("a")) == (0, None)
        await writer
        assert store.revision == 1
        assert told(await reader) == [(1, "a", b"1", None)]

    async def test_a_cancelled_writer_has_still_written(self, store: Store) -> None:
        writer = asyncio.ensure_future(store.create("a", b"1"))
        await asyncio.sleep(0)
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        await store.create("b", b"2")
        entry = store.get("a")
        assert entry is not None
        assert (entry.revision, entry.value) == (1, b"1")

    async def test_more_writes_than_a_batch_holds_all_succeed_in_order(self, store: Store) -> None:
        count = 2 * BATCH_WRITES + 3
        entries = await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(count)))
        assert [entry.revision for entry in entries] == list(range(1, count + 1))

    async def test_a_value_larger_than_a_batch_is_written(self, store: Store) -> None:
        large = b"x" * (BATCH_BYTES + 1)
        await asyncio.gather(
            store.create("a", b""), store.create("b", large), store.create("c", large)
        )
        assert [len(e.value) for e in store.page("").entries] == [0, len(large), len(large)]


class TestPages:
    NAMES = ("a", "pod/a/1", "pod/a/2", "pod/b/1", "pod/b/2", "pod/b/3", "pods", "z")

    @cases(
        "prefix after limit want_keys want_remaining",
        {
            "everything": ("", "", 0, NAMES, 0),
            "the first three": ("", "", 3, NAMES[:3], 5),
            "a prefix": ("pod/", "", 0, NAMES[1:6], 0),
            "a prefix that is no path": ("pod", "", 0, NAMES[1:7], 0),
            "a prefix and a limit": ("pod/b/", "", 2, ("pod/b/1", "pod/b/2"), 1),
            "continued": ("pod/", "pod/a/2", 2, ("pod/b/1", "pod/b/2"), 1),
            "continued after a gone key": ("pod/", "pod/a/1x", 1, ("pod/a/2",), 3),
            "continued after the last": ("pod/", "pod/b/3", 2, (), 0),
            "continued after all": ("pod/", "zz", 2, (), 0),
            "continued before all": ("pod/", "a", 2, ("pod/a/1", "pod/a/2"), 3),
            "as many as there are": ("pod/b/", "", 3, NAMES[3:6], 0),
            "nothing with this prefix": ("none/", "", 2, (), 0),
            "a prefix that is a key": ("z", "", 0, ("z",), 0),
        },
    )
    async def test_a_page_is_in_order_and_says_what_remains(
        self,
        store: Store,
        prefix: str,
        after: str,
        limit: int,
        want_keys: tuple[str, ...],
        want_remaining: int,
    ) -> None:
        await fill(store, *reversed(self.NAMES))
        page = store.page(prefix, after=after, limit=limit)
        assert tuple(keys(page)) == want_keys
        assert (page.remaining, page.more) == (want_remaining, want_remaining > 0)
        assert page.revision == store.revision

    async def test_pages_of_one_revision_show_one_state(self, store: Store) -> None:
        await fill(store, "a", "b", "c", "d", "e")
        first = store.page("", limit=2)
        await store.delete("c", expected=3)
        await store.update("d", b"new", expected=4)
        await store.create("dd", b"")
        await store.delete("e", expected=5)
        second = store.page("", revision=first.revision, after="b", limit=2)
        third = store.page("", revision=first.revision, after="d", limit=2)
        assert [(e.key, e.value) for e in second.entries] == [("c", b"c"), ("d", b"d")]
        assert (second.more, second.remaining, second.revision) == (True, 1, 5)
        assert (keys(third), third.remaining) == (["e"], 0)

    async def test_every_past_state_can_be_listed(self, store: Store) -> None:
        await store.create("a", b"1")
        await store.update("a", b"2", expected=1)
        await store.delete("a", expected=2)
        await store.create("a", b"4")
        then = [[e.value for e in store.page("", revision=r).entries] for r in range(5)]
        assert then == [[], [b"1"], [b"2"], [], [b"4"]]

    async def test_a_past_page_does_not_show_keys_of_other_prefixes(self, store: Store) -> None:
        await fill(store, "a/1", "b/1")
        await store.delete("b/1", expected=2)
        await store.delete("a/1", expected=1)
        assert keys(store.page("a/", revision=2)) == ["a/1"]

    async def test_the_future_cannot_be_listed(self, store: Store) -> None:
        await store.create("a", b"1")
        with pytest.raises(errors.FutureRevision) as error:
            store.page("", revision=2)
        assert error.value.current == 1


class TestEvents:
    async def test_events_tell_new_and_previous_versions(self, store: Store) -> None:
        await store.create("a", b"1")
        await store.update("a", b"2", expected=1)
        await store.delete("a", expected=2)
        want = [(1, "a", b"1", None), (2, "a", b"2", b"1"), (3, "a", None, b"2")]
        assert told(store.events("", after=0)) == want
        assert told(store.events("", after=1)) == want[1:]
        assert told(store.events("", after=0, until=2)) == want[:2]
        assert told(store.events("", after=1, until=2)) == want[1:2]

    async def test_events_are_of_the_prefix_alone(self, store: Store) -> None:
        await fill(store, "a/1", "b/1", "a/2")
        assert [e.key for e in store.events("a/", after=0)] == ["a/1", "a/2"]

    @cases(
        "after until",
        {
            "after the newest": (2, None),
            "an empty range": (1, 1),
            "a range that is backwards": (1, 0),
        },
    )
    async def test_there_may_be_none(self, store: Store, after: int, until: int | None) -> None:
        await fill(store, "a", "b")
        assert store.events("", after=after, until=until) == []

    async def test_the_future_has_no_events(self, store: Store) -> None:
        with pytest.raises(errors.FutureRevision):
            store.events("", after=1)


class TestClosing:
    async def test_pending_writes_are_completed(self, store: Store) -> None:
        writes = [asyncio.ensure_future(store.create(f"k{n}", b"")) for n in range(10)]
        await asyncio.sleep(0)
        await store.close()
        assert [(await write).revision for write in writes] == list(range(1, 11))

    async def test_writes_after_it_are_refused(self, store: Store) -> None:
        await fill(store, "a")
        await store.close()
        for write in (
            store.create("b", b""),
            store.update("a", b"", expected=1),
            store.delete("a", expected=1),
            store.compact(1),
        ):
            with pytest.raises(errors.StoreError, match="closed"):
                await write
        assert (store.revision, keys(store.page(""))) == (1, ["a"])

    async def test_watches_end(self, store: Store) -> None:
        waiting = asyncio.ensure_future(read(store.watch("", after=0), 1))
        lagging = store.watch("", after=0)
        await turns()
        await store.close()
        assert await waiting == []
        assert await read(lagging, 1) == []

    async def test_a_compaction_in_progress_is_given_up(self, store: Store) -> None:
        count = 3 * FORGET_CHANGES
        await asyncio.gather(*(store.create(f"k{n}", b"") for n in range(count)))
        compaction = asyncio.ensure_future(store.compact(count))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(errors.StoreError, match="closed"):
            await compaction
        assert store.compacted < count

    async def test_it_may_be_repeated(self, store: Store) -> None:
        await asyncio.gather(store.close(), store.close())
        await store.close()


async def test_size_grows_with_what_is_held(store: Store) -> None:
    before = store.size
    await store.create("a", b"x" * 100_000)
    assert store.size >= before + 100_000
