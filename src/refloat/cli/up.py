# SPDX-License-Identifier: Apache-2.0
"""`refloat up`"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from refloat.app import controllers as controller_table
from refloat.app import embedded
from refloat.base import log, process
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import options

if TYPE_CHECKING:
    from refloat.app import supervision

# Pods run without a further word; a cluster of simulated nodes is there for those alone.
DEFAULT_NODES = 1


@click.command()
@options.data_dir
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
    help="How many nodes to run: n1, n2 and so on run containers as processes of this machine. "
    "[default: 1, or 0 with --simulated-nodes]",
)
@click.option(
    "--simulated-nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many nodes to simulate: their pods run for as long, and end as, an annotation says.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Waits about ten times shorter than Kubernetes': for demonstrations and tests.",
)
@options.self_fence_seconds
@click.option(
    "--accept-lost-writes",
    is_flag=True,
    help="Start although the store lacks writes that it acknowledged: after damage, or with a "
    "backup. Clients list everything anew.",
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
    nodes: int | None,
    simulated_nodes: int,
    fast: bool,
    self_fence_seconds: int | None,
    accept_lost_writes: bool,
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
    fence = options.check_self_fence(self_fence_seconds, fast=fast)
    configured = options.configuration(config_file)
    settings = embedded.Settings(
        data_dir=data_dir.expanduser(),
        port=port,
        bind_address=check_address(bind_address),
        gates=options.chosen_gates(configured, feature_gates),
        configured=configured,
        inside=controller_table.Chosen(chosen, simulated_nodes, fast, fence),
        accept_lost_writes=accept_lost_writes,
    )
    if nodes is None:
        nodes = 0 if simulated_nodes else DEFAULT_NODES
    process.allow_many_files()
    process.return_memory()
    flags = [f"--log-level={log_level}", f"--log-format={log_format}"]
    options.run(_run(settings, nodes, flags))


def check_address(text: str) -> str:
    """Refuse what is no address of this machine to listen at."""
    import ipaddress  # noqa: PLC0415 - not before it is needed

    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise UsageError(f"--bind-address: {text!r} is not an IP address") from error


class _Stop(asyncio.Event):
    """Set when the process is to end."""

    is_interrupt = False

    def listen(self) -> None:
        options.on_stop(self.set)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)

    def _interrupt(self) -> None:
        self.is_interrupt = True
        self.set()


async def _run(settings: embedded.Settings, nodes: int, flags: list[str]) -> None:
    stop = _Stop()
    stop.listen()
    async with contextlib.AsyncExitStack() as stack:
        cluster = embedded.Cluster(settings, RealClock(), Rand())
        stack.push_async_callback(cluster.close)
        if not await _starts(cluster, settings, stop):
            return
        if nodes:
            agents = _agents(cluster, settings, nodes, flags)
            agents.start()
            cluster.agents = agents
            stack.push_async_callback(agents.close)
        process.settle()
        click.echo(f"Kubernetes API at {cluster.url}")
        click.echo(f"  export KUBECONFIG={cluster.kubeconfig}")
        click.echo("  kubectl get namespaces")
        if nodes and os.geteuid() != 0:
            click.echo(f"Not root: pods run with all rights of user {os.geteuid()}.")
        click.echo("Ctrl-C stops it; its state stays in the data directory.")
        await stop.wait()


def _agents(
    cluster: embedded.Cluster, settings: embedded.Settings, nodes: int, flags: list[str]
) -> "supervision.Agents":
    import ipaddress  # noqa: PLC0415 - not before it is needed

    from refloat.app import supervision  # noqa: PLC0415 - without nodes it is not needed

    flags = [*flags, f"--feature-gates={settings.gates!r}"]
    # Beyond this machine others may create pods, and their commands would run here.
    if ipaddress.ip_address(settings.bind_address).is_loopback:
        flags.append("--accept-all-pods")
    if settings.inside.fast:
        flags.append("--fast")
    if settings.inside.self_fence_seconds is not None:
        flags.append(f"--self-fence-seconds={settings.inside.self_fence_seconds}")
    folder = settings.data_dir.absolute()
    commands = supervision.commands(folder, cluster.url, nodes, flags)
    return supervision.Agents(commands, folder / "nodes", RealClock())


async def _starts(cluster: embedded.Cluster, settings: embedded.Settings, stop: _Stop) -> bool:
    """Start; False if the process is told to end before that is done."""
    starting = asyncio.ensure_future(_start(cluster, settings))
    waiting = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        starting.cancel()  # which does nothing once it is done
        await asyncio.wait({starting})
    if not starting.cancelled():
        await starting  # it may have failed
    if stop.is_interrupt:
        raise click.exceptions.Abort
    return not stop.is_set()


async def _start(cluster: embedded.Cluster, settings: embedded.Settings) -> None:
    try:
        await cluster.start()
    except OSError as error:
        where = f"{settings.bind_address}:{settings.port}" if settings.port else settings.data_dir
        raise UsageError(f"cannot start at {where}: {error.strerror or error}") from error
