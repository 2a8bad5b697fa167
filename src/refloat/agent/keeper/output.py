# SPDX-License-Identifier: Apache-2.0
"""What a container prints, written down as container runtimes do.

Each line of a log is `TIME STREAM TAG TEXT`: F closes a line of the container's,
P is a part of one that is longer or has not ended. A log that is full becomes
`NAME.1`, and so on up to the last, which is dropped. A container that prints
faster than its share waits for the pipe, as it would for a slow disk, so one
flood costs a bounded part of the node's time.
"""

import contextlib
import os
import time

from refloat.agent.keeper.loop import READ, Loop

# What a pipe holds.
_CHUNK = 64 * 1024

# Bytes of log that one stream of a container may write per second.
SHARE = 16 * 1024 * 1024

# A stream that is drained at a container's end holds no more than a pipe does.
_DRAINED_CHUNKS = 64


class Log:
    """The files that one attempt's output goes to."""

    def __init__(self, path: str, most_bytes: int, files: int) -> None:
        self._path, self._most, self._files = path, most_bytes, files
        self._descriptor: int | None = None
        self._size = 0
        with contextlib.suppress(OSError):
            self._open()

    def write(self, data: bytes) -> None:
        """Without a place on the disk, output is lost rather than the container."""
        try:
            if self._size and self._size + len(data) > self._most:
                self._rotate()
            if self._descriptor is None:
                self._open()
            if self._descriptor is not None:
                self._size += os.write(self._descriptor, data)
        except OSError:
            return

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def discard(self) -> None:
        """Nothing was begun: a log would say that it was."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            newer = f"{self._path}.{number - 1}" if number > 1 else self._path
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, f"{self._path}.{number}")
        if self._files <= 1:
            os.truncate(self._path, 0)
        self._open()


class Stream:
    """One of a container's two pipes."""

    def __init__(self, loop: Loop, pipe: int, name: str, log: Log) -> None:
        self._loop, self._log, self._name = loop, log, name.encode()
        self._pipe: int | None = pipe
        loop.watch(pipe, READ, self._ready)

    def drain(self) -> None:
        """Take what is left, and close; nobody is there who could write more."""
        for _ in range(_DRAINED_CHUNKS):
            if self._pipe is None or not self._take():
                break
        self._close()

    def _ready(self, _: int) -> None:
        written = self._take()
        if self._pipe is None or written < _CHUNK:
            return
        self._loop.forget(self._pipe)
        self._loop.after(written / SHARE, self._resume)

    def _resume(self) -> None:
        if self._pipe is not None:
            self._loop.watch(self._pipe, READ, self._ready)

    def _take(self) -> int:
        """Read once; how many bytes went to the log."""
        if self._pipe is None:
            return 0
        try:
            data = os.read(self._pipe, _CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            self._close()
            return 0
        lines = self._lines(data)
        self._log.write(lines)
        return len(lines)

    def _lines(self, data: bytes) -> bytes:
        """All of one read have one time: so this is a few copies, however many lines."""
        prefix = b"%s %s " % (_timestamp(), self._name)
        text, end, rest = data.rpartition(b"\n")
        made = b""
        if end:
            made = prefix + b"F " + text.replace(b"\n", b"\n" + prefix + b"F ") + b"\n"
        if rest:
            made += prefix + b"P " + rest + b"\n"
        return made

    def _close(self) -> None:
        if self._pipe is not None:
            self._loop.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = None


def _timestamp() -> bytes:
    now = time.time_ns()
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1_000_000_000))
    return b"%s.%09dZ" % (whole.encode(), now % 1_000_000_000)
