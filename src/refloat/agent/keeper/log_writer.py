# SPDX-License-Identifier: Apache-2.0
"""Writes the output of a container into log files, in the format of container runtimes.

Each line of a log is `TIME STREAM TAG TEXT`. Tag F ends a line of the container; tag P
marks a part of a line. A full log becomes `NAME.1`, `NAME.1` becomes `NAME.2`, and
the last one is dropped. A container that prints faster than `SHARE` waits for the
pipe, as for a slow disk, so one container cannot use up the node.
"""

import contextlib
import os
import time

from refloat.agent.keeper.loop import READ, Loop

# The size of a pipe.
_CHUNK = 64 * 1024

# Bytes of log that one stream of a container may write per second.
SHARE = 16 * 1024 * 1024

# At a container's end a pipe holds no more than the size of a pipe.
_DRAINED_CHUNKS = 64


class LogWriter:
    """The log files of one attempt."""

    def __init__(self, path: str, most_bytes: int, files: int) -> None:
        self._path, self._most, self._files = path, most_bytes, files
        self._descriptor: int | None = None
        self._size = 0
        with contextlib.suppress(OSError):
            self._open()

    def write(self, data: bytes) -> None:
        """Append data. On a full disk the output is lost, but the container runs on."""
        try:
            if self._size and self._size + len(data) > self._most:
                self.close()
                for number in range(self._files - 1, 0, -1):
                    newer = f"{self._path}.{number - 1}" if number > 1 else self._path
                    with contextlib.suppress(FileNotFoundError):
                        os.replace(newer, f"{self._path}.{number}")
                if self._files <= 1:
                    os.truncate(self._path, 0)
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
        """Remove the log of a container that did not start."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o640)
        self._size = os.fstat(self._descriptor).st_size


class OutputPipe:
    """The standard output or the standard error of a container."""

    def __init__(self, loop: Loop, pipe: int, name: str, log: LogWriter) -> None:
        self._loop, self._log, self._name = loop, log, name.encode()
        self._pipe: int | None = pipe
        loop.watch(pipe, READ, self._ready)

    def drain(self) -> None:
        """Read the rest and close, after the last process of the container has ended."""
        for _ in range(_DRAINED_CHUNKS):
            if self._pipe is None or not self._take():
                break
        self._close()

    def _ready(self, _: int) -> None:
        size = self._take()
        if self._pipe is None or size < _CHUNK:
            return

        def resume() -> None:
            if self._pipe is not None:
                self._loop.watch(self._pipe, READ, self._ready)

        self._loop.forget(self._pipe)
        self._loop.after(size / SHARE, resume)

    def _take(self) -> int:
        """Read once. Returns the number of bytes that the log got."""
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
        """Format one read. All lines get one time, so a read costs a few copies only."""
        now = time.time_ns()
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1_000_000_000))
        prefix = b"%s.%09dZ %s " % (whole.encode(), now % 1_000_000_000, self._name)
        text, end, rest = data.rpartition(b"\n")
        lines = b""
        if end:
            lines = prefix + b"F " + text.replace(b"\n", b"\n" + prefix + b"F ") + b"\n"
        if rest:
            lines += prefix + b"P " + rest + b"\n"
        return lines

    def _close(self) -> None:
        if self._pipe is not None:
            self._loop.forget(self._pipe)
            os.close(self._pipe)
            self._pipe = None
