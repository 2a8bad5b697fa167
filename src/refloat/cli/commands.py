# SPDX-License-Identifier: Apache-2.0
"""The `refloat` command and the table of all subcommands."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from refloat.base.errors import RefloatError, UsageError
from refloat.cli import bash_completion, ctrl_c

# command -> (module, one line for --help)
COMMANDS = {
    "up": ("refloat.cli.up", "Run a Kubernetes-compatible cluster on this machine."),
    "manager": ("refloat.cli.manager", "Run the controllers on a Kubernetes cluster."),
    "agent": ("refloat.cli.agent", "Join this machine to a Kubernetes cluster as a node."),
    "node": ("refloat.cli.node", "Make a node of `refloat up` fail, or bring it back."),
    "explain": ("refloat.cli.explain", "Show why a Job, pod or node is in its state."),
    "doctor": ("refloat.cli.doctor", "Check a whole cluster: what is stuck, lost or at risk."),
    "mcp": ("refloat.cli.mcp", "Offer explain and doctor to programs, over stdio (MCP)."),
    "delete": ("refloat.cli.delete", "Delete a pod with a reason for its Job's failure policy."),
    "policy": ("refloat.cli.policy", "Convert failure policies, without a cluster."),
    "demo": ("refloat.cli.demo", "Watch a failure and its recovery on a temporary cluster."),
    "bench": ("refloat.cli.bench", "Measure Refloat on this machine."),
    "completion": ("refloat.cli.completion", "Print the completion script of a shell."),
    "version": ("refloat.cli.version", "Print the version."),
}

# A shell asks for completions by setting one of these: click derives it from the program's name.
COMPLETION_VARIABLES = ("_REFLOAT_COMPLETE", "_KUBECTL_REFLOAT_COMPLETE")

_START = """
\b
Start here:
  refloat demo       a pod hangs on a lost node; Refloat frees the Job (30 s)
  refloat up         a cluster on this machine, for kubectl and other clients
  refloat COMMAND --help
"""


class _LazyGroup(click.Group):
    """Imports the module of a command when the command is called."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        with _quiet_abort():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _quiet_abort():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands from the table, because their modules take long to import."""
        commands = [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*commands, *options]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with ctrl_c.quiet_exit():
            module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@contextlib.contextmanager
def _quiet_abort() -> Iterator[None]:
    """Turn Ctrl-C into click's own error, before click prints an empty line for Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise click.Abort from error


def _print_version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        from refloat.cli import version  # noqa: PLC0415 - loaded only when needed

        click.echo(version.text())
        ctx.exit()


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog=_START,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def refloat() -> None:
    """Failure recovery for Kubernetes batch Jobs.

    Refloat decides what a pod's failure means for its Job and when the
    replacement may start, and frees the Job's work when a node dies.
    """


def run() -> None:
    """Run the command; exit with 0 for success, 1 for an error, 2 for wrong use."""
    if any(os.environ.get(name) for name in COMPLETION_VARIABLES):
        # A completion writes nothing between the words that the user types.
        with open(os.devnull, "w") as nothing:  # noqa: PTH123 - pathlib is not imported here
            os.dup2(nothing.fileno(), 2)
        bash_completion.register()
    try:
        refloat.main(standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(ctrl_c.EXIT_CODE)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # prints the help
        sys.exit(2)
    except click.ClickException as error:
        ctx = error.ctx if isinstance(error, click.UsageError) else None
        hint = "" if ctx is None else f" (see '{ctx.command_path} --help')"
        _print_error(f"{error.format_message().removesuffix('.')}{hint}")
        sys.exit(2)
    except RefloatError as error:
        _print_error(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


def _print_error(text: str) -> None:
    """Print one line, even if the text quotes several: logs are read by lines."""
    click.echo(f"refloat: {' '.join(line.strip() for line in text.splitlines())}", err=True)
