# SPDX-License-Identifier: Apache-2.0
"""`refloat bench queue`: keys per second through a short and a long work queue.

A key is added, taken and done; a delayed key waits first. The cost of a key must
not grow with the number of keys that wait.
"""

import time

from refloat.base.clock import RealClock
from refloat.bench.results import Progress, Row
from refloat.runtime.queue import Queue

SIZES = (1_000, 10_000, 100_000, 1_000_000)
AIM = 100_000
RUNS = 3
# Everything is due after this; adding the longest row must take longer.
DELAY_SECONDS = 0.001


async def measure(progress: Progress) -> list[Row]:
    rows = []
    for size in SIZES:
        progress(f"{size} keys")
        best = min([await _drain(size, 0.0) for _ in range(max(RUNS, SIZES[1] // size))])
        rows.append(Row(f"{size:,} keys", size / best, "/s", aim=AIM))
    progress("delayed keys")
    best = min([await _drain(SIZES[2], DELAY_SECONDS) for _ in range(RUNS)])
    return [*rows, Row("100,000 delayed keys", SIZES[2] / best, "/s", aim=AIM)]


async def _drain(size: int, delay: float) -> float:
    """The seconds to add so many keys and to take them out again."""
    keys = [("default", f"job-{n}") for n in range(size)]
    queue: Queue[tuple[str, str]] = Queue("bench", clock=RealClock())
    started = time.perf_counter()
    if delay:
        for key in keys:
            queue.add_after(key, delay)
    else:
        for key in keys:
            queue.add(key)
    for _ in range(size):
        queue.done(await queue.get())
    return time.perf_counter() - started
