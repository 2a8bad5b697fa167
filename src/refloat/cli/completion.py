# SPDX-License-Identifier: Apache-2.0
"""`refloat completion`"""

import click
from click import shell_completion

# The shells that click writes a script for.
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, /, *, shell: str) -> None:
    """Print the script with which a shell completes the arguments of refloat.

    The shell completes commands, demos, feature gates, nodes, and the Jobs and
    pods of the cluster in KUBECONFIG. To install:

    \b
      refloat completion bash > ~/.local/share/bash-completion/completions/refloat
      refloat completion zsh > ~/.zfunc/_refloat    # a folder of $fpath
      refloat completion fish > ~/.config/fish/completions/refloat.fish

    For the current bash alone: source <(refloat completion bash)
    """
    kind = shell_completion.get_completion_class(shell)
    assert kind is not None, shell
    root = ctx.find_root().command
    # Not `source`, which runs bash to check its version: the script is for another machine, too.
    script = kind(root, {}, "refloat", "_REFLOAT_COMPLETE")
    click.echo(script.source_template % script.source_vars())
