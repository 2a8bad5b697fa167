# SPDX-License-Identifier: Apache-2.0
"""Reads the logs of containers: chooses the attempt and filters the lines.

A line of a log is `TIME STREAM TAG TEXT`, the format of container runtimes; tag P marks
a part of a line. Like a kubelet, this module reads only the newest file of a rotated
log, but a follower continues after a rotation. `server` checks who may read.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from refloat.agent.runtime import Attempts, ContainerRecord
from refloat.api import core, times
from refloat.api.core import Pod
from refloat.api.fields import quote
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError

# Bytes per read, so that one reader does not hold up the loop for long.
CHUNK = 64 * 1024

# Seconds between two reads of a log that a client follows.
POLL_SECONDS = 0.1

_EXPLAINED = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class NoLog(RefloatError):
    """There is no log to show; the message is a kubelet's."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a request for a log."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


def attempt(
    pod: Pod, attempts: Attempts | None, container: str, *, previous: bool
) -> ContainerRecord:
    """The attempt whose log to show; raises `NoLog`."""
    whose = f"container {quote(container)} in pod {quote(pod.metadata.name)}"
    status = _status(pod, container)
    if attempts is None:
        raise NoLog(_unstarted(whose, status, previous=previous))
    current, last = attempts.current, attempts.previous
    waiting = status.state.waiting if status is not None else None
    if current.has_ended and waiting is not None:
        last = current  # the container waits for its next attempt, so this one is the previous
    if previous:
        if last is None:
            raise NoLog(f"previous terminated {whose} not found")
        return last
    if current.started_at is not None or current.has_ended:
        return current
    if last is None:
        raise NoLog(_unstarted(whose, status, previous=False))
    return last


def _status(pod: Pod, container: str) -> core.ContainerStatus | None:
    status = pod.status
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return next((each for each in statuses if each.name == container), None)


def _unstarted(whose: str, status: core.ContainerStatus | None, *, previous: bool) -> str:
    if status is None:
        return f"{whose} is not available"
    if previous:
        return f"previous terminated {whose} not found"
    if status.state.terminated is not None:
        return f"{whose} is terminated"
    if status.state.waiting is None:
        return f"{whose} is waiting to start - no logs yet"
    reason = status.state.waiting.reason
    return f"{whose} is waiting to start: {_EXPLAINED.get(reason, reason)}"


async def read(
    path: Path, options: LogOptions, *, clock: Clock, is_running: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """The text of a log in chunks; a follower reads until the container has ended."""
    output = _LogOutput(options)
    with _LogFile(path, options.tail_lines) as file:
        while not output.is_full:
            is_last_read = not (options.follow and is_running())
            lines = file.lines()
            if lines:
                if text := output.of(lines):
                    yield text
                await clock.sleep(0)
            elif options.follow and file.renew():
                continue
            elif is_last_read:
                return
            else:
                await clock.sleep(POLL_SECONDS)


class _LogFile:
    """The newest file of a log, from the beginning of the last `tail_lines` lines."""

    def __init__(self, path: Path, tail_lines: int | None) -> None:
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._rest = b""
        if tail_lines is not None:
            self._file.seek(_tail(self._file.fileno(), tail_lines))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def lines(self) -> list[bytes]:
        """The next complete lines, from one chunk."""
        data = self._file.read(CHUNK) or b""
        while data and b"\n" not in data:
            more = self._file.read(CHUNK)
            if not more:
                break
            data += more
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole

    def renew(self) -> bool:
        """Open the newest file, if a rotation has moved this one."""
        try:
            newest = self._path.stat()
        except FileNotFoundError:
            return False
        current = os.fstat(self._file.fileno())
        if os.path.samestat(newest, current):
            return False
        self._file.close()
        self._file, self._rest = self._path.open("rb", buffering=0), b""
        return True


def _tail(file: int, lines: int) -> int:
    """The offset of the last `lines` lines."""
    end, missing = os.fstat(file).st_size, lines
    while end > 0:
        start = max(0, end - CHUNK)
        block = os.pread(file, end - start, start)
        newlines = block.count(b"\n")
        if newlines > missing:
            at = -1
            for _ in range(newlines - missing):
                at = block.index(b"\n", at + 1)
            return start + at + 1
        missing -= newlines
        end = start
    return 0


class _LogOutput:
    """Turns the lines of a log into the text for a reader."""

    def __init__(self, options: LogOptions) -> None:
        self._stamps = options.timestamps
        self._bytes_left = options.limit_bytes
        self._since = b""
        if options.since is not None:
            # The format of logs: UTC with nanoseconds. All times have one width, so text compares.
            self._since = times.format_micro(options.since).replace("Z", "000Z").encode()
        self._begins = True  # the next text is the beginning of a line
        self._lines_left = options.tail_lines if not options.follow else None

    @property
    def is_full(self) -> bool:
        return self._bytes_left == 0 or self._lines_left == 0

    def of(self, lines: Iterable[bytes]) -> bytes:
        text = b"".join(self._texts(lines))
        if self._bytes_left is None:
            return text
        text = text[: self._bytes_left]
        self._bytes_left -= len(text)
        return text

    def _texts(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if self._lines_left == 0:
                return
            if self._lines_left is not None:
                self._lines_left -= 1
            parts = line.split(b" ", 3)
            if len(parts) < 4:
                continue  # the rest of a write that a full disk cut off
            when, _, tag, text = parts
            if when >= self._since:
                if self._stamps and self._begins:
                    yield when + b" "
                yield text
                if tag != b"P":
                    yield b"\n"
            self._begins = tag != b"P"
