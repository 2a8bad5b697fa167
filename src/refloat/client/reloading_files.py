# SPDX-License-Identifier: Apache-2.0
"""Files that change during a run: tokens and certificates.

Kubernetes renews these files in place. Refloat checks a file at most once a
second, and reads a file only after a change. If reading fails, the last content
still counts, because a writer may be half way through.
"""

import logging
from pathlib import Path

from refloat.base.clock import Clock
from refloat.client import cluster_access

log = logging.getLogger(__name__)

# A check costs microseconds, but there may be a thousand requests a second.
CHECK_SECONDS = 1.0

_Stamp = tuple[int, int, int]


class WatchedFile:
    """The present content of a file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._content = b""
        self._stamp: _Stamp | None = None
        self._check_at = float("-inf")

    def read(self, *, now: bool = False) -> bytes:
        """The content; `now` checks the file in any case. Raises `OSError` without a content."""
        time = self._clock.monotonic()
        if time < self._check_at and not now:
            return self._content
        self._check_at = time + CHECK_SECONDS
        try:
            # Follows links, because Kubernetes swaps them.
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp != self._stamp:
                self._content = self._path.read_bytes()
                self._stamp = stamp
        except OSError as error:
            if self._stamp is None:
                self._check_at = float("-inf")
                raise
            log.warning("%s: cannot be read again: %s", self._path, error.strerror)
        return self._content


class Content:
    """The bytes of a `Source`, literal or in a file."""

    def __init__(self, source: cluster_access.Source, clock: Clock) -> None:
        self._data = source.data
        self._file = WatchedFile(source.path, clock) if source.path and not source.data else None

    def read(self, *, now: bool = False) -> bytes:
        return self._file.read(now=now) if self._file is not None else self._data
