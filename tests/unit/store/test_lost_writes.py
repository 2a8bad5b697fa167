# SPDX-License-Identifier: Apache-2.0
"""A store that lacks acknowledged writes does not start as if nothing had happened."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refloat.store import errors, newest_revision, sqlite, sqlite_file
from refloat.store.sqlite import OpenSettings, SqliteStore

ACCEPT = OpenSettings(accept_lost_writes=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "store.db"


async def killed(path: Path, to: Path) -> Path:
    """The files of a store with 30 writes whose process was killed: most are in the log."""
    store = await SqliteStore.open(path)
    for n in range(30):
        await store.create(f"live/{n}", b"%d" % n * 500)
    to.mkdir()
    for each in path.parent.iterdir():
        (to / each.name).write_bytes(each.read_bytes())
    await store.close()
    return to / path.name


def cut(path: Path) -> None:
    log = sqlite_file.wal(path)
    log.write_bytes(log.read_bytes()[:-1])


def flip(path: Path) -> None:
    log = sqlite_file.wal(path)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)


def remove_log(path: Path) -> None:
    sqlite_file.wal(path).unlink()


def empty_log(path: Path) -> None:
    sqlite_file.wal(path).write_bytes(b"")


def remove_database(path: Path) -> None:
    sqlite_file.wal(path).unlink()
    path.unlink()


HARMS = [
    pytest.param(cut, "ends at revision 29", id="the log's last byte is missing"),
    pytest.param(flip, "ends at revision 1", id="a bit in the middle of the log is wrong"),
    pytest.param(remove_log, "ends at revision 0", id="the log is gone"),
    pytest.param(empty_log, "ends at revision 0", id="the log is empty"),
    pytest.param(remove_database, "is missing", id="database and log are gone"),
]


@pytest.mark.parametrize(("harm", "want"), HARMS)
async def test_a_store_that_lacks_acknowledged_writes_is_refused_and_not_touched(
    path: Path, tmp_path: Path, harm: Callable[[Path], None], want: str
) -> None:
    copy = await killed(path, tmp_path / "copy")
    harm(copy)
    before = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    for _ in range(2):  # the refusal itself loses nothing either
        with pytest.raises(errors.LostWrites) as error:
            await SqliteStore.open(copy)
        assert f"{copy} {want}" in str(error.value)
        assert "revision 30 was acknowledged" in str(error.value)
        assert "--accept-lost-writes" in str(error.value)
    after = {each.name: each.read_bytes() for each in copy.parent.iterdir()}
    assert after == before


@pytest.mark.parametrize(("harm", "want"), HARMS)
async def test_who_accepts_the_loss_goes_on_above_every_lost_revision(
    path: Path, tmp_path: Path, harm: Callable[[Path], None], want: str
) -> None:
    copy = await killed(path, tmp_path / "copy")
    harm(copy)
    store = await SqliteStore.open(copy, ACCEPT)
    keys = [entry.key for entry in store.page("").entries]
    assert set(keys) == {f"live/{n}" for n in range(len(keys))}
    assert len(keys) < 30
    assert store.revision == 30 + sqlite.SKIPPED_REVISIONS
    for revision in (1, 29, 30, store.revision - 1):
        with pytest.raises(errors.Compacted):
            store.watch("", after=revision)
    entry = await store.create("next", b"")
    assert entry.revision == 31 + sqlite.SKIPPED_REVISIONS
    await store.close()
    store = await SqliteStore.open(copy)
    assert [each.key for each in store.page("").entries] == [*keys, "next"]
    assert store.revision == entry.revision
    await store.close()


async def test_to_accept_losses_changes_nothing_where_there_is_none(
    path: Path, tmp_path: Path
) -> None:
    copy = await killed(path, tmp_path / "copy")
    store = await SqliteStore.open(copy, ACCEPT)
    assert (store.revision, store.compacted) == (30, 0)
    await store.close()


async def test_an_older_copy_of_the_database_is_refused(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"1")
    await store.close()
    backup = path.read_bytes()
    store = await SqliteStore.open(path)
    await store.create("b", b"2")
    await store.close()
    path.write_bytes(backup)
    with pytest.raises(errors.LostWrites, match="ends at revision 1, but revision 2"):
        await SqliteStore.open(path)


async def test_a_copy_without_a_record_is_a_store_of_its_own(path: Path, tmp_path: Path) -> None:
    """Of an earlier version, or a backup of the database in a new folder."""
    copy = await killed(path, tmp_path / "copy")
    newest_revision.path_of(copy).unlink()
    store = await SqliteStore.open(copy)
    assert store.revision == 30
    await store.close()
    assert newest_revision.read(copy) == 30


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(8192), b"\xff" * 8192])
async def test_a_record_that_says_nothing_is_refused_with_what_to_do(
    path: Path, content: bytes
) -> None:
    await (await SqliteStore.open(path)).close()
    newest_revision.path_of(path).write_bytes(content)
    with pytest.raises(errors.Damaged, match=r"store\.db\.newest is damaged.* remove this file"):
        await SqliteStore.open(path)


@pytest.mark.parametrize("slot", range(newest_revision.SLOTS))
@pytest.mark.parametrize("offset", range(0, 60, 7))
async def test_a_torn_record_leaves_the_one_before_it(path: Path, slot: int, offset: int) -> None:
    await (await SqliteStore.open(path)).close()
    newest = newest_revision.NewestRevision(path)
    newest.begin(0)
    for revision in (1, 2):
        newest.record(revision)
    newest.close()
    record = newest_revision.path_of(path)
    content = bytearray(record.read_bytes())
    content[slot * newest_revision.SLOT_BYTES + offset] ^= 1
    record.write_bytes(content)
    assert newest_revision.read(path) in (1, 2)


async def test_each_acknowledged_write_is_recorded_before_its_answer(path: Path) -> None:
    store = await SqliteStore.open(path)
    for n in range(5):
        entries = await asyncio.gather(*(store.create(f"{n}/{k}", b"") for k in range(3)))
        assert newest_revision.read(path) == max(entry.revision for entry in entries)
    await store.close()


async def test_a_failed_write_is_not_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(path)
    await store.create("a", b"")

    def fail(self: object, newest: int, statements: object) -> None:
        raise errors.WriteFailed(path, "disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite._File, "_commit", fail)
        with pytest.raises(errors.WriteFailed):
            await store.create("b", b"")
    assert newest_revision.read(path) == 1
    await store.close()


async def test_the_record_is_synced_by_the_maintenance_and_not_for_each_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[str] = []
    really = os.fdatasync

    def sync(file: int) -> None:
        syncs.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        really(file)

    monkeypatch.setattr(os, "fdatasync", sync)
    store = await SqliteStore.open(path)
    syncs.clear()
    for n in range(10):
        await store.create(f"{n}", b"")
    assert syncs == []
    await store.maintain(0.0)
    assert syncs == [str(newest_revision.path_of(path))]
    await store.maintain(1.0)
    assert len(syncs) == 1
    await store.close()


async def test_a_disk_without_room_for_the_record_still_starts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is made as soon as there is room."""
    await (await SqliteStore.open(path)).close()
    newest_revision.path_of(path).unlink()

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        store = await SqliteStore.open(path)
        assert (await store.create("a", b"")).revision == 1
        await store.maintain(0.0)
    assert newest_revision.read(path) is None
    await store.maintain(1.0)
    assert newest_revision.read(path) == 1
    await store.close()


async def test_what_a_killed_process_left_unsynced_is_synced_before_it_is_shown(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power takes back commits that readers saw and the record has."""
    copy = await killed(path, tmp_path / "copy")
    newest_revision.path_of(copy).unlink()
    synced: list[str] = []
    really = os.fsync

    def sync(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        really(file)

    monkeypatch.setattr(os, "fsync", sync)
    store = await SqliteStore.open(copy)
    await store.close()
    assert synced.index("store.db-wal") < synced.index("store.db.newest.new")


async def test_a_name_is_durable_before_the_store_is_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each rename the store syncs the folder: a loss of power can undo a rename alone."""
    steps: list[str] = []
    really, rename = os.fsync, Path.rename

    def sync(file: int) -> None:
        target = Path(f"/proc/self/fd/{file}").readlink()
        steps.append("sync of the folder" if target == path.parent else f"sync of {target.name}")
        really(file)

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"rename to {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "rename", renamed)
    await (await SqliteStore.open(path)).close()
    assert steps == [
        "sync of store.db.new",
        "rename to store.db",
        "sync of the folder",
        "sync of store.db.newest.new",
        "rename to store.db.newest",
        "sync of the folder",
    ]
