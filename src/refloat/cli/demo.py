# SPDX-License-Identifier: Apache-2.0
"""`refloat demo`"""

import asyncio
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping

import click

from refloat.base import log
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import completers, options, output
from refloat.demo import catalogue, demo_run
from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.output_lines import Kind, Line

WIDTH = 80

# Long enough to read a step's lines, short enough for a whole demo in seconds.
PACE_SECONDS = 0.6

# Lines of the terminal that the picture leaves free.
FREE_LINES = 6

_COLOURS: dict[Kind, str] = {"event": "cyan", "answer": "green", "refusal": "yellow"}

_CLEAR_UP = "\x1b[{}A\x1b[J"
"""Move up so many lines, and clear the screen from there."""


@click.command()
@click.argument(
    "name",
    metavar="[DEMO]",
    default=catalogue.DEFAULT.name,
    shell_complete=completers.names(lambda: [(each.name, each.title) for each in catalogue.DEMOS]),
)
@click.option("--list", "show_list", is_flag=True, help="List the demos.")
@output.option
@click.option("--keep", is_flag=True, help="Keep the cluster running after the demo, until Ctrl-C.")
@click.option(
    "--pace",
    type=click.FloatRange(min=0),
    default=PACE_SECONDS,
    show_default=True,
    help="Seconds of pause after each step.",
)
def command(*, name: str, show_list: bool, form: output.Form, keep: bool, pace: float) -> None:
    """Watch a failure and its recovery, on a temporary cluster.

    Without DEMO, zombie runs: a pod hangs on a lost node. A demo starts its own
    cluster on a free loopback port, in a temporary directory, and removes both
    at the end. Exit code: 1 if the demo does not end as expected.
    """
    if show_list:
        output.show_list([(entry.name, entry.title) for entry in catalogue.DEMOS], "title", form)
        return
    if form != "table":
        raise UsageError(f"-o {form}: only with --list")
    entry = catalogue.find(name)
    log.setup(level="error")  # the demo itself shows the failures that it causes
    options.run(_show(entry, pace, keep=keep))


async def _show(entry: demo_run.Demo, pace: float, *, keep: bool) -> None:
    clock = RealClock()
    began = clock.monotonic()
    screen = Screen(live=is_live(), colours=has_colours(os.environ))
    click.echo(screen.styled(entry.title, bold=True))
    async for line in demo_run.run(entry, clock, Rand(), pace=pace, keep=_keep if keep else None):
        screen.show(line)
    if not keep:
        click.echo(f"\nThe demo ended as expected after {clock.monotonic() - began:.1f} s.")


async def _keep(cluster: DemoCluster) -> None:
    """Print the commands for the cluster, and wait for Ctrl-C."""
    stop = asyncio.Event()
    options.on_stop(stop.set)
    cluster.line("")
    cluster.line("The demo ended as expected. Its cluster runs until Ctrl-C:")
    cluster.line(f"  export KUBECONFIG={cluster.kubeconfig}")
    cluster.line("  kubectl get nodes,jobs,pods -A")
    for name in cluster.nodes.agents.names():
        if cluster.nodes.agents.fault(name):
            cluster.line(f"  refloat node heal {name} --data-dir {cluster.kubeconfig.parent}")
    await stop.wait()


def is_live() -> bool:
    """Whether the standard output is a terminal wide enough for the picture."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns >= WIDTH


def has_colours(environ: Mapping[str, str]) -> bool:
    """Whether colours are allowed: a NO_COLOR that is not empty forbids them (no-color.org)."""
    return not environ.get("NO_COLOR")


class Screen:
    """Prints lines and, on a terminal, keeps the picture of the pods below them."""

    def __init__(self, *, live: bool, colours: bool = True) -> None:
        self._live = live
        self._colours = colours
        self._board: list[str] = []

    def show(self, line: Line) -> None:
        if line.kind == "board" and not self._live:
            return
        if self._board:
            click.echo(_CLEAR_UP.format(len(self._board)), nl=False)
        if line.kind == "board":
            self._board = self._fitting(line.text)
        else:
            for text in render(line):
                bold = line.kind == "step" or None
                click.echo(self.styled(text, fg=_COLOURS.get(line.kind), bold=bold))
        for text in self._board:
            click.echo(text)

    def styled(self, text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
        """The text with its colour; click removes the colour where no terminal reads it."""
        return click.style(text, fg=fg, bold=bold) if self._colours else text

    def _fitting(self, text: str) -> list[str]:
        """The lines to draw; none if they do not fit, because scrolled lines cannot be redrawn."""
        lines = [f"  {row}" if row else "" for row in text.split("\n")] if text else []
        return lines if len(lines) + FREE_LINES <= shutil.get_terminal_size().lines else []


def render(line: Line) -> list[str]:
    """The line as rows of at most `WIDTH` columns."""
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
