# SPDX-License-Identifier: Apache-2.0
"""`refloat manager`"""

import asyncio
from pathlib import Path

import click

from refloat.app import controller_names, manager
from refloat.base import gates, log, process
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import options
from refloat.runtime import health_server

# How often the command checks whether the caches are filled. No user waits for this.
_POLL_SECONDS = 0.5


@click.command()
@options.kubeconfig
@options.context
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Act in this namespace only; repeat the option for more. [default: all]",
)
@options.config("A configuration file; the manager reloads the file when it changes.")
@options.feature_gates
@options.controllers
@click.option(
    "--leader-elect/--no-leader-elect",
    default=True,
    show_default=True,
    help="Wait for the Lease, so that only one of several managers acts.",
)
@click.option(
    "--kube-api-qps",
    type=click.FloatRange(min=0),
    default=20.0,
    show_default=True,
    help="Requests per second to the API server; 0 for no limit.",
)
@click.option(
    "--kube-api-burst",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="Requests that may go out at once, above that rate.",
)
@click.option(
    "--metrics-bind-address",
    default="127.0.0.1:0",
    show_default=True,
    help="Serve /metrics and /debug/caches at this address; 0 to not serve them.",
)
@click.option(
    "--health-probe-bind-address",
    default="127.0.0.1:0",
    show_default=True,
    help="Serve /healthz and /readyz at this address; 0 to not serve them.",
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
    """Run Refloat's controllers on a Kubernetes cluster.

    The Job controller acts on Jobs with spec.managedBy
    refloat.dev/job-controller only. The feature gate FailureRecoveryPolicy adds
    zombie recovery: pods that hang on a lost node and opted in become Failed.
    The gate TaintForceEviction adds force eviction from nodes that an operator
    declares off with a taint.

    The rights that the manager needs are in examples/manager-rbac.yaml.
    Exit code: 0 after Ctrl-C or SIGTERM, 1 after the loss of the Lease.
    """
    log.setup(log_format, level=log_level)
    flags = gates.parse(feature_gates)
    gates.Gates(flags)  # refuses unknown gates before anything starts
    settings = manager.ClusterManagerSettings(
        controllers=controller_names.select(controllers, among=controller_names.ON_KUBERNETES),
        kubeconfig=kubeconfig,
        context=context,
        namespaces=namespaces,
        config=config_file,
        gate_flags=flags,
        leader_elect=leader_elect,
        qps=kube_api_qps,
        burst=kube_api_burst,
        metrics_at=health_server.parse_address(metrics_bind_address, "--metrics-bind-address"),
        health_at=health_server.parse_address(
            health_probe_bind_address, "--health-probe-bind-address"
        ),
    )
    options.run(_run(settings))


async def _run(settings: manager.ClusterManagerSettings) -> None:
    running = manager.ClusterManager(settings, RealClock(), Rand())
    options.on_stop(running.stop)
    click.echo(f"managing {running.server}")
    work = asyncio.ensure_future(running.run())
    while not work.done() and not running.endpoints.addresses:
        await asyncio.wait([work], timeout=0.01)
    for what, (host, port) in running.endpoints.addresses.items():
        click.echo(f"  {what} at http://{host}:{port}")
    while not work.done() and not running.synced:
        await asyncio.wait([work], timeout=_POLL_SECONDS)
    process.settle()
    await work
