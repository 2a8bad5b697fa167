# SPDX-License-Identifier: Apache-2.0
"""`refloat bench start`: how long short commands take, with the start of Python."""

import asyncio
import sys
import time

from refloat.bench.results import Progress, Row, cost

RUNS = 9


async def measure(progress: Progress) -> list[Row]:
    """The best of some runs of each command."""
    rows = []
    for argument in ("--help", "version"):
        progress(f"refloat {argument}")
        code = f"import sys; sys.argv = ['refloat', {argument!r}]"
        best = await _best(f"{code}; from refloat.cli.main import main; main()")
        rows.append(cost(f"refloat {argument}", best * 1000, "ms", aim=150))
    return [*rows, Row("python alone", await _best("pass") * 1000, "ms")]


async def _best(code: str) -> float:
    """The seconds of the fastest run of this Python code."""
    runs = []
    for _ in range(RUNS):
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            code,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # else Ctrl-C interrupts Python's start, with a traceback
        )
        await process.wait()
        runs.append(time.perf_counter() - started)
    return min(runs)
