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
from refloat.cli import options, pressure

if TYPE_CHECKING:
    from refloat.agent.process.images import ImageSettings
    from refloat.app import agent

_NO_PODS = (
    "refloat: not root: pods are refused; with --trust-pods they run, with all rights of this user"
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
    help="What the node keeps is in nodes/NAME of it.",
)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Where the API server asks for logs: an address of this machine that it can reach.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="At which port. [default: a free one]"
)
@click.option(
    "--client-ca-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Whose certificate the API server comes with. [default: the kubeconfig's authority]",
)
@click.option(
    "--accept-all-pods",
    is_flag=True,
    help="Run pods that do not ask for it too: whoever may create one runs commands here.",
)
@click.option(
    "--trust-pods",
    is_flag=True,
    help="Run pods although the agent is not root: containers then have all rights of its user.",
)
@click.option(
    "--images",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that says which images are commands, missing, or slow to pull.",
)
@click.option(
    "--pod-manifest-path",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder of pods (*.yaml, *.json) to run here, also while there is no API server.",
)
@pressure.options
@click.option(
    "--end-pods",
    is_flag=True,
    help="When told to stop, end all pods first, as a machine that is shut down does.",
)
@click.option(
    "--fast", is_flag=True, help="Beat ten times as often, on a cluster that runs with --fast."
)
@options.self_fence_seconds
@options.feature_gates_alone
@click.option(
    "--simulated-nodes",
    type=click.IntRange(min=1),
    help="Join so many nodes instead whose pods run only as an annotation says.",
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
    """Join this machine to the cluster that the kubeconfig names, as a node, until Ctrl-C.

    Containers run as processes of this machine, and go on when the agent ends:
    the next one on the same --data-dir and --name finds them again. Only pods
    that tolerate the taint refloat.dev/process-runtime by its name are taken.

    With --simulated-nodes N the nodes NAME-0, NAME-1 and so on are simulated.
    """
    log.setup(log_format, level=log_level)
    fence = options.check_self_fence(self_fence_seconds, fast=fast)
    chosen = gates.Gates(gates.parse(feature_gates))
    if simulated_nodes:
        shared = {"gates": chosen, "fast": fast, "self_fence_seconds": fence}
        options.run(_simulate(kubeconfig, context, name or "node", simulated_nodes, **shared))
        return
    from refloat.app import agent  # noqa: PLC0415 - simulated nodes do without

    node = _checked(name or platform.node().lower())
    settings = agent.Settings(
        name=node,
        folder=data_dir.expanduser().absolute() / "nodes" / node,
        kubeconfig=kubeconfig,
        context=context,
        gates=chosen,
        address=_address(address),
        port=port,
        client_authority=client_ca_file,
        accept_all_pods=accept_all_pods,
        trust_pods=trust_pods,
        images=_images(images),
        manifests=pod_manifest_path and pod_manifest_path.expanduser().absolute(),
        end_pods=end_pods,
        fast=fast,
        self_fence_seconds=fence,
        eviction=pressure.eviction(pressures),
        shutdown=pressure.shutdown(pressures),
    )
    options.run(_run(agent.Agent(settings, RealClock(), Rand()), node, trust_pods=trust_pods))


def _images(path: Path | None) -> "ImageSettings":
    from refloat.agent.process import image_file  # noqa: PLC0415 - simulated nodes do without
    from refloat.agent.process.images import ImageSettings  # noqa: PLC0415

    return ImageSettings() if path is None else image_file.read(path)


def _checked(name: str, shown: str = "") -> str:
    """Refuse what the cluster would refuse for each node."""
    mistakes = names.dns_subdomain(name)
    if mistakes:
        raise UsageError(f"--name {shown or name!r}: {mistakes[0]}")
    return name


def _address(text: str) -> str:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"--address {text!r}: not an IP address") from error
    return text


async def _run(running: "agent.Agent", name: str, *, trust_pods: bool) -> None:
    if not trust_pods and os.geteuid() != 0:
        click.echo(_NO_PODS, err=True)
    options.on_stop(running.stop)
    click.echo(f"node {name} on {running.server}")
    await running.run()


async def _simulate(
    kubeconfig: Path | None, context: str, prefix: str, count: int, **shared: Any
) -> None:
    from refloat.app import nodes  # noqa: PLC0415 - one node does without

    process.allow_many_files()
    _checked(f"{prefix}-0", repr(prefix))
    settings = nodes.Settings(
        kubeconfig=kubeconfig, context=context, prefix=prefix, simulated_nodes=count, **shared
    )
    running = nodes.ClusterNodes(settings, RealClock(), Rand())
    options.on_stop(running.stop)
    click.echo(f"{count} simulated nodes on {running.server}")
    await running.run()
