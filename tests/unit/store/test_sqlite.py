# SPDX-License-Identifier: Apache-2.0
"""The contract of the SQLite store about files: its own, and those that it refuses."""

import asyncio
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from refloat.store import errors, sqlite_file
from refloat.store.contract import Store
from refloat.store.sqlite import LOG_BYTES, SqliteStore
from tests.cases import cases

# What a store that is closed leaves.
FILES = frozenset({"store.db", "store.db.lock", "store.db.newest"})


async def make(path: Path, count: int = 20) -> None:
    """A store with a compacted past, a history, and large and small values."""
    store = await SqliteStore.open(path)
    for n in range(count):
        await store.create(f"key/{n}", b"%d" % n * (n * 200))
    for n in range(0, count, 3):
        entry = store.get(f"key/{n}")
        assert entry is not None
        await store.update(entry.key, b"updated", expected=entry.revision)
    for n in range(0, count, 4):
        entry = store.get(f"key/{n}")
        assert entry is not None
        await store.delete(entry.key, expected=entry.revision)
    await store.compact(count)
    await store.close()


def state(store: Store) -> object:
    """All that can be asked of a store."""
    listing = [
        (e.key, e.value, e.created, e.revision)
        for e in store.page("", revision=store.compacted).entries
    ]
    changes = [
        (e.revision, e.key, e.entry and e.entry.value)
        for e in store.events("", after=store.compacted)
    ]
    return store.compacted, store.revision, listing, changes


async def state_of(path: Path) -> object:
    store = await SqliteStore.open(path)
    before = state(store)
    await store.close()
    return before


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "store.db"


async def test_everything_is_there_after_reopening(path: Path) -> None:
    await make(path)
    store = await SqliteStore.open(path)
    before = state(store)
    await store.close()
    assert await state_of(path) == before
    assert (store.compacted, store.revision) == (20, 32)


async def test_the_revision_survives_when_everything_is_compacted(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"")
    await store.delete("a", expected=1)
    await store.compact(2)
    await store.close()
    store = await SqliteStore.open(path)
    assert (store.revision, store.compacted) == (2, 2)
    assert (await store.create("a", b"")).revision == 3
    await store.close()


async def test_compaction_removes_exactly_the_rows_that_are_superseded(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"1")  # 1: superseded by 2
    await store.update("a", b"2", expected=1)  # 2: superseded by 5, above
    await store.create("b", b"3")  # 3: deleted by 4
    await store.delete("b", expected=3)  # 4: a deletion
    await store.update("a", b"5", expected=2)  # 5: above
    await store.create("c", b"6")
    await store.compact(4)
    await store.close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT revision FROM change ORDER BY revision").fetchall()
    connection.close()
    assert [revision for (revision,) in rows] == [2, 5, 6]


async def test_files_are_for_the_owner_alone(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"")
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in path.parent.iterdir()}
    assert modes == dict.fromkeys(FILES | {"store.db-wal"}, 0o600)
    await store.close()


async def test_only_the_file_its_lock_and_its_newest_revision_remain(path: Path) -> None:
    await make(path)
    assert set(files(path.parent)) == FILES


async def test_leftovers_of_a_creation_that_was_cut_short_do_no_harm(path: Path) -> None:
    for name in ("store.db.new", "store.db.new-wal", "store.db.new-journal"):
        path.with_name(name).write_bytes(b"half")
    await make(path)
    assert set(files(path.parent)) == FILES


async def test_a_second_store_on_the_file_is_refused(path: Path) -> None:
    store = await SqliteStore.open(path)
    with pytest.raises(errors.Locked, match=r"store\.db is in use by another process"):
        await SqliteStore.open(path)
    await store.create("a", b"")
    await store.close()
    await (await SqliteStore.open(path)).close()


OPEN_ELSEWHERE = """
import asyncio, pathlib, sys
from refloat.store import errors, sqlite
try:
    asyncio.run(sqlite.SqliteStore.open(pathlib.Path(sys.argv[1])))
except errors.Locked as error:
    print(error)
"""


async def test_another_process_is_refused(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"")
    other = subprocess.run(
        [sys.executable, "-c", OPEN_ELSEWHERE, path], capture_output=True, text=True
    )
    assert "is in use by another process" in other.stdout, other.stderr
    await store.close()


async def test_other_programs_cannot_read_half_a_truth(path: Path) -> None:
    store = await SqliteStore.open(path)
    connection = sqlite3.connect(path, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        connection.execute("SELECT count(*) FROM change")
    connection.close()
    await store.close()


async def test_a_file_that_another_program_has_open_is_refused(path: Path) -> None:
    await make(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM change").fetchall()
    with pytest.raises(errors.Locked):
        await SqliteStore.open(path)
    connection.close()
    await (await SqliteStore.open(path)).close()


@cases(
    "place want",
    {
        "no directory": ("missing/store.db", "No such file or directory"),
        "a directory": (".", "Is a directory"),
    },
)
async def test_what_the_system_refuses_is_told(path: Path, place: str, want: str) -> None:
    with pytest.raises(errors.StoreError, match=f"cannot open .*: {want}"):
        await SqliteStore.open(path.parent / place)


def put(data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(data)

    return change


def patch(offset: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[offset : offset + len(data)] = data
        path.write_bytes(whole)

    return change


def cut(share: float) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])

    return change


def sql(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()

    return change


def foreign(path: Path) -> None:
    path.unlink()
    sql("CREATE TABLE theirs (x)")(path)


def log_without_database(path: Path) -> None:
    path.rename(path.with_name("store.db-wal"))


BAD = [
    pytest.param(put(b""), "is no store: it has 0 bytes", id="an empty file"),
    pytest.param(put(b"SQLite format 3\0"), "is no store: it has 16 bytes", id="a bare magic"),
    pytest.param(put(b"{}" * 5000), "is not an SQLite database", id="some other file"),
    pytest.param(foreign, "is an SQLite database of another program", id="another program's"),
    pytest.param(patch(60, b"\0\0\0\2"), "has format 2", id="a newer format"),
    pytest.param(patch(60, b"\0\0\0\0"), "has format 0", id="no format"),
    pytest.param(cut(0.5), "is cut short", id="half a file"),
    pytest.param(cut(0.999), "is cut short", id="the end cut off"),
    pytest.param(patch(100, b"\0" * 100), "is damaged: ", id="a schema of zeros"),
    pytest.param(sql("DROP TABLE compaction"), "no such table: compaction", id="a table gone"),
    pytest.param(
        sql("DELETE FROM change WHERE revision = 25"), "revision 26 follows revision 24", id="a gap"
    ),
    pytest.param(
        sql("DELETE FROM change WHERE revision = 4"),
        "revision 22: the previous one of 'key/3' is not 4",
        id="a previous version gone",
    ),
    pytest.param(
        sql("UPDATE change SET value = 'x' WHERE revision = 25"),
        "revision 25: the checksum is wrong",
        id="another value",
    ),
    pytest.param(
        sql("UPDATE change SET created = 1 WHERE revision = 2"),
        "revision 2: the checksum is wrong",
        id="another creation",
    ),
    pytest.param(
        sql("UPDATE compaction SET revision = 21"), "compacted revision", id="another compaction"
    ),
    pytest.param(sql("DELETE FROM compaction"), "compacted revision", id="no compaction"),
    pytest.param(log_without_database, "is missing, but its log", id="only the log"),
]


@pytest.mark.parametrize(("harm", "want"), BAD)
async def test_a_file_that_is_not_whole_is_refused_and_not_touched(
    path: Path, harm: Callable[[Path], None], want: str
) -> None:
    await make(path)
    path.with_name("store.db.lock").unlink()
    harm(path)
    before = files(path.parent)
    with pytest.raises(errors.Damaged) as error:
        await SqliteStore.open(path)
    assert want in str(error.value)
    assert str(path) in str(error.value)
    after = files(path.parent)
    after.pop("store.db.lock", None)
    assert after == before


@pytest.mark.parametrize(("harm", "want"), BAD[:6])
async def test_no_lock_is_left_beside_a_file_that_is_not_ours(
    path: Path, harm: Callable[[Path], None], want: str
) -> None:
    await make(path)
    path.with_name("store.db.lock").unlink()
    harm(path)
    with pytest.raises(errors.Damaged, match=want):
        await SqliteStore.open(path)
    assert set(files(path.parent)) == FILES - {"store.db.lock"}


async def live_copy(path: Path, to: Path) -> None:
    """The files of an open store, with most of the data in the log."""
    store = await SqliteStore.open(path)
    for n in range(30):
        await store.create(f"live/{n}", b"%d" % n * 500)
    to.mkdir()
    for name in ("store.db", "store.db-wal"):
        (to / name).write_bytes(path.with_name(name).read_bytes())
    await store.close()


@cases("log", {"a good log": None, "a bad log": b"garbage" * 100})
async def test_a_damaged_file_with_a_log_is_not_touched_and_keeps_it(
    path: Path, tmp_path: Path, log: bytes | None
) -> None:
    await make(path)
    await live_copy(path, tmp_path / "copy")
    copy = tmp_path / "copy" / "store.db"
    # The pages of the past are not in the log, so the damage shows.
    whole = bytearray(copy.read_bytes())
    whole[-sqlite_file.PAGE_SIZE * 3 :] = bytes(sqlite_file.PAGE_SIZE * 3)
    copy.write_bytes(whole)
    if log is not None:
        sqlite_file.wal(copy).write_bytes(log)
    before = files(copy.parent)
    with pytest.raises(errors.Damaged):
        await SqliteStore.open(copy)
    after = files(copy.parent)
    after.pop("store.db.lock")
    assert after == before


async def test_a_flipped_bit_is_found_or_harmless(path: Path) -> None:
    """A flipped byte anywhere: the store does not open, or has exactly the state from before."""
    await make(path)
    want = await state_of(path)
    good = path.read_bytes()
    chance = random.Random(7)
    pages = range(0, len(good), sqlite_file.PAGE_SIZE)
    headers = [(page + n, bit) for page in pages for n in range(12) for bit in range(8)]
    anywhere = [(chance.randrange(len(good)), chance.randrange(8)) for _ in range(400)]
    count = 0
    for place, bit in headers + anywhere:
        bad = bytearray(good)
        bad[place] ^= 1 << bit
        path.write_bytes(bad)
        try:
            log = sqlite_file.load(path)
        except errors.Damaged:
            count += 1
            assert path.read_bytes() == bad
        else:
            assert state(log) == want, f"bit {bit} of byte {place}"  # type: ignore[arg-type]
    assert count > 500
    assert set(files(path.parent)) == FILES


async def test_a_log_that_is_cut_anywhere_leaves_a_beginning_of_the_history(
    path: Path, tmp_path: Path
) -> None:
    await live_copy(path, tmp_path / "copy")
    copy = tmp_path / "copy" / "store.db"
    database, log = copy.read_bytes(), sqlite_file.wal(copy).read_bytes()
    frame = 24 + sqlite_file.PAGE_SIZE
    ends = range(32, len(log) + 1, frame)
    near = {max(0, end + off) for end in ends for off in (-1, 0, 1, 24, frame // 2)}
    counts = []
    for length in sorted({0, 1, 31, *near}):
        copy.write_bytes(database)
        sqlite_file.wal(copy).write_bytes(log[:length])
        copied_log = sqlite_file.load(copy)
        assert [e.key for e in copied_log.events("", after=0)] == [
            f"live/{n}" for n in range(copied_log.revision)
        ]
        counts.append(copied_log.revision)
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 30)
    assert len(set(counts)) == 31, "each commit counts as soon as it is whole, not before"


async def test_a_store_with_a_cut_log_goes_on(path: Path, tmp_path: Path) -> None:
    await live_copy(path, tmp_path / "copy")
    copy = tmp_path / "copy" / "store.db"
    log = sqlite_file.wal(copy)
    log.write_bytes(log.read_bytes()[:-1])
    store = await SqliteStore.open(copy)
    assert store.revision == 29
    assert (await store.create("next", b"")).revision == 30
    await store.close()
    assert "next" in str(await state_of(copy))


class Lying:
    """A connection on which one statement fails."""

    def __init__(self, real: sqlite3.Connection, about: str, *, done: bool) -> None:
        self._real, self._about, self._done = real, about, done

    def execute(self, statement: str, values: Sequence[object]) -> None:
        lie = bool(self._about) and statement.startswith(self._about)
        if lie:
            self._about = ""
        if self._done or not lie:
            self._real.execute(statement, values)
        if lie:
            raise sqlite3.OperationalError("disk I/O error")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def lie(path: Path, about: str, *, done: bool) -> SqliteStore:
    store = await SqliteStore.open(path)
    file = store._journal._file  # type: ignore[attr-defined]
    file._connection = Lying(file._connection, about, done=done)
    return store


async def test_write_that_failed_and_yet_was_done_is_taken_back_before_the_next(path: Path) -> None:
    store = await lie(path, "INSERT", done=True)
    outcomes = await asyncio.gather(
        store.create("a", b"1"), store.create("b", b"2"), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [errors.WriteFailed] * 2
    assert (await store.create("c", b"3")).revision == 1
    before = state(store)
    await store.close()
    assert await state_of(path) == before


@pytest.mark.parametrize("about", ["BEGIN", "DELETE", "UPDATE", "COMMIT"])
async def test_a_compaction_that_fails_half_way_blocks_nothing(path: Path, about: str) -> None:
    store = await lie(path, about, done=False)
    await store.create("a", b"1")
    await store.update("a", b"2", expected=1)
    with pytest.raises(errors.WriteFailed):
        await store.compact(2)
    await store.create("b", b"3")
    assert (store.compacted, store.revision) == (0, 3)
    before = state(store)
    await store.close()
    assert await state_of(path) == before


async def test_the_log_beside_the_file_does_not_grow_without_bound(path: Path) -> None:
    store = await SqliteStore.open(path)
    largest = 0
    for n in range(30):
        await asyncio.gather(*(store.create(f"{n}/{k}", b"x" * 10_000) for k in range(150)))
        largest = max(largest, sqlite_file.wal(path).stat().st_size)
    assert path.stat().st_size > 40_000_000
    assert largest <= LOG_BYTES
    await store.close()


async def test_space_of_the_forgotten_is_used_again(path: Path) -> None:
    store = await SqliteStore.open(path)
    revision = (await store.create("a", b"")).revision
    sizes = []
    for n in range(10):
        for k in range(50):
            value = b"%d" % k * 20_000
            revision = (await store.update("a", value, expected=revision)).revision
        await store.compact(store.revision)
        sizes.append(path.stat().st_size if n else 0)
    assert sizes[-1] <= 1.5 * sizes[1]
    await store.close()
