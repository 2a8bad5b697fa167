# SPDX-License-Identifier: Apache-2.0
"""The newest acknowledged revision, in a small file beside the database.

SQLite silently drops the tail of a write-ahead log that is damaged, cut or gone.
Acknowledged writes would be lost, revisions would repeat, and watches would go back.
This file is an independent record: `sqlite` compares both when a store opens.

The file costs no sync for each commit, and gives no false alarm:

1. SQLite syncs the commit of revision r.
2. `record` writes r, without a sync. So on the disk this file is never ahead of
   the database.
3. The writers of r get their answers.

After a kill the kernel still has step 2. A loss of power may take back what
came since the last `sync`, a second of writes; then the check is weaker by that.
Records alternate between two slots, so a torn write leaves the one before it.
"""

import contextlib
import logging
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from refloat.store import errors

log = logging.getLogger(__name__)

# As large as the largest sector that a disk writes in one piece.
SLOT_BYTES = 4096
SLOTS = 2

_TITLE = b"newest acknowledged revision"
_RECORD = re.compile(rb"(" + _TITLE + rb" (\d{20})) ([0-9a-f]{8})\n\0*")


def path_of(database: Path) -> Path:
    return database.with_name(database.name + ".newest")


def read(database: Path) -> int | None:
    """The newest revision that was acknowledged; None where there is no record.

    Earlier versions of Refloat kept none, and a copy of the database alone has none.
    """
    path = path_of(database)
    try:
        revisions = _slots(path.read_bytes())
    except FileNotFoundError:
        return None
    if (newest := max(revisions)) >= 0:
        return newest
    raise errors.Damaged(
        f"{path} is damaged: nothing in it says which revision was the newest; "
        f"check the disk, compare {database.name} with a backup, and remove this file "
        "to start with what the database has"
    )


def _slots(content: bytes) -> list[int]:
    """The revision in each slot; -1 for one that has none."""
    cuts = (content[n * SLOT_BYTES : (n + 1) * SLOT_BYTES] for n in range(SLOTS))
    return [_decode(cut) for cut in cuts]


def _encode(revision: int) -> bytes:
    body = b"%s %020d" % (_TITLE, revision)
    return b"%s %08x\n" % (body, zlib.crc32(body))


def _decode(slot: bytes) -> int:
    match = _RECORD.fullmatch(slot)
    if match is None or zlib.crc32(match[1]) != int(match[3], 16):
        return -1
    return int(match[2])


class NewestRevision:
    """The open file; used in one thread only.

    A disk that refuses a record changes nothing for the writers: what they
    wrote is durable, and an older record raises no alarm.
    """

    def __init__(self, database: Path) -> None:
        self._path = path_of(database)
        self._file: int | None = None
        self._revision = 0
        self._slot = 0
        self._is_synced = True
        self._has_failed = False

    def begin(self, revision: int) -> None:
        """Record this durable revision durably.

        On a full disk there may be no file. `sync` tries again to make it.
        """
        self._revision = revision
        with self._complaint():
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                self._create()
                return
            revisions = _slots(os.pread(self._file, SLOTS * SLOT_BYTES, 0))
            self._slot = revisions.index(max(revisions))
        self.record(revision)
        self.sync()

    def _create(self) -> None:
        """A file with the record; its name appears when it is whole and durable."""
        new = self._path.with_name(self._path.name + ".new")
        new.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(new, flags, 0o600)
        try:
            # All of both slots, so that a record needs no room later.
            os.pwrite(file, _encode(self._revision).ljust(SLOT_BYTES, b"\0") * SLOTS, 0)
            os.fsync(file)
            new.rename(self._path)
            sync_folder(self._path.parent)
        except BaseException:
            os.close(file)
            raise
        self._file = file

    def record(self, revision: int) -> None:
        """Record a revision whose commit is durable."""
        self._revision = revision
        if self._file is None:
            return
        self._slot = (self._slot + 1) % SLOTS
        self._is_synced = False
        with self._complaint():
            os.pwrite(self._file, _encode(revision), self._slot * SLOT_BYTES)

    def sync(self) -> None:
        """Make the last record durable."""
        with self._complaint():
            if self._file is None:
                self._create()
            elif not self._is_synced:
                os.fdatasync(self._file)
            self._is_synced = True

    def close(self) -> None:
        self.sync()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @contextlib.contextmanager
    def _complaint(self) -> Iterator[None]:
        """Log a failure of the disk, the first one, and go on."""
        try:
            yield
        except OSError as error:
            if not self._has_failed:
                log.warning("cannot record the newest revision in %s: %s", self._path, error)
            self._has_failed = True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename alone is not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
