# SPDX-License-Identifier: Apache-2.0
"""A thread for computations that would hold the event loop.

Python runs one thread at a time, so nothing becomes faster here: the loop
gets its turn after a switch interval instead of after the whole computation.
Functions that run here must not touch what the loop changes meanwhile.
"""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")

# While a computation runs, the loop waits this long for the interpreter each
# time that it comes back from the system. Python's own 5 ms would make twenty
# small requests wait for a tenth of a second; a switch costs microseconds.
SWITCH_SECONDS = 0.0005


class Worker:
    """One thread, which is started when it is first needed."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., _T], *args: object) -> _T:
        """What the function returns or raises; it runs to its end even if the caller leaves."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "worker")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _switching, function, args)

    def close(self) -> None:
        """Start nothing more; what runs is not waited for."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _switching(function: Callable[..., _T], args: tuple[object, ...]) -> _T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return function(*args)
    finally:
        sys.setswitchinterval(usual)
