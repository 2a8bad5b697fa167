# SPDX-License-Identifier: Apache-2.0
"""`refloat policy`"""

import textwrap
from typing import Any, TextIO

import click
import yaml

from refloat.api import gojson, goyaml
from refloat.base.errors import RefloatError, UsageError
from refloat.cli import output
from refloat.config import policy_document
from refloat.policy.job import policy_conversion

WIDTH = 79


@click.group()
def command() -> None:
    """Convert failure policies of Jobs, without a cluster."""


@command.command(short_help="Convert between podFailurePolicy and backoffPolicy.")
@click.argument("file", type=click.File())
@click.option(
    "--to",
    type=click.Choice(policy_document.KINDS),
    help="The policy to write. [default: the other one; for other spellings of the KEP, "
    "backoffPolicy]",
)
def convert(file: TextIO, to: policy_document.Kind | None) -> None:
    """Convert a podFailurePolicy to a backoffPolicy, or back.

    FILE contains a Job or a policy alone, in YAML or JSON; - is the standard
    input. The command prints the converted document, and a warning on the
    standard error for each part that the result cannot express. Exit code: 1 if
    no policy of the other kind has the same effect. Example:

    \b
      refloat policy convert job.yaml > converted.yaml
    """
    try:
        document, conversion = policy_document.convert(_read(file), to)
        text = output.as_yaml(document)
    except RecursionError:
        raise UsageError(f"{file.name}: nested too deeply") from None
    except policy_conversion.InvalidPolicy as problem:
        raise UsageError(f"{file.name}: {problem}") from None
    except policy_conversion.NotConvertible as problem:
        raise RefloatError(f"{file.name}: cannot be converted: {problem}") from None
    for warning in conversion.warnings:
        lines = textwrap.wrap(
            f"warning: {warning}",
            WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        click.echo("\n".join(lines), err=True)
    click.echo(text, nl=False)


def _read(file: TextIO) -> Any:
    try:
        text = file.read()
        # Events, because building the values would recurse as deep as the text.
        events = yaml.parse(text, Loader=yaml.CSafeLoader)
        if sum(isinstance(event, yaml.DocumentStartEvent) for event in events) != 1:
            raise UsageError(f"{file.name}: expected one document")
        value, repeated = goyaml.parse(text.encode())
    except UnicodeDecodeError:
        raise UsageError(f"{file.name}: is not UTF-8 text") from None
    except yaml.reader.ReaderError as problem:
        raise UsageError(f"{file.name}: {problem.reason}") from None
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        # Lines and columns start at 1, as in editors.
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UsageError(f"{file.name}: {where}{problem.problem}") from None
    except goyaml.YamlProblem as problem:
        raise UsageError(f"{file.name}: {problem}") from None
    if repeated:
        raise UsageError(f"{file.name}: {'; '.join(repeated)}")
    return gojson.plain(value)
