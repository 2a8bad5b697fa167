# SPDX-License-Identifier: Apache-2.0
"""`refloat demo`"""

import asyncio
import shutil
import sys
import textwrap

import click
import uvloop

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import options, output
from refloat.demo import catalogue, story
from refloat.demo.line import Kind, Line
from refloat.demo.stage import Stage

WIDTH = 80

# Long enough to read a step's lines, short enough for a whole story in seconds.
PACE_SECONDS = 0.6

# Lines of a terminal beside the picture of how things are.
BESIDE = 6

_COLOURS: dict[Kind, str] = {"event": "cyan", "answer": "green", "refusal": "yellow"}

_UP = "\x1b[{}A\x1b[J"
"""To the beginning of so many lines above, and nothing below."""


@click.command()
@click.argument("name", metavar="[STORY]", default=catalogue.DEFAULT.name)
@click.option("--list", "lists", is_flag=True, help="List the stories.")
@output.option
@click.option("--keep", is_flag=True, help="Leave the cluster running afterwards, until Ctrl-C.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=PACE_SECONDS,
    show_default=True,
    help="Seconds to read each step.",
)
def command(*, name: str, lists: bool, form: output.Form, keep: bool, pace: float) -> None:
    """Play a story on a cluster of its own, and show it live.

    The cluster runs on a free port of this machine's loopback, in a temporary
    directory, and is gone afterwards. Exits with 1 if the story goes wrong.
    """
    if lists:
        output.listed([(each.name, each.title) for each in catalogue.STORIES], "title", form)
        return
    if form != "table":
        raise UsageError(f"-o {form}: only with --list")
    chosen = catalogue.find(name)
    log.setup(level="error")  # what goes wrong is the story
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_show(chosen, pace, keep=keep))


async def _show(chosen: story.Story, pace: float, *, keep: bool) -> None:
    clock = RealClock()
    began = clock.monotonic()
    screen = Screen(live=is_live())
    click.secho(chosen.title, bold=True)
    async for line in story.play(chosen, clock, Rand(), pace=pace, keep=_kept if keep else None):
        screen.show(line)
    if not keep:
        click.echo(f"\nThe story ended well, after {clock.monotonic() - began:.1f} s.")


async def _kept(stage: Stage) -> None:
    """Say what can be done with the cluster, and wait for the end."""
    stop = asyncio.Event()
    options.on_stop(stop.set)
    stage.line("")
    stage.line("The story ended well. Its cluster runs on until Ctrl-C:")
    stage.line(f"  export KUBECONFIG={stage.kubeconfig}")
    stage.line("  kubectl get nodes,jobs,pods -A")
    for name in stage.nodes.agents.names():
        if stage.nodes.agents.fault(name):
            stage.line(f"  refloat node heal {name} --data-dir {stage.kubeconfig.parent}")
    await stop.wait()


def is_live() -> bool:
    """Whether somebody watches, with room for a picture."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns >= WIDTH


class Screen:
    """Lines one after the other and, live, below them the picture of how things are."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._board: list[str] = []

    def show(self, line: Line) -> None:
        if line.kind == "board" and not self._live:
            return
        if self._board:
            click.echo(_UP.format(len(self._board)), nl=False)
        if line.kind == "board":
            self._board = self._fitting(line.text)
        else:
            for text in render(line):
                click.secho(text, fg=_COLOURS.get(line.kind), bold=line.kind == "step" or None)
        for text in self._board:
            click.echo(text)

    def _fitting(self, text: str) -> list[str]:
        """Nothing if it would not fit: what has scrolled away cannot be drawn anew."""
        lines = [f"  {each}" if each else "" for each in text.split("\n")] if text else []
        return lines if len(lines) + BESIDE <= shutil.get_terminal_size().lines else []


def render(line: Line) -> list[str]:
    """A line as text of at most `WIDTH` columns."""
    if line.kind == "step":
        return ["", *textwrap.wrap(line.text, WIDTH)]
    if line.kind == "table":
        return [f"  {line.text}".rstrip()]
    prefix = f"  {line.seconds:6.2f}s  " if line.kind != "note" else "  "
    return textwrap.wrap(
        line.text,
        WIDTH,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_long_words=False,
        break_on_hyphens=False,
    )
