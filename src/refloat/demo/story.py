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

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.demo.errors import StoryFailed
from refloat.demo.line import Line
from refloat.demo.stage import Stage

# No story takes a third of it; one that does hangs.
MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Story:
    """A story, as `refloat demo --list` shows it."""

    name: str
    title: str
    act: Callable[[Stage], Awaitable[None]]


async def play(story: Story, clock: Clock, chance: Rand, *, pace: float) -> AsyncIterator[Line]:
    """Play a story on a cluster of its own, in a directory that is removed after.

    `pace` is how many seconds a reader is given for each step. Raises
    `StoryFailed` when the story does not come to its end.
    """
    lines: asyncio.Queue[Line | None] = asyncio.Queue()
    with tempfile.TemporaryDirectory(prefix="refloat-demo-") as folder:
        stage = Stage(Path(folder) / "data", clock, chance, lines.put_nowait, pace=pace)
        acting = asyncio.ensure_future(_perform(story, stage, clock))
        acting.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield line
            await acting
        finally:
            acting.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await acting


async def _perform(story: Story, stage: Stage, clock: Clock) -> None:
    try:
        async with stage, clock.timeout(MAX_SECONDS):
            await story.act(stage)
    except TimeoutError as error:
        raise StoryFailed(f"story {story.name!r} took more than {MAX_SECONDS:.0f} s") from error
