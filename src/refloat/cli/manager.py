# SPDX-License-Identifier: Apache-2.0
"""`refloat manager`"""

import asyncio
from pathlib import Path

import click

from refloat.app import controllers as controller_table
from refloat.app import manager
from refloat.base import gates, log, process
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import options
from refloat.runtime import serving

# How often it looks whether the caches are filled, which nobody waits for.
_LOOK_SECONDS = 0.5


@click.command()
@options.kubeconfig
@options.context
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Act in this namespace only; may be given several times. [default: all]",
)
@options.config("A configuration file; taken up again when it changes.")
@options.feature_gates
@options.controllers
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Let one of several managers act, by a Lease.",
)
@click.option("--kube-api-qps", type=click.FloatRange(min=0), default=20.0, show_default=True)
@click.option("--kube-api-burst", type=click.IntRange(min=1), default=30, show_default=True)
@click.option(
    "--metrics-bind-address",
    default="127.0.0.1:0",
    show_default=True,
    help="Where /metrics and /debug/caches are served; 0 for nowhere.",
)
@click.option(
    "--health-probe-bind-address",
    default="127.0.0.1:0",
    show_default=True,
    help="Where /healthz and /readyz are served; 0 for nowhere.",
)
@options.log_level("info")
@options.log_format
def command(  # one parameter for each option
    *,
    kubeconfig: Path | None,
    context: str,
    namespaces: tuple[str, ...],
    config_file: Path | None,
    feature_gates: str,
    controllers: str,
    leader_elect: bool,
    kube_api_qps: float,
    kube_api_burst: int,
    metrics_bind_address: str,
    health_probe_bind_address: str,
    log_level: str,
    log_format: log.Format,
) -> None:
    """Run the controllers on the cluster that the kubeconfig names.

    Takes care of Jobs that say `managedBy: refloat.dev/job-controller`, and of
    no others. With the gate FailureRecoveryPolicy it also frees pods that hang
    on lost nodes, where they opted in; with TaintForceEviction those of nodes
    that somebody says are down. Ends with 0 on Ctrl-C or SIGTERM, with 1 when
    it loses its Lease.
    """
    log.setup(log_format, level=log_level)
    chosen = controller_table.chosen(controllers, among=controller_table.ON_KUBERNETES)
    flags = gates.parse(feature_gates)
    gates.Gates(flags)  # unknown ones are told before anything starts
    settings = manager.Settings(
        controllers=chosen,
        kubeconfig=kubeconfig,
        context=context,
        namespaces=namespaces,
        config=config_file,
        gate_flags=flags,
        leader_elect=leader_elect,
        qps=kube_api_qps,
        burst=kube_api_burst,
        metrics_at=serving.parse_address(metrics_bind_address, "--metrics-bind-address"),
        health_at=serving.parse_address(health_probe_bind_address, "--health-probe-bind-address"),
    )
    options.run(_run(settings))


async def _run(settings: manager.Settings) -> None:
    running = manager.ClusterManager(settings, RealClock(), Rand())
    options.on_stop(running.stop)
    click.echo(f"managing {running.server}")
    work = asyncio.ensure_future(running.run())
    while not work.done() and not running.endpoints.addresses:
        await asyncio.wait([work], timeout=0.01)
    for what, (host, port) in running.endpoints.addresses.items():
        click.echo(f"  {what} at http://{host}:{port}")
    while not work.done() and not running.synced:
        await asyncio.wait([work], timeout=_LOOK_SECONDS)
    process.settle()
    await work
