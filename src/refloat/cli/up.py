# SPDX-License-Identifier: Apache-2.0
"""`refloat up`"""

import asyncio
from pathlib import Path

import click

from refloat.app import controllers as controller_table
from refloat.app import embedded
from refloat.base import log, process
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import options

DEFAULT_DATA_DIR = "~/.local/share/refloat"


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA_DIR,
    show_default=True,
    help="Where the cluster's state lives; it resumes from there.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The API server's port. [default: that of the last time, or a free one]",
)
@click.option(
    "--bind-address",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many nodes to run.",
)
@click.option(
    "--simulated-nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many nodes to simulate: their pods run for as long, and end as, an annotation says.",
)
@options.controllers
@options.config("A configuration file.")
@options.feature_gates
@options.log_format
@options.log_level("warning", "What to log: info has every write, debug every request.")
def command(  # one parameter for each option
    *,
    data_dir: Path,
    port: int,
    bind_address: str,
    nodes: int,
    simulated_nodes: int,
    controllers: str,
    config_file: Path | None,
    feature_gates: str,
    log_format: log.Format,
    log_level: str,
) -> None:
    """Run a Kubernetes-compatible cluster on this machine, until Ctrl-C.

    Writes DIR/kubeconfig, with which kubectl and every other client can use
    it. With --nodes 0 --controllers none it is the API server alone.
    """
    log.setup(log_format, level=log_level)
    chosen = controller_table.chosen(controllers)
    if nodes:
        raise UsageError(f"--nodes {nodes}: nodes that run pods do not exist yet; use --nodes 0")
    settings = embedded.Settings(
        data_dir=data_dir.expanduser(),
        port=port,
        bind_address=check_address(bind_address),
        gates=options.chosen_gates(config_file, feature_gates),
        inside=controller_table.Chosen(chosen, simulated_nodes),
    )
    process.allow_many_files()
    options.run(_run(settings))


def check_address(text: str) -> str:
    """Refuse what is no address of this machine to listen at."""
    import ipaddress  # noqa: PLC0415 - not before it is needed

    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise UsageError(f"--bind-address: {text!r} is not an IP address") from error


async def _run(settings: embedded.Settings) -> None:
    stop = asyncio.Event()
    options.on_stop(stop.set)
    cluster = embedded.Cluster(settings, RealClock(), Rand())
    try:
        await _start(cluster, settings)
        process.settle()
        click.echo(f"Kubernetes API at {cluster.url}")
        click.echo(f"  export KUBECONFIG={cluster.kubeconfig}")
        click.echo("  kubectl get namespaces")
        click.echo("Ctrl-C stops it; its state stays in the data directory.")
        await stop.wait()
    finally:
        await cluster.close()


async def _start(cluster: embedded.Cluster, settings: embedded.Settings) -> None:
    try:
        await cluster.start()
    except OSError as error:
        where = f"{settings.bind_address}:{settings.port}" if settings.port else settings.data_dir
        raise UsageError(f"cannot start at {where}: {error.strerror or error}") from error
