# SPDX-License-Identifier: Apache-2.0
"""The durable store: one SQLite file, written as a log, read when opened.

SQLite never answers a question after that; `log` does, from memory. Here is
only how changes reach the disk, in one thread with one connection, so that
the loop never waits for a disk.

What an acknowledged write rests on: in WAL mode with `synchronous = FULL`
SQLite appends the pages of a commit to the write-ahead log and syncs that
before the commit returns; the first sync of a new log also syncs the directory.
A checkpoint syncs the log, copies its pages into the database, and syncs that
before SQLite uses the log from the start again. `tests/e2e` checks all this.

`newest_revision` keeps a record of the newest acknowledged revision beside the
database, because SQLite silently drops a damaged tail of the log.

A commit that fails changes nothing. One doubt remains, as in any
database: where the sync itself fails and the machine then stops before the
next write, the write that was reported as failed may be found done.
"""

import asyncio
import contextlib
import functools
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeAlias

from refloat.store import errors, newest_revision, sqlite_file
from refloat.store.compaction import Compaction
from refloat.store.contract import Event
from refloat.store.disk_space import DiskSpace, SpaceSettings
from refloat.store.log import Log
from refloat.store.newest_revision import NewestRevision
from refloat.store.store import LogStore

logger = logging.getLogger(__name__)

# Pages in the write-ahead log when they are copied into the database: 4 MiB,
# which delays the batch that reaches it by some 5 ms; more would delay longer.
CHECKPOINT_PAGES = 4 * 1024 * 1024 // sqlite_file.PAGE_SIZE

# The log is cut back to this after a batch, or several that could not be
# copied, made it larger.
LOG_BYTES = 16 * 1024 * 1024

# Prepared statements kept: one for each size of a batch that is usual.
STATEMENTS = 64

SETTINGS = f"""
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA synchronous = FULL;
PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};
PRAGMA journal_size_limit = {LOG_BYTES};
PRAGMA secure_delete = FAST;
"""


# Revisions that a store skips when it goes on without lost writes. The record of
# the newest one may lack the last second of writes before a loss of power.
# A store makes fewer than 100,000 in a second; none of them is given out again.
SKIPPED_REVISIONS = 1_000_000


@dataclass(frozen=True, slots=True)
class OpenSettings:
    """How a store is opened."""

    compaction: Compaction = field(default_factory=Compaction)

    accept_lost_writes: bool = False
    """Go on although acknowledged writes are missing, at a revision above all of
    them. Then a client that saw a lost write lists anew."""

    space: SpaceSettings | None = None
    """When the disk counts as nearly full; None never looks, and has no reserve."""


class SqliteStore(LogStore):
    """A `contract.Store` in a file; see `open`."""

    @classmethod
    async def open(cls, path: Path, settings: OpenSettings | None = None) -> "SqliteStore":
        """Open the store in this file, or make one where there is no file.

        `Locked` when another process has it, `Damaged` when it is not a whole
        store of ours, `LostWrites` when it is older than what was acknowledged,
        `StoreError` when the system does not let us.
        """
        settings = settings or OpenSettings()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            loop = asyncio.get_running_loop()
            log, file = await loop.run_in_executor(thread, _open, path, settings)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(log, _Journal(log, file, thread), settings.compaction)


def _open(path: Path, settings: OpenSettings) -> tuple[Log, "_File"]:
    try:
        lock = sqlite_file.lock(path)
        try:
            log, connection = _open_locked(path, settings)
            newest = NewestRevision(path)
            space = None if settings.space is None else DiskSpace(path, settings.space)
            file = _File(path, connection, lock, newest, space)
            file.begin(log.revision)
            return log, file
        except BaseException:
            lock.close()
            raise
    except OSError as error:
        raise errors.StoreError(f"cannot open {path}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise errors.StoreError(f"cannot open {path}: {error}") from error


def _open_locked(path: Path, settings: OpenSettings) -> tuple[Log, sqlite3.Connection]:
    newest = newest_revision.read(path) or 0
    if not path.exists():
        sqlite_file.check_no_log(path)
        if newest and not settings.accept_lost_writes:
            raise errors.LostWrites(path, newest=newest, present=0)
        sqlite_file.create(path)
    log = sqlite_file.load(path, newest=0 if settings.accept_lost_writes else newest)
    sqlite_file.sync_log(path)
    connection = _connect(path, log)
    if log.revision >= newest:
        return log, connection
    # Go on with what is there, and forget the past: no lost revision is given out
    # again, and a watch from one gets `Compacted`.
    revision = newest + SKIPPED_REVISIONS
    logger.warning(
        "acknowledged writes are lost: the store goes on from revision %d at revision %d",
        log.revision,
        revision,
    )
    superseded = json.dumps(_superseded(log.events("", after=log.compacted)))
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(FORGET, [superseded])
        connection.execute(SET_COMPACTED, sqlite_file.compaction_row(revision))
        connection.execute("COMMIT")
    except sqlite3.Error:
        connection.close()
        raise
    return Log(compacted=revision, base=log.page("").entries), connection


def _superseded(events: Sequence[Event]) -> list[int]:
    """The rows that are not needed once these changes, the oldest there are, are forgotten."""
    old_versions = [event.previous.revision for event in events if event.previous is not None]
    return old_versions + [event.revision for event in events if event.entry is None]


def _connect(path: Path, log: Log) -> sqlite3.Connection:
    """The only connection that writes, which excludes all others."""
    connection = sqlite3.connect(
        path, timeout=0, isolation_level=None, cached_statements=STATEMENTS
    )
    try:
        connection.executescript(SETTINGS)
        [(newest,)] = connection.execute("SELECT max(revision) FROM change").fetchall()
        # Another program may have written between our reading and our lock.
        if (newest or 0) > log.revision:
            raise sqlite_file.in_use(path)
    except sqlite3.Error as error:
        connection.close()
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise sqlite_file.in_use(path) from error
        raise errors.StoreError(f"cannot open {path}: {error}") from error
    except errors.Locked:
        connection.close()
        raise
    return connection


INSERT = "INSERT INTO change (revision, key, created, previous, checksum, value) VALUES "
DROP_FAILED = "DELETE FROM change WHERE revision > ?"
FORGET = "DELETE FROM change WHERE revision IN (SELECT value FROM json_each(?))"
SET_COMPACTED = "UPDATE compaction SET revision = ?, checksum = ?"

Statement: TypeAlias = tuple[str, Sequence[object]]


@functools.cache
def _insert(rows: int) -> str:
    return INSERT + ",".join(["(?,?,?,?,?,?)"] * rows)


class _File:
    """The open file; used in one thread only."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: BinaryIO,
        newest: NewestRevision,
        space: DiskSpace | None,
    ) -> None:
        self._path = path
        self._connection = connection
        self._lock = lock
        self._newest = newest
        self._space = space
        self._failed = False

    @property
    def shortage(self) -> str:
        return "" if self._space is None else self._space.shortage

    def begin(self, revision: int) -> None:
        """Record the revision that the file has, and look at the disk."""
        self._newest.begin(revision)
        if self._space is not None:
            self._space.check()

    def maintain(self) -> None:
        self._newest.sync()
        if self._space is not None:
            self._space.check()

    def append(self, events: list[Event]) -> None:
        # One statement for the whole batch, which is its own transaction: the
        # interpreter's lock is let go once, not once for every row. To win it
        # back from a busy loop takes up to 5 ms each time.
        rows = list(chain.from_iterable(map(sqlite_file.row, events)))
        self._commit(events[0].revision - 1, [(_insert(len(events)), rows)])
        self._newest.record(events[-1].revision)
        if self._space is not None:
            self._space.written(sum(len(each.entry.value) for each in events if each.entry))

    def forget(self, newest: int, events: list[Event]) -> None:
        """Drop what each of these changes superseded, and itself if it is a deletion.

        What remains is the state as of the last of them, and all changes
        above, whose previous versions are part of that state.
        """
        revisions = json.dumps(_superseded(events))
        compacted = sqlite_file.compaction_row(events[-1].revision)
        self._commit(newest, [(FORGET, [revisions]), (SET_COMPACTED, compacted)])

    def _commit(self, newest: int, statements: list[Statement]) -> None:
        """All of these or none; nothing above revision `newest` was acknowledged."""
        try:
            self._try_commit(newest, statements)
        except sqlite3.Error as error:
            if not self._has_reserve(error):
                raise errors.WriteFailed(self._path, str(error)) from error
            try:
                self._try_commit(newest, statements)
            except sqlite3.Error as again:
                raise errors.WriteFailed(self._path, str(again)) from again

    def _has_reserve(self, error: sqlite3.Error) -> bool:
        """Whether this was for want of room, and there is more now."""
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        return full and self._space is not None and self._space.give_up_reserve()

    def _try_commit(self, newest: int, statements: list[Statement]) -> None:
        if self._failed:
            # SQLite undoes a commit that failed. Otherwise a revision could repeat.
            statements = [(DROP_FAILED, [newest]), *statements]
        if len(statements) > 1:
            statements = [("BEGIN IMMEDIATE", []), *statements, ("COMMIT", [])]
        try:
            for sql, values in statements:
                self._connection.execute(sql, values)
        except sqlite3.Error:
            self._failed = True
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise
        self._failed = False

    def size(self) -> int:
        total = 0
        for path in (self._path, sqlite_file.wal(self._path)):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def close(self) -> None:
        """SQLite then copies the log into the database and removes the log, if possible."""
        self._connection.close()
        self._newest.close()
        self._lock.close()


class _Journal:
    """`_File` for the loop: every call in the one thread."""

    def __init__(self, log: Log, file: _File, thread: ThreadPoolExecutor) -> None:
        self._log = log
        self._file = file
        self._thread = thread
        self._closing: asyncio.Future[None] | None = None

    @property
    def size(self) -> int:
        return self._file.size()

    @property
    def shortage(self) -> str:
        return self._file.shortage

    async def maintain(self) -> None:
        await self._run(self._file.maintain)

    async def append(self, events: list[Event]) -> None:
        await self._run(self._file.append, events)

    async def forget(self, events: list[Event]) -> None:
        await self._run(self._file.forget, self._log.revision, events)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._run(self._file.close)
        await asyncio.shield(self._closing)
        self._thread.shutdown()

    def _run(self, call: Callable[..., None], *args: object) -> asyncio.Future[None]:
        return asyncio.get_running_loop().run_in_executor(self._thread, call, *args)
