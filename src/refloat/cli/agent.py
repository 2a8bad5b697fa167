# SPDX-License-Identifier: Apache-2.0
"""`refloat agent`"""

import ipaddress
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from refloat.api import names
from refloat.base import gates, log, process
from refloat.base.clock import RealClock
from refloat.base.errors import UsageError
from refloat.base.rand import Rand
from refloat.cli import eviction_options, options

if TYPE_CHECKING:
    from refloat.agent.process.images import ImageSettings
    from refloat.app import agent

_NOT_ROOT = (
    "refloat: not root: the agent refuses pods; with --trust-pods they run, with all rights of "
    "this user"
)


@click.command()
@options.kubeconfig
@options.context
@click.option(
    "--name",
    default="",
    help="The node's name. [default: this machine's; with --simulated-nodes, node]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=options.DEFAULT_DATA_DIR,
    show_default=True,
    help="The node keeps its state in nodes/NAME of this directory.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="An IP address of this machine that the API server can reach, for logs.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port at this address. [default: a free one]",
)
@click.option(
    "--client-ca-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="The authority that signed the API server's client certificate. [default: the "
    "kubeconfig's authority]",
)
@click.option(
    "--accept-all-pods",
    is_flag=True,
    help="Run all pods, not only those that tolerate the node's taint. Each user who may create "
    "pods then runs commands on this machine.",
)
@click.option(
    "--trust-pods",
    is_flag=True,
    help="Run pods although the agent is not root. Containers then have all rights of its user.",
)
@click.option(
    "--images",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with the images that are commands, are missing, or are slow to pull.",
)
@click.option(
    "--pod-manifest-path",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder of static pods (*.yaml, *.json), which run here also without the API server.",
)
@eviction_options.options
@click.option(
    "--end-pods",
    is_flag=True,
    help="End all pods on Ctrl-C and SIGTERM, as at a shutdown of the machine.",
)
@click.option(
    "--fast",
    is_flag=True,
    help="Renew the Lease ten times as often, for a cluster of `refloat up --fast`.",
)
@options.self_fence_seconds
@options.feature_gates_alone
@click.option(
    "--simulated-nodes",
    type=click.IntRange(min=1),
    help="Join this number of simulated nodes instead: no container runs there; annotations of a "
    "pod set when and how the pod ends.",
)
@options.log_level("warning")
@options.log_format
def command(  # one parameter for each option
    *,
    kubeconfig: Path | None,
    context: str,
    name: str,
    data_dir: Path,
    address: str,
    port: int,
    client_ca_file: Path | None,
    accept_all_pods: bool,
    trust_pods: bool,
    images: Path | None,
    pod_manifest_path: Path | None,
    end_pods: bool,
    fast: bool,
    self_fence_seconds: int | None,
    feature_gates: str,
    simulated_nodes: int | None,
    log_level: str,
    log_format: log.Format,
    **pressures: Any,
) -> None:
    """Join this machine to a Kubernetes cluster as a node, until Ctrl-C.

    Containers are processes of this machine. They run on when the agent ends;
    the next agent with the same --data-dir and --name finds them. The agent
    takes only pods that tolerate the key of the taint refloat.dev/process-runtime.

    With --simulated-nodes N the nodes NAME-0, NAME-1 and so on are simulated.
    """
    log.setup(log_format, level=log_level)
    fence = options.check_self_fence(self_fence_seconds, fast=fast)
    flags = gates.Gates(gates.parse(feature_gates))
    if simulated_nodes:
        shared = {"gates": flags, "fast": fast, "self_fence_seconds": fence}
        options.run(_simulate(kubeconfig, context, name or "node", simulated_nodes, **shared))
        return
    from refloat.app import agent  # noqa: PLC0415 - not needed for simulated nodes

    node = check_name(name or platform.node().lower())
    settings = agent.AgentSettings(
        name=node,
        folder=data_dir.expanduser().absolute() / "nodes" / node,
        kubeconfig=kubeconfig,
        context=context,
        gates=flags,
        address=check_address(address),
        port=port,
        client_authority=client_ca_file,
        accept_all_pods=accept_all_pods,
        trust_pods=trust_pods,
        images=_images(images),
        manifests=pod_manifest_path and pod_manifest_path.expanduser().absolute(),
        end_pods=end_pods,
        fast=fast,
        self_fence_seconds=fence,
        eviction=eviction_options.eviction(pressures),
        shutdown=eviction_options.shutdown(pressures),
    )
    options.run(_run(agent.Agent(settings, RealClock(), Rand()), node, trust_pods=trust_pods))


def _images(path: Path | None) -> "ImageSettings":
    from refloat.agent.process import image_file  # noqa: PLC0415 - not needed for simulated nodes
    from refloat.agent.process.images import ImageSettings  # noqa: PLC0415

    return ImageSettings() if path is None else image_file.read(path)


def check_name(name: str, flag_value: str = "") -> str:
    """Refuse a name that the API server would refuse for a node."""
    mistakes = names.dns_subdomain(name)
    if mistakes:
        raise UsageError(f"--name {flag_value or name!r}: {mistakes[0]}")
    return name


def check_address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"--address {text!r}: not an IP address") from error
    return text


async def _run(running: "agent.Agent", name: str, *, trust_pods: bool) -> None:
    if not trust_pods and os.geteuid() != 0:
        click.echo(_NOT_ROOT, err=True)
    options.on_stop(running.stop)
    click.echo(f"node {name} on {running.server}")
    await running.run()


async def _simulate(
    kubeconfig: Path | None, context: str, prefix: str, count: int, **shared: Any
) -> None:
    from refloat.app import simulated_nodes  # noqa: PLC0415 - not needed for one node

    process.allow_many_files()
    check_name(f"{prefix}-0", repr(prefix))
    settings = simulated_nodes.ClusterNodesSettings(
        kubeconfig=kubeconfig, context=context, prefix=prefix, simulated_nodes=count, **shared
    )
    running = simulated_nodes.ClusterNodes(settings, RealClock(), Rand())
    options.on_stop(running.stop)
    click.echo(f"{count} simulated nodes on {running.server}")
    await running.run()
