# SPDX-License-Identifier: Apache-2.0
"""`refloat demo`"""

import asyncio
import textwrap

import click
import uvloop

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.demo import catalogue, story
from refloat.demo.line import Kind, Line

WIDTH = 80

# Long enough to read a step's lines, short enough for a whole story in seconds.
PACE_SECONDS = 0.6

_COLOURS: dict[Kind, str] = {"event": "cyan", "answer": "green", "refusal": "yellow"}


@click.command()
@click.argument("name", metavar="[STORY]", default=catalogue.DEFAULT.name)
@click.option("--list", "lists", is_flag=True, help="List the stories.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=PACE_SECONDS,
    show_default=True,
    help="Seconds to read each step.",
)
def command(*, name: str, lists: bool, pace: float) -> None:
    """Play a story on a cluster of its own, and show it live.

    The cluster runs on a free port of this machine's loopback, in a temporary
    directory, and is gone afterwards. Exits with 1 if the story goes wrong.
    """
    if lists:
        for each in catalogue.STORIES:
            click.echo(f"{each.name:<12} {each.title}")
        return
    chosen = catalogue.find(name)
    log.setup(level="warning")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_show(chosen, pace))


async def _show(chosen: story.Story, pace: float) -> None:
    clock = RealClock()
    began = clock.monotonic()
    click.secho(chosen.title, bold=True)
    async for line in story.play(chosen, clock, Rand(), pace=pace):
        for text in render(line):
            click.secho(text, fg=_COLOURS.get(line.kind), bold=line.kind == "step")
    click.echo(f"\nThe story ended well, after {clock.monotonic() - began:.1f} s.")


def render(line: Line) -> list[str]:
    """A line as text of at most `WIDTH` columns."""
    if line.kind == "step":
        return ["", *textwrap.wrap(line.text, WIDTH)]
    if line.kind == "table":
        return [f"  {line.text}"]
    prefix = f"  {line.seconds:6.2f}s  " if line.kind != "note" else "  "
    return textwrap.wrap(
        line.text,
        WIDTH,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )
