# SPDX-License-Identifier: Apache-2.0
"""The documents are true: commands, links and tables are held to the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from refloat.api import schema
from refloat.base import gates
from refloat.cli import agent, commands, manager, up
from refloat.demo import catalogue
from tests.architecture import sources
from tests.architecture.sources import DOCUMENTS, PACKAGE, ROOT

COMPATIBILITY = (ROOT / "docs" / "compatibility.md").read_text()
APISERVER = (ROOT / "docs" / "apiserver.md").read_text()
README = (ROOT / "README.md").read_text()


@pytest.fixture(params=DOCUMENTS, ids=sources.name)
def document(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of all lines that belong to tables, heads and rules left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if not set(line) <= set("|- ") and not (set(below) <= set("|- ") and below):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            yield [cell.strip() for cell in cells]


def test_links_lead_to_files(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text())
    assert [each for each in targets if not (document.parent / each).exists()] == []


def test_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentions = set(re.findall(r"(?:^|`)make ([a-z]+)", document.read_text(), re.MULTILINE))
    assert mentions - targets == set()


def test_commands_of_refloat_exist(document: Path) -> None:
    mentions = set(re.findall(r"(?:`|bin/)refloat ([a-z]+)", document.read_text()))
    existing = commands.refloat.list_commands(click.Context(commands.refloat))
    assert mentions - set(existing) == set()


def test_stories_that_are_named_exist(document: Path) -> None:
    mentions = set(re.findall(r"`refloat demo ([a-z][a-z-]*)", document.read_text()))
    assert mentions - {each.name for each in catalogue.DEMOS} == set()


def test_the_readme_begins_with_the_two_commands() -> None:
    first = README.split("```")[1]
    assert [line.split("#")[0].strip() for line in first.strip().splitlines()] == [
        "make demo",
        "make test",
    ]


@pytest.mark.parametrize("name", ["README.md", "docs/compatibility.md", "CONTRIBUTING.md"])
def test_the_version_of_kubernetes_is_the_one_that_is_followed(name: str) -> None:
    versions = set(re.findall(r"v1\.\d+\.\d+", (ROOT / name).read_text()))
    assert versions == {schema.kubernetes_version()}


def test_every_row_of_compatibility_has_what_who_and_why() -> None:
    rows = list(_rows(COMPATIBILITY))
    assert len(rows) > 40
    assert [row for row in rows if len(row) != 4 or not all(row)] == []


def test_every_table_of_compatibility_has_the_same_head() -> None:
    sections = COMPATIBILITY.count("\n## ")
    assert (
        COMPATIBILITY.count("| what | Kubernetes | Refloat | why |\n|---|---|---|---|\n")
        == sections
    )


def test_no_row_of_compatibility_stands_twice() -> None:
    subjects = [row[0] for row in _rows(COMPATIBILITY)]
    assert len(subjects) == len(set(subjects))


def test_the_gates_are_told_as_they_are() -> None:
    rows = {row[0].strip("`"): row[1:] for row in _rows(APISERVER) if len(row) == 4}
    want = {
        each.name: ["on" if each.default else "off", each.stage, each.kep] for each in gates.KNOWN
    }
    assert rows == want


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("docs/agent.md", agent.command),
        ("docs/apiserver.md", up.command),
        ("docs/manager.md", manager.command),
    ],
)
def test_the_options_of_a_command_are_told(name: str, command: click.Command) -> None:
    rows = [line for line in (ROOT / name).read_text().splitlines() if line.startswith("| `--")]
    options = {
        option for row in rows for option in re.findall(r"`(--[a-z-]+)", row.split(" | ")[0])
    }
    assert options == {
        option for each in command.params for option in (*each.opts, *each.secondary_opts)
    }


def test_every_package_is_told_in_the_architecture() -> None:
    cells = {row[1] for row in _rows((ROOT / "docs" / "architecture.md").read_text())}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - {each for cell in cells for each in re.findall("`([a-z]+)`", cell)} == set()
