# SPDX-License-Identifier: Apache-2.0
"""The options and the event loop that the commands share."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TypeVar

import click
import uvloop

from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.cli import completers
from refloat.config import load

DEFAULT_DATA_DIR = "~/.local/share/refloat"

data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="The directory of the cluster's state; `refloat up` continues from that state.",
)
node_data_dir = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="The data directory of the cluster. [default: that of the kubeconfig in $KUBECONFIG, "
    f"else {DEFAULT_DATA_DIR}]",
)
controllers = click.option(
    "--controllers",
    default="*",
    show_default=True,
    help="The controllers to run: '*', 'none', or names; '*,-job-controller' leaves one out.",
)
kubeconfig = click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig file. [default: $KUBECONFIG, in a pod its service account, "
    "~/.kube/config]",
)
context = click.option(
    "--context", default="", help="The context of the kubeconfig. [default: the current one]"
)
feature_gates = click.option(
    "--feature-gates",
    default="",
    shell_complete=completers.gates,
    help="Feature gates, such as Name=true,Other=false; they override the file's (docs/gates.md).",
)
feature_gates_alone = click.option(
    "--feature-gates",
    default="",
    shell_complete=completers.gates,
    help="Feature gates, such as Name=true,Other=false: the same as the cluster's (docs/gates.md).",
)
log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of log lines: text for people, json for programs.",
)
self_fence_seconds = click.option(
    "--self-fence-seconds",
    type=click.IntRange(min=1),
    help="How long pods with the self-fence annotation run on after their node last reached the "
    "API server. [default: 380; with --fast 38]",
)

T = TypeVar("T")

_Option = Callable[[Callable[..., None]], Callable[..., None]]


def config(text: str) -> _Option:
    return click.option(
        "--config", "config_file", type=click.Path(dir_okay=False, path_type=Path), help=text
    )


def log_level(default: str, text: str = "The log level.") -> _Option:
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help=text,
    )


def find_data_dir(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The data directory that is given, or of a kubeconfig in KUBECONFIG, or the default one.

    An embedded cluster keeps its kubeconfig in its data directory, beside its store.
    """
    if given is not None:
        return given.expanduser()
    for name in environ.get("KUBECONFIG", "").split(os.pathsep):
        folder = Path(name).resolve().parent
        if name and (folder / "state.db").exists():
            return folder
    return Path(DEFAULT_DATA_DIR).expanduser()


def configuration(file: Path | None) -> load.Configuration:
    """The configuration of the file, or the default one."""
    return load.Configuration() if file is None else load.load(file)


def merge_gates(configuration: load.Configuration, text: str) -> gates.Gates:
    """The gates of the file; those of the command line override them."""
    return gates.Gates({**configuration.feature_gates, **gates.parse(text)})


def check_self_fence(seconds: int | None, *, fast: bool) -> int | None:
    """Refuse a time that would end pods of a node that missed one heartbeat."""
    if seconds is None:
        return None
    from refloat.app import timings  # noqa: PLC0415 - loaded only when needed

    least = timings.select(fast=fast).node.lease_seconds
    if seconds < least:
        raise UsageError(
            f"--self-fence-seconds: {seconds} is less than the {least} s for which a node's"
            " lease is good; pods would end although their node is not lost"
        )
    return seconds


def run(main: Coroutine[object, object, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def on_stop(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGINT and SIGTERM."""
    on_signal(lambda _: stop())


def on_signal(handle: Callable[[signal.Signals], object]) -> None:
    """Call `handle` with each SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for signum in signals:
        loop.add_signal_handler(signum, handle, signum)
    # The parent process may have blocked these signals until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
