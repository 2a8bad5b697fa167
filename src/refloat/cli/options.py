# SPDX-License-Identifier: Apache-2.0
"""The options that the long-running commands share, and how these commands run."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path

import click
import uvloop

from refloat.base import gates
from refloat.config import load

controllers = click.option(
    "--controllers",
    default="*",
    show_default=True,
    help="Which controllers to run: '*', 'none', or names; '-name' leaves one out.",
)
feature_gates = click.option(
    "--feature-gates", default="", help="Name=true,Other=false; over those of the file."
)
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people or for machines.",
)

_Option = Callable[[Callable[..., None]], Callable[..., None]]


def config(text: str) -> _Option:
    return click.option(
        "--config", "config_file", type=click.Path(dir_okay=False, path_type=Path), help=text
    )


def log_level(default: str, text: str = "What to log.") -> _Option:
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help=text,
    )


def chosen_gates(config_file: Path | None, text: str) -> gates.Gates:
    """Those of the file, and over them those of the command line."""
    configured = load.load(config_file).feature_gates if config_file else {}
    return gates.Gates({**configured, **gates.parse(text)})


def run(main: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def on_stop(stop: Callable[[], object]) -> None:
    """Call it when the process is told to end."""
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
