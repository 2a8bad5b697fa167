# SPDX-License-Identifier: Apache-2.0
"""The logs of containers: which attempt's is meant, and what of it is wanted.

A log's lines are `TIME STREAM TAG TEXT`, as container runtimes write them; P
marks the part of a line that goes on. Only the newest file of a rotated log is
read, as a kubelet does, and one that is followed is followed over rotations.
Who may read is `server`'s business.
"""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from refloat.agent.runtime import Attempts, Record
from refloat.api import core, times
from refloat.api.core import Pod
from refloat.api.fields import quote
from refloat.base.clock import Clock
from refloat.base.errors import RefloatError

# What is read at once; whoever waits for the loop waits for no more than this.
CHUNK = 64 * 1024

# How often a log is looked at while it is followed and nothing comes.
POLL_SECONDS = 0.1

_EXPLAINED = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class NoLog(RefloatError):
    """There is no log to show; the text says why, in a kubelet's words."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a log."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


def attempt(pod: Pod, attempts: Attempts | None, container: str, *, previous: bool) -> Record:
    """The attempt whose log is meant; raises `NoLog`."""
    whose = f"container {quote(container)} in pod {quote(pod.metadata.name)}"
    status = _status(pod, container)
    if attempts is None:
        raise NoLog(_unstarted(whose, status, previous=previous))
    current, last = attempts.current, attempts.previous
    waiting = status.state.waiting if status is not None else None
    if current.has_ended and waiting is not None:
        last = current  # its next attempt is awaited: this one is the previous already
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
    told = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return next((each for each in told if each.name == container), None)


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
    path: Path, wish: Wish, *, clock: Clock, is_running: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """What is wanted of a log, some lines at a time; while it is followed, until its end."""
    shown = _Shown(wish)
    with _File(path, wish.tail_lines) as file:
        while not shown.is_full:
            ended = not (wish.follow and is_running())
            lines = file.lines()
            if lines:
                if text := shown.of(lines):
                    yield text
                await clock.sleep(0)
            elif wish.follow and file.renew():
                continue
            elif ended:
                return
            else:
                await clock.sleep(POLL_SECONDS)


class _File:
    """The newest file of a log, from where its last so many lines begin."""

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
        """The whole lines that came since, as far as one look goes."""
        data = self._file.read(CHUNK) or b""
        while data and b"\n" not in data:
            more = self._file.read(CHUNK)
            if not more:
                break
            data += more
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole

    def renew(self) -> bool:
        """Go on with the next file, if this one was put aside."""
        try:
            newest = self._path.stat()
        except FileNotFoundError:
            return False
        held = os.fstat(self._file.fileno())
        if os.path.samestat(newest, held):
            return False
        self._file.close()
        self._file, self._rest = self._path.open("rb", buffering=0), b""
        return True


def _tail(file: int, lines: int) -> int:
    """Where the last so many lines begin."""
    right, missing = os.fstat(file).st_size, lines
    while right > 0:
        left = max(0, right - CHUNK)
        block = os.pread(file, right - left, left)
        found = block.count(b"\n")
        if found > missing:
            at = -1
            for _ in range(found - missing):
                at = block.index(b"\n", at + 1)
            return left + at + 1
        missing -= found
        right = left
    return 0


def _stamp(when: datetime) -> bytes:
    """A time as logs have it: nanoseconds, in UTC."""
    return times.format_micro(when).replace("Z", "000Z").encode()


class _Shown:
    """From the lines of a log to what a reader is shown."""

    def __init__(self, wish: Wish) -> None:
        self._stamps = wish.timestamps
        self._left = wish.limit_bytes
        # Times are written in one width, so they compare as text does.
        self._since = b"" if wish.since is None else _stamp(wish.since)
        self._begins = True  # the next text is the beginning of a line
        self._lines_left = wish.tail_lines if not wish.follow else None

    @property
    def is_full(self) -> bool:
        return self._left == 0 or self._lines_left == 0

    def of(self, lines: Iterable[bytes]) -> bytes:
        text = b"".join(self._texts(lines))
        if self._left is None:
            return text
        text = text[: self._left]
        self._left -= len(text)
        return text

    def _texts(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if self._lines_left == 0:
                return
            if self._lines_left is not None:
                self._lines_left -= 1
            parts = line.split(b" ", 3)
            if len(parts) < 4:
                continue  # not of ours: a write that a full disk cut off
            when, _, tag, text = parts
            if when >= self._since:
                if self._stamps and self._begins:
                    yield when + b" "
                yield text
                if tag != b"P":
                    yield b"\n"
            self._begins = tag != b"P"
