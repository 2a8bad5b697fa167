# SPDX-License-Identifier: Apache-2.0
"""The free space of a store's disk, and the reserve for a full disk.

Below `low_bytes` the API server refuses most writes, so that the rest of the
disk is left for the few that must go on: leases, nodes, and whatever ends an
object. Other programs write to the disk too, and may take that rest. So a file
of `reserve_bytes` lies beside the database. When a commit finds the disk full,
the store gives the reserve up and tries once more. It takes the reserve
again when there is room.

The store only knows the free space; the API server decides which writes go on.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

MEBIBYTE = 1024 * 1024

# Bytes written between two looks at the disk, besides those every second: a
# sixteenth of the room that `low_bytes` leaves by default. A look at each commit
# would cost single writes some per cent.
CHECK_BYTES = 2 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class SpaceSettings:
    """When a disk is nearly full."""

    low_bytes: int = 32 * MEBIBYTE
    """Free bytes below which most writes are refused: 32 MiB, which is what the
    leases and node statuses of 1,000 nodes write between two compactions, with
    the largest write-ahead log on top."""

    reserve_bytes: int = 8 * MEBIBYTE
    """Bytes that are set aside for a disk that is full: 8 MiB, twice the
    write-ahead log that a checkpoint ends, so that one checkpoint fits."""


def free_bytes(folder: Path) -> int:
    """The bytes that an ordinary user may still write in this folder."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


class DiskSpace:
    """Used in the store's thread; other threads only read `shortage`."""

    def __init__(
        self,
        database: Path,
        settings: SpaceSettings,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._folder = database.parent
        self._reserve = database.with_name(database.name + ".reserve")
        self._settings = settings
        self._free = free
        self._has_reserve = False
        self._unchecked_bytes = 0
        self.shortage = ""
        """Why most writes are to be refused now; empty while there is room."""

    def written(self, size: int) -> None:
        """Check the disk after each so many bytes."""
        self._unchecked_bytes += size
        if self._unchecked_bytes >= CHECK_BYTES:
            self.check()

    def check(self) -> None:
        """Look at the disk."""
        self._unchecked_bytes = 0
        try:
            free = self._free(self._folder)
        except OSError:  # the next write has the error
            return
        low = self._settings.low_bytes
        if free < low:
            self._set(
                f"the disk of the server's data directory is nearly full: "
                f"{free // MEBIBYTE} MiB are free, fewer than {low // MEBIBYTE} MiB"
            )
        elif free >= low + self._settings.reserve_bytes:
            # Later than the shortage began, so that the two do not alternate.
            self._take_reserve()
            self._set("")

    def _take_reserve(self) -> None:
        if self._has_reserve:
            return
        self._has_reserve = True  # also after a failure, so that there is one attempt only
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(self._reserve, flags, 0o600)
            try:
                os.posix_fallocate(file, 0, self._settings.reserve_bytes)
            finally:
                os.close(file)
        except OSError as error:
            log.warning("cannot set disk space aside in %s: %s", self._reserve, error.strerror)
            self._reserve.unlink(missing_ok=True)

    def give_up_reserve(self) -> bool:
        """A commit found the disk full: is there more room now?"""
        self._set("the disk of the server's data directory is full")
        self._has_reserve = False
        try:
            self._reserve.unlink()
        except OSError:
            return False
        log.error("the disk of %s is full: its reserve is in use now", self._folder)
        return True

    def _set(self, shortage: str) -> None:
        if shortage and not self.shortage:
            log.error("%s; most writes are refused until there is room", shortage)
        elif self.shortage and not shortage:
            log.warning("the disk of %s has room again; writes are accepted", self._folder)
        self.shortage = shortage
