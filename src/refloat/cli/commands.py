# SPDX-License-Identifier: Apache-2.0
"""The `refloat` command and the table of its subcommands."""

import importlib
import sys

import click

from refloat.base.errors import RefloatError, UsageError
from refloat.cli import interrupts

# command -> (module, one line for --help)
COMMANDS = {
    "up": ("refloat.cli.up", "Run a Kubernetes-compatible cluster on this machine."),
    "manager": ("refloat.cli.manager", "Run the controllers on a Kubernetes cluster."),
    "agent": ("refloat.cli.agent", "Join this machine to a Kubernetes cluster as a node."),
    "node": ("refloat.cli.node", "Make a node of the embedded cluster fail, or return."),
    "explain": ("refloat.cli.explain", "Say why a pod or a node is where it is."),
    "delete": ("refloat.cli.delete", "Delete a pod, and say why."),
    "policy": ("refloat.cli.policy", "Convert failure policies, without a cluster."),
    "demo": ("refloat.cli.demo", "Play a story on a cluster of its own, and show it."),
    "bench": ("refloat.cli.bench", "Measure Refloat on this machine."),
    "version": ("refloat.cli.version", "Print the version."),
}


class _Lazy(click.Group):
    """Knows its commands by name and imports them when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with interrupts.that_end():
            module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Start with: refloat up, or refloat demo. 'refloat COMMAND --help' tells more.",
)
def refloat() -> None:
    """Failure recovery for Kubernetes batch Jobs.

    Decides what a pod's failure means for its Job, when a replacement may
    start, and how work comes free when a node dies.
    """


def run() -> None:
    """Run the command; exit 0 when done, 1 for a negative answer, 2 for wrong use."""
    try:
        refloat.main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(interrupts.EXIT_CODE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # the help is what was asked for
        sys.exit(2)
    except click.ClickException as error:
        _tell(f"{error.format_message().removesuffix('.')}{_hint(error)}")
        sys.exit(2)
    except RefloatError as error:
        _tell(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _hint(error: click.ClickException) -> str:
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    return "" if ctx is None else f" (see '{ctx.command_path} --help')"


def _tell(text: str) -> None:
    """In one line, whatever was quoted: whoever reads logs reads them by lines."""
    click.echo(f"refloat: {' '.join(line.strip() for line in text.splitlines())}", err=True)
