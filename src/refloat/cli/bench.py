# SPDX-License-Identifier: Apache-2.0
"""`refloat bench`"""

import asyncio
import dataclasses
import importlib
import sys
from collections.abc import Coroutine

import click
import uvloop

from refloat.base.errors import UsageError
from refloat.bench.results import Row
from refloat.cli import options, output

# name -> (module, what it measures)
BENCHMARKS = {
    "start": ("refloat.bench.start", "how long the command line takes to answer"),
    "api": ("refloat.bench.api", "the API server: rates, watches, memory, start"),
    "queue": ("refloat.bench.queue", "the work queue: keys a second, few and many"),
    "informer": ("refloat.bench.informer", "an informer: memory and CPU for 10,000 pods"),
    "job": ("refloat.bench.job", "the Job controller: CPU, memory and time, few pods and many"),
    "agent": ("refloat.bench.agent", "nodes that run processes: rates, memory, a Job"),
    "zombies": (
        "refloat.bench.zombies",
        "thousands of pods that hang on a lost node; only when named",
    ),
    "nodes": ("refloat.bench.nodes", "thousands of simulated nodes; only when named"),
    "kubernetes": (
        "refloat.bench.kubernetes",
        "beside Kubernetes' own Job controller; only when named",
    ),
    "soak": ("refloat.bench.soak", "ten minutes of mixed load; only when named"),
}
ONLY_WHEN_NAMED = ("kubernetes", "nodes", "soak", "zombies")
SIZED = ("job", "kubernetes", "nodes", "zombies")


@click.command()
@click.argument("name", required=False, type=click.Choice(list(BENCHMARKS)))
@click.option("--list", "show_list", is_flag=True, help="List the benchmarks.")
@output.option
@click.option(
    "--pods",
    type=click.IntRange(min=1),
    help="The pods of the largest Job, for job and kubernetes, or on the lost node, for zombies; "
    "other sizes follow. [default: 2000]; all pods together for nodes [default: 50000]",
)
@click.option(
    "--nodes", type=click.IntRange(min=1), help="How many, for nodes only. [default: 5000]"
)
def command(
    *, name: str | None, show_list: bool, form: output.Form, pods: int | None, nodes: int | None
) -> None:
    """Measure Refloat on this machine; without NAME, everything.

    The figures are this machine's of this minute: compare them within a run.
    """
    if show_list:
        output.listed([(each, text) for each, (_, text) in BENCHMARKS.items()], "measures", form)
        return
    if pods is not None and name not in SIZED:
        raise UsageError(f"--pods {pods}: only for {', '.join(SIZED)}")
    if nodes is not None and name != "nodes":
        raise UsageError(f"--nodes {nodes}: only for nodes")
    rows: list[Row] = []
    sizes = {"pods": pods, "nodes": nodes}
    sized = {each: size for each, size in sizes.items() if size is not None}
    chosen = [each for each in BENCHMARKS if each not in ONLY_WHEN_NAMED]
    for each in [name] if name else chosen:
        module = importlib.import_module(BENCHMARKS[each][0])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows += runner.run(_stoppable(module.measure(_progress, **sized)))
    if form == "table":
        _print(rows)
    else:
        output.show([dataclasses.asdict(row) for row in rows], form)


async def _stoppable(measuring: Coroutine[object, object, list[Row]]) -> list[Row]:
    """Also when told to end, nothing that was started is left behind."""
    task = asyncio.ensure_future(measuring)
    options.on_stop(task.cancel)
    try:
        return await task
    except asyncio.CancelledError as error:
        raise click.Abort from error


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"  {text} ...", err=True)


def _print(rows: list[Row]) -> None:
    wide = max(24, *(len(row.what) + 1 for row in rows))
    click.echo(f"{'':{wide}}{'measured':>12}{'stock':>10}{'ratio':>8}{'aim':>12}")
    for row in rows:
        stock = "" if row.stock is None else f"{row.stock:g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        aim = "" if row.aim is None else f"{row.aim:g} {'ok' if row.reached else 'no'}"
        click.echo(f"{row.what:{wide}}{_amount(row):>12}{stock:>10}{ratio:>8}{aim:>12}")


def _amount(row: Row) -> str:
    return f"{row.value:.{0 if row.value >= 100 else 2}f} {row.unit}"
