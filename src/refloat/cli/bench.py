# SPDX-License-Identifier: Apache-2.0
"""`refloat bench`"""

import asyncio
import dataclasses
import importlib
import json
import sys

import click
import uvloop

from refloat.bench.results import Row

# name -> (module, what it measures)
BENCHMARKS = {
    "start": ("refloat.bench.start", "how long the command line takes to answer"),
    "api": ("refloat.bench.api", "the API server: rates, watches, memory, start"),
    "queue": ("refloat.bench.queue", "the work queue: keys a second, few and many"),
    "informer": ("refloat.bench.informer", "an informer: memory and CPU for 10,000 pods"),
    "soak": ("refloat.bench.soak", "ten minutes of mixed load; only when named"),
}
ONLY_WHEN_NAMED = ("soak",)


@click.command()
@click.argument("name", required=False, type=click.Choice(list(BENCHMARKS)))
@click.option("--list", "show_list", is_flag=True, help="List the benchmarks.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def command(*, name: str | None, show_list: bool, output: str) -> None:
    """Measure Refloat on this machine; without NAME, everything.

    The figures are this machine's of this minute: compare them within a run.
    """
    if show_list:
        for each, (_, text) in BENCHMARKS.items():
            click.echo(f"{each:8} {text}")
        return
    rows: list[Row] = []
    chosen = [each for each in BENCHMARKS if each not in ONLY_WHEN_NAMED]
    for each in [name] if name else chosen:
        module = importlib.import_module(BENCHMARKS[each][0])
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            rows += runner.run(module.measure(_progress))
    if output == "json":
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        _print(rows)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"  {text} ...", err=True)


def _print(rows: list[Row]) -> None:
    click.echo(f"{'':24}{'measured':>12}{'stock':>10}{'ratio':>8}{'aim':>12}")
    for row in rows:
        stock = "" if row.stock is None else f"{row.stock:g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}x"
        aim = "" if row.aim is None else f"{row.aim:g} {'ok' if row.reached else 'no'}"
        click.echo(f"{row.what:24}{_amount(row):>12}{stock:>10}{ratio:>8}{aim:>12}")


def _amount(row: Row) -> str:
    return f"{row.value:.{0 if row.value >= 100 else 2}f} {row.unit}"
