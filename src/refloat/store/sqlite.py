# SPDX-License-Identifier: Apache-2.0
"""The durable store: one SQLite file, written as a log, read when opened.

SQLite never answers a question after that; `log` does, from memory. Here is
only how changes reach the disk, in one thread with one connection, so that
the loop never waits for a disk.

What an acknowledged write rests on: in WAL mode with `synchronous = FULL`
SQLite appends the pages of a commit to the write-ahead log and syncs that
before the commit returns; the first sync of a new log also syncs the directory.
A checkpoint syncs the log, copies its pages into the database, and syncs that
before the log is used from its beginning again. `tests/e2e` checks each of it.

When a commit fails nothing of it is kept. One doubt remains, as in any
database: where the sync itself fails and the machine then stops before the
next write, the write that was reported as failed may be found done.
"""

import asyncio
import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeAlias

from refloat.store import errors, sqlite_file
from refloat.store.compaction import Compaction
from refloat.store.contract import Event
from refloat.store.engine import LogStore
from refloat.store.log import Log

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


class SqliteStore(LogStore):
    """A `contract.Store` in a file; see `open`."""

    @classmethod
    async def open(cls, path: Path, compaction: Compaction | None = None) -> "SqliteStore":
        """Open the store in this file, or make one where there is no file.

        `Locked` when another process has it, `Damaged` when it is not a whole
        store of ours, `StoreError` when the system does not let us.
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        try:
            loop = asyncio.get_running_loop()
            log, file = await loop.run_in_executor(thread, _open, path)
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(log, _Journal(log, file, thread), compaction or Compaction())


def _open(path: Path) -> tuple[Log, "_File"]:
    try:
        held = sqlite_file.lock(path)
        try:
            if not path.exists():
                sqlite_file.create(path)
            log = sqlite_file.load(path)
            return log, _File(path, _connect(path, log), held)
        except BaseException:
            held.close()
            raise
    except OSError as error:
        raise errors.StoreError(f"cannot open {path}: {error.strerror}") from error


def _connect(path: Path, log: Log) -> sqlite3.Connection:
    """The one connection that writes; nobody else gets one while it is open."""
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

    def __init__(self, path: Path, connection: sqlite3.Connection, held: BinaryIO) -> None:
        self._path = path
        self._connection = connection
        self._held = held
        self._failed = False

    def append(self, events: list[Event]) -> None:
        # One statement for the whole batch, which is its own transaction: the
        # interpreter's lock is let go once, not once for every row. To win it
        # back from a busy loop takes up to 5 ms each time.
        rows = list(chain.from_iterable(map(sqlite_file.row, events)))
        self._commit(events[0].revision - 1, [(_insert(len(events)), rows)])

    def forget(self, newest: int, events: list[Event]) -> None:
        """Drop what each of these changes superseded, and itself if it is a deletion.

        What remains is the state as of the last of them, and all changes
        above, whose previous versions are part of that state.
        """
        gone = [event.previous.revision for event in events if event.previous is not None]
        gone += [event.revision for event in events if event.entry is None]
        compacted = sqlite_file.compaction_row(events[-1].revision)
        self._commit(newest, [(FORGET, [json.dumps(gone)]), (SET_COMPACTED, compacted)])

    def _commit(self, newest: int, statements: list[Statement]) -> None:
        """All of these or none; nothing above revision `newest` was acknowledged."""
        if self._failed:
            # SQLite takes back a commit that failed. Were it ever wrong, the
            # revision would be there twice.
            statements = [(DROP_FAILED, [newest]), *statements]
        if len(statements) > 1:
            statements = [("BEGIN IMMEDIATE", []), *statements, ("COMMIT", [])]
        try:
            for sql, values in statements:
                self._connection.execute(sql, values)
        except sqlite3.Error as error:
            self._failed = True
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise errors.WriteFailed(f"cannot write {self._path}: {error}") from error
        self._failed = False

    def size(self) -> int:
        total = 0
        for path in (self._path, sqlite_file.wal(self._path)):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def close(self) -> None:
        """SQLite copies the log into the database and removes it, where it can."""
        self._connection.close()
        self._held.close()


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
