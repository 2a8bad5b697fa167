# SPDX-License-Identifier: Apache-2.0
"""The options that the long-running commands share, and how these commands run."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path

import click
import uvloop

from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.config import load

DEFAULT_DATA_DIR = "~/.local/share/refloat"

data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="Where the cluster's state lives; it resumes from there.",
)
controllers = click.option(
    "--controllers",
    default="*",
    show_default=True,
    help="Which controllers to run: '*', 'none', or names; '-name' leaves one out.",
)
kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="[default: KUBECONFIG, the pod's own identity, ~/.kube/config]",
)
context = click.option("--context", default="", help="A context of the kubeconfig.")
feature_gates = click.option(
    "--feature-gates", default="", help="Name=true,Other=false; over those of the file."
)
feature_gates_alone = click.option(
    "--feature-gates", default="", help="Name=true,Other=false; those of the cluster."
)
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people or for machines.",
)
self_fence_seconds = click.option(
    "--self-fence-seconds",
    type=click.IntRange(min=1),
    help="How long pods that ask for it go on after their node last reached the API."
    " [default: 380; with --fast 38]",
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


def configuration(file: Path | None) -> load.Configuration:
    """What the file says, if there is one."""
    return load.Configuration() if file is None else load.load(file)


def chosen_gates(configured: load.Configuration, text: str) -> gates.Gates:
    """Those of the file, and over them those of the command line."""
    return gates.Gates({**configured.feature_gates, **gates.parse(text)})


def check_self_fence(seconds: int | None, *, fast: bool) -> int | None:
    """Refuse what would end pods of a node that only just missed a beat."""
    if seconds is None:
        return None
    from refloat.app import timings  # noqa: PLC0415 - not before it is needed

    least = timings.chosen(fast=fast).node.lease_seconds
    if seconds < least:
        raise UsageError(
            f"--self-fence-seconds: {seconds} is less than the {least} s for which a node's"
            " lease is good; pods would end though nobody misses their node"
        )
    return seconds


def run(main: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def on_stop(stop: Callable[[], object]) -> None:
    """Call it when the process is told to end."""
    loop = asyncio.get_running_loop()
    told = (signal.SIGINT, signal.SIGTERM)
    for each in told:
        loop.add_signal_handler(each, stop)
    # Whoever started us may have held them back until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, told)
