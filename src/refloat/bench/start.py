# SPDX-License-Identifier: Apache-2.0
"""`refloat bench start`: how long the command line takes to answer."""

import asyncio
import sys
import time
from collections.abc import Callable

from refloat.bench.results import Row

RUNS = 9

_COMMANDS = ("--help", "version")


async def measure(progress: Callable[[str], None]) -> list[Row]:
    """The best of some runs of each command, interpreter included."""
    rows = []
    for argument in _COMMANDS:
        progress(f"refloat {argument}")
        best = min([await _run(argument) for _ in range(RUNS)])
        rows.append(Row(f"refloat {argument}", best * 1000, "ms", aim=150, smaller_is_better=True))
    bare = min([await _run_python("pass") for _ in range(RUNS)])
    return [*rows, Row("python alone", bare * 1000, "ms")]


async def _run(argument: str) -> float:
    code = f"import sys; sys.argv = ['refloat', {argument!r}]"
    return await _run_python(f"{code}; from refloat.cli.main import main; main()")


async def _run_python(code: str) -> float:
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    return time.perf_counter() - started
