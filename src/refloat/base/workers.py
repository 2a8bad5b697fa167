# SPDX-License-Identifier: Apache-2.0
"""A thread for computations that would hold the event loop.

Python runs one thread at a time, so nothing becomes faster: the loop waits for a
switch interval instead of the whole computation. Functions in the thread must not
touch data that the loop changes meanwhile.
"""

import asyncio
import contextlib
import gc
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

from refloat.base import process
from refloat.base.errors import RefloatError

_T = TypeVar("_T")

# During a computation, the loop waits this long for the interpreter after each system
# call. With Python's own 5 ms, twenty small requests would wait for a tenth of a
# second; a switch costs microseconds.
SWITCH_SECONDS = 0.0005

# Usually the answer to a large request is sent by then, and its memory is free. A trim
# takes some milliseconds, so many requests share one.
TRIM_SECONDS = 1.0


class Worker:
    """One thread, which starts with the first computation."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._trim: asyncio.TimerHandle | None = None
        self._collects = False  # the next trim first collects garbage

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """Run the function in the thread, to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            result, error = await loop.run_in_executor(self._thread(), _switching, function, args)
        finally:
            self._collects = True
            self.trim_soon()
        if error is not None:
            raise error
        return cast("_T", result)

    def trim_soon(self) -> None:
        """Return free memory to the system after a second; calls within it share one trim."""
        if self._trim is None:
            loop = asyncio.get_running_loop()
            self._trim = loop.call_later(TRIM_SECONDS, self._trim_now)

    def _trim_now(self) -> None:
        self._trim = None
        collects, self._collects = self._collects, False
        with contextlib.suppress(RuntimeError):  # the thread is closed
            self._thread().submit(_release if collects else process.trim_memory)

    def _thread(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "worker")
        return self._threads

    def close(self) -> None:
        """Start no more computations; does not wait for the current one."""
        if self._trim is not None:
            self._trim.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _release() -> None:
    """Free and return the cycles of large requests, for example the body of a failed one."""
    gc.collect()
    process.trim_memory()


class _Pace:
    """The interpreter's settings while at least one worker computes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = 0.0

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count > 1:
                return
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
            # A collection holds the interpreter and frees nothing here: reference counts
            # free a decoded body.
            gc.disable()

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                gc.enable()
                sys.setswitchinterval(self._usual)


_PACE = _Pace()  # of the whole interpreter


def _switching(
    function: Callable[..., _T], args: tuple[object, ...]
) -> tuple[_T | None, RefloatError | None]:
    """The function's result, or its expected error."""
    _PACE.begin()
    try:
        return function(*args), None
    except RefloatError as error:
        # The frames hold the whole body and the decoded objects.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return None, error
    finally:
        _PACE.end()
        process.trim_memory()
