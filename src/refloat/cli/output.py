# SPDX-License-Identifier: Apache-2.0
"""What commands print for machines: one option, and JSON and YAML that mean the same.

YAML is for kubectl and other programs in Go, whose rules for what is a text are
not PyYAML's: left to itself that writes the text `1e3` as a word that Go takes
for a number.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import click
import yaml

from refloat.api import goyaml

Form: TypeAlias = Literal["table", "json", "yaml"]

option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="For people or for machines.",
)


def show(value: Any, form: Literal["json", "yaml"]) -> None:
    """Print what JSON can say."""
    click.echo(as_yaml(value) if form == "yaml" else json.dumps(value, indent=2) + "\n", nl=False)


def listed(named: Sequence[tuple[str, str]], about: str, form: Form) -> None:
    """Print names with a line about each, which machines find under this name."""
    if form != "table":
        show([{"name": name, about: text} for name, text in named], form)
        return
    width = max(len(name) for name, _ in named)
    for name, text in named:
        click.echo(f"{name:<{width}}  {text}")


def as_yaml(value: Any) -> str:
    """YAML in which Kubernetes reads every text as that text."""
    made: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return made


class _Dumper(yaml.SafeDumper):
    """Quotes what is not plainly a text, by PyYAML's rules and by Go's."""


# Ends of lines that readers make others of, unless they are escaped.
_ENDS = re.compile("[\x85\u2028\u2029]")


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if goyaml.is_text(text) else "'"
    if _ENDS.search(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
