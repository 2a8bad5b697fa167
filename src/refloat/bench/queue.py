# SPDX-License-Identifier: Apache-2.0
"""`refloat bench queue`: keys through the work queue, short and long.

A key's way is added, given out, done; and delayed, due, given out, done. The
cost of a key must not grow with the number that wait.
"""

import time
from collections.abc import Callable

from refloat.base.clock import RealClock
from refloat.bench.results import Row
from refloat.runtime.queue import Queue

SIZES = (1_000, 10_000, 100_000, 1_000_000)
AIM = 100_000
RUNS = 3
# Everything is due after this; adding the longest row must take longer.
DELAY_SECONDS = 0.001


async def measure(progress: Callable[[str], None]) -> list[Row]:
    rows = []
    for size in SIZES:
        progress(f"{size} keys")
        keys = [("default", f"job-{n}") for n in range(size)]
        runs = max(RUNS, SIZES[1] // size)
        best = min([await _straight(keys) for _ in range(runs)])
        rows.append(Row(f"{size:,} keys", size / best, "/s", aim=AIM))
    progress("delayed keys")
    keys = [("default", f"job-{n}") for n in range(SIZES[2])]
    best = min([await _delayed(keys) for _ in range(RUNS)])
    return [*rows, Row("100,000 delayed keys", len(keys) / best, "/s", aim=AIM)]


async def _straight(keys: list[tuple[str, str]]) -> float:
    queue: Queue[tuple[str, str]] = Queue("bench", clock=RealClock())
    started = time.perf_counter()
    for key in keys:
        queue.add(key)
    await _work_off(queue, len(keys))
    return time.perf_counter() - started


async def _delayed(keys: list[tuple[str, str]]) -> float:
    queue: Queue[tuple[str, str]] = Queue("bench", clock=RealClock())
    started = time.perf_counter()
    for key in keys:
        queue.add_after(key, DELAY_SECONDS)
    await _work_off(queue, len(keys))
    return time.perf_counter() - started


async def _work_off(queue: Queue[tuple[str, str]], count: int) -> None:
    for _ in range(count):
        key = await queue.get()
        queue.done(key)
