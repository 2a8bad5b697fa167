# SPDX-License-Identifier: Apache-2.0
"""How long a server's event loop is held up, for another process to read.

`python -m tests.hostile.meter FILE LOOP up ...` is `refloat up ...` with a
meter. With `asyncio` as the loop, the longest callback is measured in
processor time of the loop's thread, so that a busy machine does not count.
With `uvloop`, which the command uses and which has no such hook, the meter
is the processor time between two ticks that came late. The lateness of ticks
itself is by the wall's clock: a thread that holds the interpreter counts there.
"""

import asyncio
import mmap
import struct
import sys
import time
from asyncio import events
from pathlib import Path

import uvloop

_LAYOUT = struct.Struct("dd")

TICK_SECONDS = 0.010


class ServerMeter:
    """Two numbers in a file that two processes share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)

    def reset(self) -> None:
        _LAYOUT.pack_into(self._memory, 0, 0.0, 0.0)

    def read(self) -> tuple[float, float]:
        """The longest callback and the latest tick since the reset, in seconds."""
        busy, late = _LAYOUT.unpack_from(self._memory, 0)
        return busy, late

    def note(self, busy: float, late: float) -> None:
        longest, latest = self.read()
        if busy > longest or late > latest:
            _LAYOUT.pack_into(self._memory, 0, max(busy, longest), max(late, latest))


def measure_callbacks(meter: ServerMeter) -> None:
    """Time each callback of asyncio's loops."""
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        started = time.thread_time()
        run(handle)
        meter.note(time.thread_time() - started, 0.0)

    events.Handle._run = timed  # type: ignore[assignment, method-assign]


class _Ticks:
    """Asks to be called every few milliseconds, and notes how late that is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, meter: ServerMeter, *, busy: bool) -> None:
        self._loop = loop
        self._meter = meter
        self._busy = busy
        self._arm()

    def _arm(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._used = time.thread_time()
        self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        late = time.monotonic() - self._due
        busy = min(late, time.thread_time() - self._used) if self._busy else 0.0
        self._meter.note(busy, late)
        self._arm()


def install(meter: ServerMeter, name: str) -> None:
    """Have the command run on this loop, with the meter."""
    factory = asyncio.new_event_loop if name == "asyncio" else uvloop.new_event_loop

    def new_event_loop() -> asyncio.AbstractEventLoop:
        loop = factory()
        _Ticks(loop, meter, busy=name != "asyncio")
        return loop

    if name == "asyncio":
        measure_callbacks(meter)
    uvloop.new_event_loop = new_event_loop  # type: ignore[assignment]


if __name__ == "__main__":
    from refloat.cli import main

    install(ServerMeter(Path(sys.argv[1])), sys.argv[2])
    sys.argv = ["refloat", *sys.argv[3:]]
    main.main()
