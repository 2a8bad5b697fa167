# SPDX-License-Identifier: Apache-2.0
"""A thread for computations that would hold the event loop.

Python runs one thread at a time, so nothing becomes faster here: the loop
gets its turn after a switch interval instead of after the whole computation.
Functions that run here must not touch what the loop changes meanwhile.
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

# While a computation runs, the loop waits this long for the interpreter each
# time that it comes back from the system. Python's own 5 ms would make twenty
# small requests wait for a tenth of a second; a switch costs microseconds.
SWITCH_SECONDS = 0.0005

# After this the answer to a large request is sent, as a rule, and what it was made of
# is free. A trim takes some milliseconds, so many requests share one.
TRIM_SECONDS = 1.0


class Worker:
    """One thread, which is started when it is first needed."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._trim: asyncio.TimerHandle | None = None

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """What the function returns or raises; it runs to its end even if the caller leaves."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "worker")
        loop = asyncio.get_running_loop()
        try:
            result, error = await loop.run_in_executor(self._threads, _switching, function, args)
        finally:
            if self._trim is None:
                self._trim = loop.call_later(TRIM_SECONDS, self._trim_now)
        if error is not None:
            raise error
        return cast("_T", result)

    def _trim_now(self) -> None:
        self._trim = None
        if self._threads is not None:
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                self._threads.submit(_release)

    def close(self) -> None:
        """Start nothing more; what runs is not waited for."""
        if self._trim is not None:
            self._trim.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _release() -> None:
    """Free what large requests left behind in cycles, a failed one its body, and return it."""
    gc.collect()
    process.trim_memory()


class _Pace:
    """How the interpreter runs while at least one worker computes."""

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
            # A collection holds the interpreter, and looks in vain at all that is being
            # made here: a decoded body is freed by its counts alone.
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
    """What the function returns, or the foreseen error that it raises."""
    _PACE.begin()
    try:
        return function(*args), None
    except RefloatError as error:
        # Its frames hold the whole body and all that was made of it.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return None, error
    finally:
        _PACE.end()
        process.trim_memory()
