# SPDX-License-Identifier: Apache-2.0
"""An acknowledged write is on disk, whatever ends the process or the machine.

Three ways to test this:

* What SQLite asked of the operating system is recorded (`sqlite_vfs`), with the
  acknowledgements in between. From the recording follows what a disk holds
  at any moment if the disk keeps only what was synced, or also any part of what was
  not. Every such disk is opened. This stands in for pulling the plug.
* The same calls fail one after the other, and a file system refuses to grow.
* A process that writes is killed, 200 times. This is the real thing, though
  the kernel keeps what a killed process wrote.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from refloat.store import errors, newest_revision, sqlite, sqlite_file
from refloat.store.contract import Entry, Store
from refloat.store.log import Log
from refloat.store.newest_revision import NewestRevision
from refloat.store.sqlite import SqliteStore
from tests.e2e import sqlite_vfs
from tests.e2e.sqlite_vfs import DiskCall, DiskTrace

ROOT = Path(__file__).parents[2]
SECTOR = 512

Change = tuple[int, str, bytes | None]


@pytest.fixture
def often_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the log into the database after every ten pages, not 512."""
    settings = sqlite.SETTINGS.replace(str(sqlite.CHECKPOINT_PAGES), "10")
    assert settings != sqlite.SETTINGS
    monkeypatch.setattr(sqlite, "SETTINGS", settings)


async def write_everything(store: Store, trace: DiskTrace) -> None:
    """Writers at the same time, compactions in between; each acknowledgement is noted."""

    def done(entry: Entry) -> Entry:
        trace.note(entry.revision)
        return entry

    async def write(writer: int) -> None:
        for n in range(8):
            key = f"{writer}/{n}"
            entry = done(await store.create(key, key.encode() * 700 * (writer + 1)))
            entry = done(await store.update(key, b"updated", expected=entry.revision))
            if n % 2:
                done(await store.delete(key, expected=entry.revision))
            if n == 5:
                await store.compact(store.revision - 15)

    async def watch() -> None:
        async for batch in store.watch("", after=0):
            trace.note(batch[-1].revision)

    reading = asyncio.ensure_future(watch())
    await asyncio.gather(*(write(n) for n in range(4)))
    await store.close()
    await reading


async def follow(store: Store, changes: list[Change]) -> None:
    async for batch in store.watch("", after=0):
        changes += [(e.revision, e.key, e.entry.value if e.entry else None) for e in batch]


@dataclass
class Recording:
    """What happened to the files of one store."""

    base: dict[str, bytes]
    calls: list[DiskCall]
    changes: list[Change]

    def state(self, revision: int) -> dict[str, bytes]:
        state: dict[str, bytes] = {}
        for _, key, value in self.changes[:revision]:
            if value is None:
                del state[key]
            else:
                state[key] = value
        return state


@dataclass
class RecordedDisk:
    """Files: what is certainly there, and what was written since the last sync."""

    durable: dict[str, bytearray]
    pending: dict[str, list[DiskCall]] = field(default_factory=dict)

    def take(self, call: DiskCall) -> None:
        if call.kind == "sync":
            content = self.durable.setdefault(call.file, bytearray())
            for earlier in self.pending.pop(call.file, []):
                perform(content, earlier)
        elif call.kind == "delete":
            self.durable.pop(call.file, None)
            self.pending.pop(call.file, None)
        elif call.kind != "note":
            self.pending.setdefault(call.file, []).append(call)

    def survivors(self, survives: Callable[[], bool]) -> dict[str, bytearray]:
        """The files after a crash; of what is pending, each sector may survive."""
        files = {name: bytearray(content) for name, content in self.durable.items()}
        for name, calls in self.pending.items():
            for call in calls:
                for part in parts(call):
                    if survives():
                        perform(files.setdefault(name, bytearray()), part)
        return files


def perform(content: bytearray, call: DiskCall) -> None:
    if call.kind == "truncate":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
        return
    content.extend(bytes(max(0, call.offset - len(content))))
    content[call.offset : call.offset + len(call.data)] = call.data


def parts(call: DiskCall) -> Iterator[DiskCall]:
    """A write, torn at one place."""
    if call.kind != "write":
        yield call
        return
    start = 0
    while start < len(call.data):
        size = SECTOR - (call.offset + start) % SECTOR
        data = call.data[start : start + size]
        yield DiskCall("write", call.file, call.offset + start, data)
        start += size


NEWEST = "store.db.newest"


def record_newest(trace: DiskTrace, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put what becomes of the record of the newest revision among SQLite's calls."""
    record, sync = NewestRevision.record, NewestRevision.sync

    def recorded(self: NewestRevision, revision: int) -> None:
        record(self, revision)
        trace.calls.append(DiskCall("write", NEWEST, 0, path.with_name(NEWEST).read_bytes()))

    def synced(self: NewestRevision) -> None:
        sync(self)
        trace.calls.append(DiskCall("sync", NEWEST))

    monkeypatch.setattr(NewestRevision, "record", recorded)
    monkeypatch.setattr(NewestRevision, "sync", synced)


@pytest.fixture
async def recorded(
    tmp_path: Path, often_checkpointed: None, monkeypatch: pytest.MonkeyPatch
) -> Recording:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    base = {name: path.with_name(name).read_bytes() for name in ("store.db", NEWEST)}
    with sqlite_vfs.recording() as trace:
        record_newest(trace, path, monkeypatch)
        store = await SqliteStore.open(path)
        changes: list[Change] = []
        following = asyncio.ensure_future(follow(store, changes))
        await write_everything(store, trace)
        await following
    return Recording(base, trace.calls, changes)


def opened(files: dict[str, bytearray], directory: Path) -> Log:
    for name in ("store.db", "store.db-wal", NEWEST):
        (directory / name).unlink(missing_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    newest = newest_revision.read(directory / "store.db")
    assert newest is not None
    return sqlite_file.load(directory / "store.db", newest=newest)


def check(log: Log, recording: Recording, acknowledged: int) -> None:
    assert log.revision >= acknowledged, "an acknowledged write is lost"
    assert {e.key: e.value for e in log.page("").entries} == recording.state(log.revision)
    history = [
        (e.revision, e.key, e.entry.value if e.entry else None)
        for e in log.events("", after=log.compacted)
    ]
    assert history == recording.changes[log.compacted : log.revision]


def moments(recording: Recording) -> Iterator[tuple[DiskCall, RecordedDisk, int]]:
    """After each call: the disk, and the newest revision that was acknowledged or sent."""
    disk = RecordedDisk({name: bytearray(content) for name, content in recording.base.items()})
    acknowledged = 0
    for call in recording.calls:
        disk.take(call)
        if call.kind == "note":
            acknowledged = max(acknowledged, call.note)
        yield call, disk, acknowledged


def test_the_recording_has_all_that_matters(recorded: Recording) -> None:
    kinds = {(call.kind, call.file) for call in recorded.calls}
    assert kinds >= {
        ("write", "store.db-wal"),
        ("sync", "store.db-wal"),
        ("write", "store.db"),
        ("sync", "store.db"),
        ("delete", "store.db-wal"),
        ("note", ""),
    }
    restarts = [
        c for c in recorded.calls if c.kind == "write" and (c.file, c.offset) == ("store.db-wal", 0)
    ]
    assert len(restarts) > 2, "the log was begun anew after checkpoints"
    assert len(recorded.changes) == 80


def test_nothing_is_told_before_it_is_synced(recorded: Recording, tmp_path: Path) -> None:
    """At each acknowledgement, and each change a watch shows: only what was synced survives."""
    checked = 0
    for call, disk, acknowledged in moments(recorded):
        if call.kind == "note":
            check(opened(disk.survivors(lambda: False), tmp_path), recorded, acknowledged)
            checked += 1
    assert checked >= len(recorded.changes)


def test_the_store_opens_as_of_every_sync(recorded: Recording, tmp_path: Path) -> None:
    syncs = 0
    for call, disk, acknowledged in moments(recorded):
        if call.kind == "sync":
            syncs += 1
            for survives in (False, True):
                survivors = disk.survivors(lambda k=survives: k)  # type: ignore[misc]
                check(opened(survivors, tmp_path), recorded, acknowledged)
    assert syncs > 30


@pytest.mark.parametrize("seed", range(3))
def test_the_store_opens_whatever_part_of_the_unsynced_survives(
    recorded: Recording, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for call, disk, acknowledged in moments(recorded):
        if call.kind in ("write", "truncate") and chance.random() < 0.5:
            files = disk.survivors(lambda: chance.random() < 0.5)
            check(opened(files, tmp_path), recorded, acknowledged)


def test_the_check_itself_finds_a_write_told_too_early(recorded: Recording, tmp_path: Path) -> None:
    """The same recording with every sync of the log a moment late must be found out."""
    calls = [call for call in recorded.calls if call.file != NEWEST]
    for index, call in enumerate(calls[:-1]):
        if call.kind == "sync" and calls[index + 1].kind == "note":
            calls[index : index + 2] = [calls[index + 1], call]
    late = Recording(recorded.base, calls, recorded.changes)
    with pytest.raises(AssertionError, match="an acknowledged write is lost"):
        test_nothing_is_told_before_it_is_synced(late, tmp_path)


def only_newest_survives(disk: RecordedDisk) -> dict[str, bytearray]:
    """The files when of all that was not synced only the record of the newest revision stays."""
    newest = RecordedDisk(disk.durable, {NEWEST: disk.pending.get(NEWEST, [])})
    return newest.survivors(lambda: True)


def test_the_check_itself_finds_a_revision_recorded_too_early(
    recorded: Recording, tmp_path: Path
) -> None:
    """The same recording with every record of the newest revision before the commit."""
    calls = list(recorded.calls)
    for index, call in enumerate(calls):
        if (call.kind, call.file) == ("write", NEWEST) and calls[index - 1].kind == "sync":
            calls[index - 1 : index + 1] = [call, calls[index - 1]]
    early = Recording(recorded.base, calls, recorded.changes)
    with pytest.raises(errors.LostWrites):
        test_no_loss_of_power_looks_like_a_lost_write(early, tmp_path, keeps=True)


@pytest.mark.parametrize("keeps", [False, True])
def test_no_loss_of_power_looks_like_a_lost_write(
    recorded: Recording, tmp_path: Path, keeps: bool
) -> None:
    """Of the record any part may survive, of the database only what was synced."""
    checked = 0
    for call, disk, acknowledged in moments(recorded):
        if call.file == NEWEST or call.kind == "sync":
            files = only_newest_survives(disk) if keeps else disk.survivors(lambda: False)
            check(opened(files, tmp_path), recorded, acknowledged)
            checked += 1
    assert checked > 30


async def write_some(store: Store, life: str, acknowledged: dict[str, bytes]) -> int:
    """Four rounds of three writes at the same time; how many of them failed."""
    failed = 0
    for n in range(4):
        keys = [f"{life}/{n}/{k}" for k in range(3)]
        outcomes = await asyncio.gather(
            *(store.create(key, key.encode() * 500) for key in keys), return_exceptions=True
        )
        for key, outcome in zip(keys, outcomes, strict=True):
            if isinstance(outcome, Entry):
                acknowledged[key] = outcome.value
            else:
                assert isinstance(outcome, errors.WriteFailed), outcome
                assert store.get(key) is None
                failed += 1
    return failed


def held(store: Store) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in store.page("").entries}


async def fail_at(path: Path, fail: Callable[[DiskCall], int]) -> tuple[int, int]:
    """Write while calls fail and then while none does; the failed writes, and all calls."""
    acknowledged: dict[str, bytes] = {}
    calls = 0

    def count(call: DiskCall) -> int:
        nonlocal calls
        calls += 1
        return fail(call)

    with sqlite_vfs.recording() as trace:
        store = await SqliteStore.open(path)
        trace.fail = count
        failed = await write_some(store, "bad", acknowledged)
        assert held(store) == acknowledged
        assert store.revision == len(acknowledged), "a failed write takes no revision"
        trace.fail = lambda call: sqlite_vfs.OK
        assert await write_some(store, "good", acknowledged) == 0
        await store.close()
    store = await SqliteStore.open(path)
    assert held(store) == acknowledged
    assert store.revision == len(acknowledged)
    await store.close()
    return failed, calls


@pytest.mark.parametrize("code", [sqlite_vfs.FULL, sqlite_vfs.IOERR_FSYNC])
async def test_any_call_may_fail_and_only_its_batch_fails(
    tmp_path: Path, often_checkpointed: None, code: int
) -> None:
    path = tmp_path / "store.db"
    await (await SqliteStore.open(path)).close()
    empty = path.read_bytes()
    _, calls = await fail_at(path, lambda call: sqlite_vfs.OK)
    assert calls > 30
    failures = []
    for failing in range(calls):
        numbers = iter(range(calls * 2))
        path.write_bytes(empty)
        newest_revision.path_of(path).unlink()  # this is another store now
        failed, _ = await fail_at(
            path,
            lambda call: code if next(numbers) == failing else sqlite_vfs.OK,  # noqa: B023
        )
        failures.append(failed)
    assert set(failures) == {0, 3}, "a failed checkpoint fails no write"


async def test_a_disk_that_stays_full_fails_all_writes_until_there_is_room(
    tmp_path: Path, often_checkpointed: None
) -> None:
    failed, _ = await fail_at(
        tmp_path / "store.db",
        lambda call: sqlite_vfs.FULL if call.kind == "write" else sqlite_vfs.OK,
    )
    assert failed == 12


async def test_the_error_names_the_file_and_the_reason(tmp_path: Path) -> None:
    with sqlite_vfs.recording() as trace:
        store = await SqliteStore.open(tmp_path / "store.db")
        trace.fail = lambda call: sqlite_vfs.FULL if call.kind == "write" else sqlite_vfs.OK
        with pytest.raises(errors.WriteFailed, match=r"cannot write .*/store\.db: .* full"):
            await store.create("a", b"")
        trace.fail = lambda call: sqlite_vfs.OK
        await store.close()


async def test_a_compaction_that_fails_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite_vfs.recording() as trace:
        store = await SqliteStore.open(path)
        await write_some(store, "a", {})
        trace.fail = lambda call: sqlite_vfs.FULL if call.kind == "write" else sqlite_vfs.OK
        with pytest.raises(errors.WriteFailed):
            await store.compact(10)
        assert (store.compacted, len(store.events("", after=0))) == (0, 12)
        trace.fail = lambda call: sqlite_vfs.OK
        await store.create("b", b"")
        await store.compact(10)
        await store.close()
    store = await SqliteStore.open(path)
    assert (store.compacted, store.revision) == (10, 13)
    await store.close()


FILL = """
import asyncio, pathlib, resource, sys
from refloat.store import errors, sqlite

async def main(path):
    store = await sqlite.SqliteStore.open(path)
    written, hard = 0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        while True:
            await store.create(f"key/{written}", b"x" * 10_000)
            written += 1
    except errors.WriteFailed as error:
        assert "cannot write" in str(error), error
    assert store.revision == written
    for _ in range(3):
        try:
            await store.create("another", b"x" * 10_000)
        except errors.WriteFailed:
            pass
        else:
            sys.exit("there was room")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert (await store.create("another", b"x" * 10_000)).revision == written + 1
    await store.close()
    store = await sqlite.SqliteStore.open(path)
    assert store.revision == written + 1
    assert len(store.page("key/").entries) == written
    await store.close()
    print(written)

asyncio.run(main(pathlib.Path(sys.argv[1])))
"""


def test_a_file_that_may_not_grow_fails_writes_and_not_the_store(tmp_path: Path) -> None:
    """The real system refuses, through a limit on the size of files, and gives in later."""
    result = subprocess.run(
        [sys.executable, "-c", FILL, tmp_path / "store.db"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 10


def test_a_killed_writer_loses_nothing_and_showed_nothing_that_is_lost(tmp_path: Path) -> None:
    """Any failure prints the seed."""
    store = str(tmp_path / "store.db")
    command = [sys.executable, "-m", "tests.e2e.kill_rounds", store, "200", "1"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    rounds, acknowledged = map(int, result.stdout.split())
    assert rounds == 200
    assert acknowledged > 200
