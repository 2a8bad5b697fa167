# SPDX-License-Identifier: Apache-2.0
"""`refloat bench`"""

import asyncio
import dataclasses
import importlib
import sys
from collections.abc import Coroutine

import click

from refloat.base.errors import UsageError
from refloat.bench.results import Row
from refloat.cli import options, output

# name -> (module, what it measures)
BENCHMARKS = {
    "start": ("refloat.bench.start", "the start of the command line: seconds"),
    "api": ("refloat.bench.api", "the API server: rates, watches, memory, start"),
    "queue": ("refloat.bench.queue", "the work queue: keys per second, few and many"),
    "informer": ("refloat.bench.informer", "an informer: memory and CPU for 10,000 pods"),
    "job": ("refloat.bench.job", "the Job controller: CPU, memory and time, few pods and many"),
    "doctor": ("refloat.bench.doctor", "`refloat doctor` with 10,000 pods: seconds and reads"),
    "agent": ("refloat.bench.agent", "nodes that run processes: rates, memory, a Job"),
    "zombies": (
        "refloat.bench.zombies",
        "thousands of pods that hang on a lost node; only by name",
    ),
    "nodes": ("refloat.bench.nodes", "thousands of simulated nodes; only by name"),
    "kubernetes": (
        "refloat.bench.kubernetes",
        "Refloat beside Kubernetes' own Job controller; only by name",
    ),
    "soak": ("refloat.bench.soak", "ten minutes of mixed load; only by name"),
}
ONLY_BY_NAME = ("kubernetes", "nodes", "soak", "zombies")
SIZED = ("doctor", "job", "kubernetes", "nodes", "zombies")


@click.command()
@click.argument("name", metavar="[NAME]", required=False, type=click.Choice(list(BENCHMARKS)))
@click.option("--list", "show_list", is_flag=True, help="List the benchmarks.")
@output.option
@click.option(
    "--pods",
    type=click.IntRange(min=1),
    help="Size of job and kubernetes: pods of the largest Job [default: 2000]; of zombies: pods "
    "on the lost node [default: 2000]; of doctor and nodes: all pods together [default: 10000 and "
    "50000].",
)
@click.option(
    "--nodes", type=click.IntRange(min=1), help="Size of nodes: its nodes. [default: 5000]"
)
def command(
    *, name: str | None, show_list: bool, form: output.Form, pods: int | None, nodes: int | None
) -> None:
    """Measure Refloat on this machine.

    Without NAME, all benchmarks run but those that --list marks "only by name".
    Compare figures of one run only: they depend on the machine and its load.
    """
    if show_list:
        output.show_list([(key, text) for key, (_, text) in BENCHMARKS.items()], "measures", form)
        return
    if pods is not None and name not in SIZED:
        raise UsageError(f"--pods {pods}: only for {', '.join(SIZED)}")
    if nodes is not None and name != "nodes":
        raise UsageError(f"--nodes {nodes}: only for nodes")
    rows: list[Row] = []
    sizes = {key: size for key, size in (("pods", pods), ("nodes", nodes)) if size is not None}
    for key in [name] if name else [key for key in BENCHMARKS if key not in ONLY_BY_NAME]:
        module = importlib.import_module(BENCHMARKS[key][0])
        rows += options.run(_stoppable(module.measure(_progress, **sizes)))
    if form == "table":
        _print(rows)
    else:
        output.show([dataclasses.asdict(row) for row in rows], form)


async def _stoppable(measurement: Coroutine[object, object, list[Row]]) -> list[Row]:
    """Cancel the benchmark on Ctrl-C and SIGTERM, so that its processes end too."""
    task = asyncio.ensure_future(measurement)
    options.on_stop(task.cancel)
    try:
        return await task
    except asyncio.CancelledError as error:
        raise click.Abort from error


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"  {text} ...", err=True)


def _print(rows: list[Row]) -> None:
    width = max(24, *(len(row.what) + 1 for row in rows))
    click.echo(f"{'':{width}}{'measured':>12}{'stock':>10}{'ratio':>8}{'aim':>12}")
    for row in rows:
        amount = f"{row.value:.{0 if row.value >= 100 else 2}f} {row.unit}"
        stock = "" if row.stock is None else f"{row.stock:g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        aim = "" if row.aim is None else f"{row.aim:g} {'ok' if row.reached else 'no'}"
        click.echo(f"{row.what:{width}}{amount:>12}{stock:>10}{ratio:>8}{aim:>12}")
