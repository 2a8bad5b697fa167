# SPDX-License-Identifier: Apache-2.0
"""What a story is, and how one is played.

A story is an async function that is given a `Stage` and acts on it. Playing
it yields its lines while it goes on: what it says and what its watches see
come in the order in which they happened.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.demo.errors import StoryFailed
from refloat.demo.line import Line
from refloat.demo.stage import ALONE, Setting, Stage

Keep: TypeAlias = Callable[[Stage], Awaitable[None]]

# No story takes a quarter of it; one that does hangs.
MAX_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Story:
    """A story, as `refloat demo --list` shows it."""

    name: str
    title: str
    act: Callable[[Stage], Awaitable[None]]
    setting: Setting = ALONE


async def play(
    story: Story, clock: Clock, chance: Rand, *, pace: float, keep: Keep | None = None
) -> AsyncIterator[Line]:
    """Play a story on a cluster of its own, in a directory that is removed after.

    `pace` is how many seconds a reader is given for each step; `keep` is awaited
    at the end of the story, before its cluster goes. Raises `StoryFailed` when
    the story does not come to its end.
    """
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    with tempfile.TemporaryDirectory(prefix="refloat-demo-") as folder:
        stage = Stage(
            Path(folder) / "data",
            clock,
            chance,
            lines.put_nowait,
            pace=pace,
            setting=story.setting,
        )
        acting = asyncio.ensure_future(_perform(story, stage, clock, keep))
        acting.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line
            await acting
        finally:
            acting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await acting


async def _perform(story: Story, stage: Stage, clock: Clock, keep: Keep | None) -> None:
    async with stage:
        try:
            async with clock.timeout(MAX_SECONDS):
                await story.act(stage)
        except TimeoutError as error:
            raise StoryFailed(f"story {story.name!r} took more than {MAX_SECONDS:.0f} s") from error
        if keep is not None:
            await keep(stage)
