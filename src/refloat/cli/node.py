# SPDX-License-Identifier: Apache-2.0
"""`refloat node`"""

from pathlib import Path

import click

from refloat.app import control_socket
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import completers, options

_EFFECTS = {
    "crash": "is off: its pods are gone",
    "freeze": "is silent: its agent does nothing, its pods run on",
    "partition": "is cut off from the API server: its agent and its pods run on",
    "shutdown": "shuts down: the agent gives the pods their grace periods, then the node is off",
    "heal": "is back",
}


_node_name = click.argument("name", shell_complete=completers.embedded_nodes)


@click.group()
def command() -> None:
    """Make a node of `refloat up` fail, or bring it back.

    The cluster notices a lost node after about 50 s, or 5 s with `refloat up
    --fast`. Watch it with `kubectl get nodes,pods -w`. Examples:

    \b
      refloat node crash n1
      refloat node heal n1

    The cluster is the one of --data-dir, else the one of $KUBECONFIG.
    """


def _add(verb: str, text: str) -> None:
    @command.command(verb, help=text)
    @_node_name
    @options.node_data_dir
    def run(name: str, data_dir: Path | None) -> None:
        _send(verb, name, options.find_data_dir(data_dir))


def _send(verb: str, name: str, data_dir: Path, **parameters: bool) -> None:
    control_socket.ask(data_dir, {"do": verb, "node": name, **parameters})
    click.echo(f"node {name} {_EFFECTS[verb]}")


_add("crash", "Switch a node off: its agent and its containers end.")
_add("freeze", "Stop a node's agent; its containers run on.")
_add("partition", "Cut a node off from the API server.")


@command.command()
@_node_name
@options.node_data_dir
@click.option(
    "--force-evict",
    is_flag=True,
    help="Taint the node when it is off, so that force eviction frees its pods and volumes.",
)
def shutdown(name: str, data_dir: Path | None, force_evict: bool) -> None:
    """Shut a node down: its pods end with their grace periods.

    Only nodes of `refloat up --nodes` can shut down, not simulated nodes.
    """
    folder = options.find_data_dir(data_dir)
    _send("shutdown", name, folder, forceEvict=force_evict)
    if force_evict:
        from refloat.app import declare_off  # noqa: PLC0415 - no other command needs a client

        options.run(declare_off.declare_off(folder, name, RealClock(), Rand()))
        click.echo(f"node {name} is off, and has the taint {declare_off.SHOWN}")


_add("heal", "Bring a node back after any of these failures.")
