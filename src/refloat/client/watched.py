# SPDX-License-Identifier: Apache-2.0
"""Files that are replaced while we run: tokens and certificates.

Kubernetes renews them in place. A file is looked at no more than once a
second, and read only when it changed; when it cannot be read, what was last
read still counts, because a writer may be half way through.
"""

import logging
from pathlib import Path

from refloat.base.clock import Clock
from refloat.client import access

log = logging.getLogger(__name__)

# A look costs microseconds, but there may be a thousand requests a second.
LOOK_SECONDS = 1.0

_Stamp = tuple[int, int, int]


class WatchedFile:
    """The present content of a file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._content = b""
        self._stamp: _Stamp | None = None
        self._look_at = float("-inf")

    def read(self, *, now: bool = False) -> bytes:
        """The content; `now` looks even if it just did. Raises `OSError` if it never could."""
        time = self._clock.monotonic()
        if now or time >= self._look_at:
            self._look_at = time + LOOK_SECONDS
            self._look()
        return self._content

    def _look(self) -> None:
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._content = self._path.read_bytes()
                self._stamp = stamp
        except OSError as error:
            if self._stamp is None:
                self._look_at = float("-inf")
                raise
            log.warning("%s: cannot be read again: %s", self._path, error.strerror)


def _stamp(path: Path) -> _Stamp:
    """Changes with the file: links are followed, as Kubernetes swaps those."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


class Content:
    """A `Source`'s bytes, whichever way they are given."""

    def __init__(self, source: access.Source, clock: Clock) -> None:
        self._data = source.data
        self._file = WatchedFile(source.path, clock) if source.path and not source.data else None

    def read(self, *, now: bool = False) -> bytes:
        return self._file.read(now=now) if self._file is not None else self._data
