# SPDX-License-Identifier: Apache-2.0
"""Output for machines: the option, and JSON and YAML with the same meaning.

kubectl and other Go programs read the YAML. Their rules for strings differ from
PyYAML's: PyYAML writes the string `1e3` without quotes, and Go reads a number.
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
    help="Output format: table for people, json and yaml for programs.",
)


def show(value: Any, form: Literal["json", "yaml"]) -> None:
    """Print a value of JSON types."""
    click.echo(as_yaml(value) if form == "yaml" else json.dumps(value, indent=2) + "\n", nl=False)


def show_list(entries: Sequence[tuple[str, str]], key: str, form: Form) -> None:
    """Print names with a line of text each; in JSON and YAML the text has this key."""
    if form != "table":
        show([{"name": name, key: text} for name, text in entries], form)
        return
    width = max(len(name) for name, _ in entries)
    for name, text in entries:
        click.echo(f"{name:<{width}}  {text}")


def as_yaml(value: Any) -> str:
    """YAML in which Kubernetes reads every string as that string."""
    text: str = yaml.dump(value, Dumper=_GoDumper, sort_keys=False, allow_unicode=True)
    return text


class _GoDumper(yaml.SafeDumper):
    """Quotes each string that PyYAML or Go would read as something else."""


# Line ends that readers replace by others unless they are escaped.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def _represent_str(dumper: _GoDumper, text: str) -> yaml.ScalarNode:
    style = None if goyaml.is_text(text) else "'"
    if _LINE_ENDS.search(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_GoDumper.add_representer(str, _represent_str)
