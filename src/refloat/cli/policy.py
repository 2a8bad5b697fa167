# SPDX-License-Identifier: Apache-2.0
"""`refloat policy`"""

import textwrap
from typing import Any, TextIO

import click
import yaml

from refloat.api import gojson, goyaml
from refloat.base.errors import RefloatError, UsageError
from refloat.cli import output
from refloat.policy import policy_conversion, policy_document

WIDTH = 79


@click.group()
def command() -> None:
    """Convert failure policies, without a cluster."""


@command.command()
@click.argument("file", type=click.File())
@click.option(
    "--to",
    type=click.Choice(policy_document.KINDS),
    help="[default: the other one; for the KEP's other spellings, backoffPolicy]",
)
def convert(file: TextIO, to: policy_document.Kind | None) -> None:
    """Make a podFailurePolicy of a backoffPolicy, or the other way round.

    FILE has a Job, or a policy alone, in YAML or JSON; - is the standard input.
    The result goes to the standard output, and what it cannot say to the
    standard error. Ends with 1 if there is no policy that says the same.
    """
    try:
        made, converted = policy_document.convert(_read(file), to)
        shown = output.as_yaml(made)
    except RecursionError:
        raise UsageError(f"{file.name}: nested too deeply") from None
    except policy_conversion.Invalid as problem:
        raise UsageError(f"{file.name}: {problem}") from None
    except policy_conversion.Refused as problem:
        raise RefloatError(f"{file.name}: cannot be converted: {problem}") from None
    for warning in converted.warnings:
        click.echo(_wrapped(f"warning: {warning}"), err=True)
    click.echo(shown, nl=False)


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _read(file: TextIO) -> Any:
    try:
        text = file.read()
        if _documents(text) != 1:
            raise UsageError(f"{file.name}: expected one document")
        value, repeated = goyaml.parse(text.encode())
    except UnicodeDecodeError:
        raise UsageError(f"{file.name}: is no text") from None
    except yaml.YAMLError as problem:
        raise UsageError(f"{file.name}: {_said(problem)}") from None
    except goyaml.YamlProblem as problem:
        raise UsageError(f"{file.name}: {problem}") from None
    if repeated:
        raise UsageError(f"{file.name}: {'; '.join(repeated)}")
    return gojson.plain(value)


def _documents(text: str) -> int:
    """By the parser's events, which nest as deep as they like."""
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    return sum(isinstance(each, yaml.DocumentStartEvent) for each in events)


def _said(problem: yaml.YAMLError) -> str:
    """In one line, counted as editors count."""
    if isinstance(problem, yaml.reader.ReaderError):
        return str(problem.reason)
    if not isinstance(problem, yaml.MarkedYAMLError) or problem.problem_mark is None:
        return str(problem)
    at = problem.problem_mark
    return f"line {at.line + 1}, column {at.column + 1}: {problem.problem}"
