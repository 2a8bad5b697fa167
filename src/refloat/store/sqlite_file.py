# SPDX-License-Identifier: Apache-2.0
"""The file of the durable store: the format, the lock, and the reader.

Nothing here changes a file that is not ours or not whole. So the first bytes
are read as bytes; the rest is read through a connection whose descriptor is
read-only; and only when all of it made sense does `sqlite` open the file
for writing.
"""

import contextlib
import fcntl
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from refloat.store import errors, newest_revision
from refloat.store.contract import Entry, Event
from refloat.store.log import Log

APPLICATION_ID = int.from_bytes(b"RFLT", "big")
VERSION = 1

# Three pods fit on a page, and a single write still syncs few bytes: with half
# or twice the size fewer single writes a second were measured.
PAGE_SIZE = 8192

MAGIC = b"SQLite format 3\0"

SETTINGS = f"""
PRAGMA page_size = {PAGE_SIZE};
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
PRAGMA synchronous = FULL;
"""

SCHEMA = """
BEGIN;
CREATE TABLE change (
  revision INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  created INTEGER NOT NULL,
  previous INTEGER NOT NULL, -- 0 when there was none
  checksum INTEGER NOT NULL,
  value BLOB -- NULL is a deletion
);
CREATE TABLE compaction (revision INTEGER NOT NULL, checksum INTEGER NOT NULL);
COMMIT;
PRAGMA journal_mode = WAL;
"""

READ = """
SELECT revision, key, created, previous, checksum, value
FROM change WHERE revision {} ? ORDER BY revision
"""

ADVICE = "put a backup in its place, or move {}* away to start with an empty store"

Row: TypeAlias = tuple[int, str, int, int, int, bytes | None]


def row(event: Event) -> Row:
    """A change as a row of the table."""
    previous = 0 if event.previous is None else event.previous.revision
    if event.entry is None:
        assert event.previous is not None
        created, value = event.previous.created, None
    else:
        created, value = event.entry.created, event.entry.value
    check = checksum(event.revision, event.key, created, previous, value)
    return event.revision, event.key, created, previous, check, value


def checksum(revision: int, key: str, created: int, previous: int, value: bytes | None) -> int:
    """The checksum of all columns; SQLite itself would not notice a flipped bit."""
    head = zlib.crc32(f"{revision} {created} {previous} {value is None} {key}".encode())
    return zlib.crc32(value or b"", head)


def compaction_row(revision: int) -> tuple[int, int]:
    return revision, zlib.crc32(str(revision).encode())


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def lock(path: Path) -> BinaryIO:
    """Keep every other store off this file until what is returned is closed.

    The lock is on a file of its own, which stays: removing a lock file is a
    race. The store makes the lock file only beside a store, or where there is no file yet.
    """
    beside = path.with_name(path.name + ".lock")
    # A lock that exists is tried first. To look into the database while this
    # process has it open would, by POSIX, drop the locks that SQLite holds.
    if not beside.exists() and path.exists():
        recognise(path)
    file = os.fdopen(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise in_use(path) from None
    return file


def in_use(path: Path) -> errors.Locked:
    return errors.Locked(
        f"{path} is in use by another process: stop that one, or use another data directory"
    )


def check_no_log(path: Path) -> None:
    """Raise `Damaged` where the log is there without its database."""
    if _has_log(path):
        raise _damaged(path, f"is missing, but its log {wal(path).name} is there")


def create(path: Path) -> None:
    """Make an empty store; the name appears when it is whole and durable."""
    new = path.with_name(path.name + ".new")
    for leftover in (new, wal(new), new.with_name(new.name + "-journal")):
        leftover.unlink(missing_ok=True)
    file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.close(file)
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as connection:
        connection.executescript(SETTINGS + SCHEMA)
        connection.execute("INSERT INTO compaction VALUES (?, ?)", compaction_row(0))
    sync(new)
    new.rename(path)
    newest_revision.sync_folder(path.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_log(path: Path) -> None:
    """Make all commits in the write-ahead log durable.

    A process that was killed may have left a commit that it wrote and did not
    sync. Readers are about to see this commit, so a loss of power must not
    take it back.
    """
    if _has_log(path):
        sync(wal(path))


def recognise(path: Path) -> None:
    """Raise `Damaged` unless the first bytes are those of a store of ours."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100:
        raise _damaged(path, f"is no store: it has {len(header)} bytes")
    if not header.startswith(MAGIC):
        raise _damaged(path, "is no store: it is not an SQLite database")
    if _number(header, 68) != APPLICATION_ID:
        raise _damaged(path, "is an SQLite database of another program")
    version = _number(header, 60)
    if version != VERSION:
        raise errors.Damaged(
            f"{path} has format {version} and this version of Refloat knows format {VERSION}: "
            "use the version of Refloat that wrote it"
        )
    if _has_log(path):  # which may hold pages that the file lacks
        return
    # The format writes a page of 65536 bytes as 1.
    page = struct.unpack_from(">H", header, 16)[0]
    size, expected = path.stat().st_size, _number(header, 28) * (65536 if page == 1 else page)
    if size < expected:
        raise _damaged(path, f"is cut short: {size} of {expected} bytes")


def _number(header: bytes, offset: int) -> int:
    return int.from_bytes(header[offset : offset + 4], "big")


def _has_log(path: Path) -> bool:
    return wal(path).exists() and wal(path).stat().st_size > 0


def _damaged(path: Path, what: str) -> errors.Damaged:
    return errors.Damaged(f"{path} {what}; {ADVICE.format(path.name)}")


def load(path: Path, *, newest: int = 0) -> Log:
    """Read and check the whole file, changing nothing.

    `newest` is the newest acknowledged revision; `LostWrites` when the file ends before it.
    """
    recognise(path)
    try:
        with _log_kept(wal(path)):
            # The connection cannot change the database and leaves no file beside it.
            # Without a log, `immutable` does that. With one, SQLite must recover it, and
            # wants either shared memory, which is a file, or an exclusive lock, which
            # a read-only descriptor cannot have: hence the variant without locks (ours
            # is held). It cannot copy the log into the database when it is closed, for
            # the descriptor is read-only.
            options = "vfs=unix-none" if _has_log(path) else "immutable=1"
            uri = f"{path.absolute().as_uri()}?mode=ro&{options}"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None)
            with contextlib.closing(connection):
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
                log = _read(connection)
            if log.revision < newest:
                raise errors.LostWrites(path, newest=newest, present=log.revision)
            return log
    except sqlite3.Error as error:
        raise _damaged(path, f"is damaged: {error}") from error
    except _Nonsense as error:
        raise _damaged(path, f"is damaged: {error}") from error


@contextlib.contextmanager
def _log_kept(log: Path) -> Iterator[None]:
    """Put the write-ahead log back where the reading has failed.

    SQLite removes one without a single valid frame when it is closed. That is
    right in a healthy store and is evidence in a damaged one.
    """
    try:
        file = log.open("rb")
    except FileNotFoundError:
        yield
        return
    with file:
        try:
            yield
        except BaseException:
            if not log.exists():
                log.write_bytes(file.read())
                log.chmod(0o600)
            raise


class _Nonsense(Exception):
    """The file is readable and cannot be true."""


def _read(connection: sqlite3.Connection) -> Log:
    # The structure of all pages: 1.5 ms for 1,000 pods. The check finds rows that a
    # damaged page hides, which the other rows cannot show.
    [(verdict,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise _Nonsense(" ".join(str(verdict).split()))
    rows = connection.execute("SELECT revision, checksum FROM compaction").fetchall()
    if len(rows) != 1 or compaction_row(rows[0][0]) != rows[0]:
        raise _Nonsense("the compacted revision has a wrong checksum")
    compacted = int(rows[0][0])
    base: dict[str, Entry] = {}
    for stored in connection.execute(READ.format("<="), (compacted,)):
        # The last version of a key in the compacted past.
        revision, key, created, _, _, value = _checked(stored)
        if value is None:
            raise _Nonsense(f"revision {revision}: a deletion in the compacted past")
        entry = Entry(key, value, created, revision)
        if base.setdefault(entry.key, entry) is not entry:
            raise _Nonsense(f"revision {entry.revision}: key {entry.key!r} is there twice")
    log = Log(compacted=compacted, base=base.values())
    history = connection.execute(READ.format(">"), (compacted,))
    log.replay(_read_event(stored, log) for stored in history)
    return log


def _read_event(stored: Row, log: Log) -> Event:
    """A row of the history, which must follow from all earlier rows."""
    revision, key, created, previous, _, value = _checked(stored)
    if revision != log.revision + 1:
        raise _Nonsense(f"revision {revision} follows revision {log.revision}")
    current = log.get(key)
    if previous != (0 if current is None else current.revision):
        raise _Nonsense(f"revision {revision}: the previous one of {key!r} is not {previous}")
    if current is not None:
        key = current.key  # all versions share one string
    if value is not None:
        return Event(revision, key, Entry(key, value, created, revision), current)
    if current is None:
        raise _Nonsense(f"revision {revision}: deletes {key!r}, which is not there")
    return Event(revision, key, None, current)


def _checked(stored: Row) -> Row:
    revision, key, created, previous, check, value = stored
    try:
        if checksum(revision, key, created, previous, value) == check:
            return stored
    except TypeError:  # a value that is not bytes
        pass
    raise _Nonsense(f"revision {revision}: the checksum is wrong")
