# SPDX-License-Identifier: Apache-2.0
"""The definition and the run of a demo.

A demo is an async function that acts on a `DemoCluster`. `run` yields the lines of
the demo while it acts: explanations and events come in the order of time.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.demo.demo_cluster import API_SERVER_ONLY, DemoCluster, DemoSettings
from refloat.demo.errors import DemoFailed
from refloat.demo.output_lines import Line

Keep: TypeAlias = Callable[[DemoCluster], Awaitable[None]]

# Four times as long as the slowest demo.
MAX_SECONDS = 120.0

# A killed process is gone within milliseconds; on a busy machine within seconds.
REMOVALS, REMOVAL_PAUSE_SECONDS = 50, 0.1


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo, as `refloat demo --list` shows it."""

    name: str
    title: str
    run: Callable[[DemoCluster], Awaitable[None]]
    settings: DemoSettings = API_SERVER_ONLY


async def run(
    demo: Demo, clock: Clock, chance: Rand, *, pace: float, keep: Keep | None = None
) -> AsyncIterator[Line]:
    """Run a demo on a temporary cluster, and yield its lines.

    `pace` is the pause after each step in seconds. `keep` runs at the end of the
    demo, while the cluster still runs. Raises `DemoFailed` if the demo does not reach
    its end.
    """
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    async with _temporary_folder(clock) as folder:
        cluster = DemoCluster(
            folder / "data",
            clock,
            chance,
            lines.put_nowait,
            pace=pace,
            settings=demo.settings,
        )
        task = asyncio.ensure_future(_perform(demo, cluster, clock, keep))
        task.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


@asynccontextmanager
async def _temporary_folder(clock: Clock) -> AsyncIterator[Path]:
    """A folder that is removed at the end.

    After Ctrl-C processes of the nodes are killed. A process that is still dying may write a
    file while the folder is removed, so the removal is repeated.
    """
    folder = Path(tempfile.mkdtemp(prefix="refloat-demo-"))
    try:
        yield folder
    finally:
        for _ in range(REMOVALS):
            try:
                shutil.rmtree(folder)
                break
            except OSError as error:
                remaining = error
            await clock.sleep(REMOVAL_PAUSE_SECONDS)
        else:
            raise remaining


async def _perform(demo: Demo, cluster: DemoCluster, clock: Clock, keep: Keep | None) -> None:
    async with cluster:
        try:
            async with clock.timeout(MAX_SECONDS):
                await demo.run(cluster)
        except TimeoutError as error:
            raise DemoFailed(f"demo {demo.name!r} took more than {MAX_SECONDS:.0f} s") from error
        if keep is not None:
            await keep(cluster)
