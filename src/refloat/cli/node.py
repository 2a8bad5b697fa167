# SPDX-License-Identifier: Apache-2.0
"""`refloat node`"""

from pathlib import Path

import click

from refloat.app import control
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.cli import options

_TOLD = {
    "crash": "is off: its pods are gone with it",
    "freeze": "is silent: its agent does nothing, its pods run on",
    "partition": "is cut off: its agent goes on with what it knows",
    "shutdown": "shuts down: it ends its pods with their grace, and goes off",
    "heal": "is back",
}


@click.group()
def command() -> None:
    """Make a node of the embedded cluster fail, or return.

    The node says nothing any more; what the cluster makes of that is what you
    want to see: watch it with `kubectl get nodes,pods -w`. With `--fast`,
    `refloat up` notices about ten times sooner.
    """


def _add(verb: str, text: str) -> None:
    @command.command(verb, help=text)
    @click.argument("name")
    @options.data_dir
    def run(name: str, data_dir: Path) -> None:
        _do(verb, name, data_dir)


def _do(verb: str, name: str, data_dir: Path, **more: bool) -> None:
    control.ask(data_dir.expanduser(), {"do": verb, "node": name, **more})
    click.echo(f"node {name} {_TOLD[verb]}")


_add("crash", "Switch a node off, with all that runs on it.")
_add("freeze", "Stop a node's agent; its containers run on.")
_add("partition", "Cut a node off from the API server.")


@command.command()
@click.argument("name")
@options.data_dir
@click.option(
    "--force-evict",
    is_flag=True,
    help="When it is off, say so with a taint: its pods and volumes are free at once.",
)
def shutdown(name: str, data_dir: Path, force_evict: bool) -> None:
    """Shut a node of --nodes down: its pods end with their grace."""
    _do("shutdown", name, data_dir, forceEvict=force_evict)
    if force_evict:
        from refloat.app import powering  # noqa: PLC0415 - the others ask nothing of the API

        options.run(powering.say_that_it_is_off(data_dir.expanduser(), name, RealClock(), Rand()))
        click.echo(f"node {name} is off, and has the taint {powering.SHOWN}")


_add("heal", "Bring a node back, whatever is the matter with it.")
