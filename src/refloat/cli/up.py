# SPDX-License-Identifier: Apache-2.0
"""`refloat up`"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from refloat.app import controller_names, embedded
from refloat.base import log, process
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import options

if TYPE_CHECKING:
    from refloat.app import agent_supervisor

# One node, so that pods run without any option; none beside simulated nodes.
DEFAULT_NODES = 1

# Names in a message.
MAX_NAMES = 5


@click.command()
@options.data_dir
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The API server's port. [default: the port of the last run, or a free one]",
)
@click.option(
    "--bind-address",
    default="127.0.0.1",
    show_default=True,
    help="The IP address of the API server.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    help="Number of nodes: n1, n2 and so on run containers as processes of this machine. "
    "[default: 1, or 0 with --simulated-nodes]",
)
@click.option(
    "--simulated-nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of simulated nodes: no container runs there; annotations of a pod set when and "
    "how the pod ends.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Shorten the waits of Kubernetes about ten times, to watch a failure without long pauses.",
)
@options.self_fence_seconds
@click.option(
    "--accept-lost-writes",
    is_flag=True,
    help="Start although the store lost acknowledged writes, after damage or from a backup. "
    "Clients then list all objects again.",
)
@options.controllers
@options.config("A configuration file.")
@options.feature_gates
@options.log_format
@options.log_level("warning", "The log level: info logs each write, debug each request.")
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

    The command writes a kubeconfig into the data directory and prints its path.
    kubectl and all other clients of Kubernetes work with it:

    \b
      export KUBECONFIG=~/.local/share/refloat/kubeconfig
      kubectl get nodes

    `refloat node` makes a node fail. With --nodes 0 --controllers none only the
    API server runs.
    """
    log.setup(log_format, level=log_level)
    names = controller_names.select(controllers)
    fence = options.check_self_fence(self_fence_seconds, fast=fast)
    configuration = options.configuration(config_file)
    settings = embedded.EmbeddedSettings(
        data_dir=data_dir.expanduser(),
        port=port,
        bind_address=check_address(bind_address),
        gates=options.merge_gates(configuration, feature_gates),
        configured=configuration,
        selection=controller_names.ControllerSelection(names, simulated_nodes, fast, fence),
        accept_lost_writes=accept_lost_writes,
    )
    if nodes is None:
        nodes = 0 if simulated_nodes else DEFAULT_NODES
    process.allow_many_files()
    process.return_memory()
    flags = [f"--log-level={log_level}", f"--log-format={log_format}"]
    options.run(_run(settings, nodes, flags))


def check_address(text: str) -> str:
    """Refuse an address that is not an IP address."""
    import ipaddress  # noqa: PLC0415 - loaded only when needed

    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise UsageError(f"--bind-address: {text!r} is not an IP address") from error


async def _run(settings: embedded.EmbeddedSettings, nodes: int, flags: list[str]) -> None:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    options.on_signal(signals.put_nowait)
    async with contextlib.AsyncExitStack() as stack:
        cluster = embedded.EmbeddedCluster(settings, RealClock(), Rand())
        stack.push_async_callback(cluster.close)
        start = asyncio.ensure_future(_start(cluster, settings, nodes, flags, stack))
        stop = asyncio.ensure_future(signals.get())
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            start.cancel()  # does nothing once the start is complete
            stop.cancel()
            await asyncio.wait({start, stop})
        if not start.cancelled():
            await start  # raises the error of a start that failed
        if not stop.cancelled():
            if stop.result() == signal.SIGINT:
                raise click.exceptions.Abort
            return
        process.settle()
        click.echo(f"Kubernetes API at {cluster.url}")
        click.echo(f"  export KUBECONFIG={cluster.kubeconfig}")
        click.echo("  kubectl get namespaces")
        if nodes and os.geteuid() != 0:
            click.echo(f"Not root: pods run with all rights of user {os.geteuid()}.")
        click.echo("Ctrl-C stops the cluster; its state stays in the data directory.")
        await signals.get()


def _agents(
    cluster: embedded.EmbeddedCluster,
    settings: embedded.EmbeddedSettings,
    nodes: int,
    flags: list[str],
) -> "agent_supervisor.Agents":
    import ipaddress  # noqa: PLC0415 - loaded only when needed

    from refloat.app import agent_supervisor  # noqa: PLC0415 - loaded only with nodes

    flags = [*flags, f"--feature-gates={settings.gates!r}"]
    # At another address, users of other machines may create pods, which run commands here.
    if ipaddress.ip_address(settings.bind_address).is_loopback:
        flags.append("--accept-all-pods")
    if settings.selection.fast:
        flags.append("--fast")
    if settings.selection.self_fence_seconds is not None:
        flags.append(f"--self-fence-seconds={settings.selection.self_fence_seconds}")
    folder = settings.data_dir.absolute()
    commands = agent_supervisor.commands(folder, cluster.url, nodes, flags)
    return agent_supervisor.Agents(commands, folder / "nodes", RealClock())


async def _start(
    cluster: embedded.EmbeddedCluster,
    settings: embedded.EmbeddedSettings,
    nodes: int,
    flags: list[str],
    stack: contextlib.AsyncExitStack,
) -> None:
    """Start the cluster and its agents, and wait for its nodes; the stack ends the agents."""
    try:
        await cluster.start()
    except OSError as error:
        where = f"{settings.bind_address}:{settings.port}" if settings.port else settings.data_dir
        raise UsageError(f"cannot start at {where}: {error.strerror or error}") from error
    if nodes:
        agents = _agents(cluster, settings, nodes, flags)
        agents.start()
        cluster.agents = agents
        stack.push_async_callback(agents.close)
    if late := await cluster.wait_for_nodes():
        others = f" and {len(late) - MAX_NAMES} more" if len(late) > MAX_NAMES else ""
        names = f"{', '.join(late[:MAX_NAMES])}{others}"
        text = f"not Ready after 60 s: {names}; the cluster runs without them"
        click.echo(f"refloat: {text}", err=True)
