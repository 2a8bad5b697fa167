# SPDX-License-Identifier: Apache-2.0
"""`refloat bench` as a command."""

import json

import click
import pytest
import yaml
from click.testing import CliRunner

from refloat.base.errors import UsageError
from refloat.bench import queue
from refloat.bench.results import Row
from refloat.cli import bench, demo
from refloat.demo.catalogue import DEMOS


@pytest.mark.parametrize(
    ("name", "option", "want"),
    [
        ("queue", "--pods", "--pods 5: only for doctor, job, kubernetes, nodes, zombies"),
        ("job", "--nodes", "--nodes 5: only for nodes"),
    ],
)
def test_a_size_is_refused_where_there_is_none_to_choose(name: str, option: str, want: str) -> None:
    answer = CliRunner().invoke(bench.command, [name, option, "5"])
    assert isinstance(answer.exception, UsageError)
    assert str(answer.exception) == want


def test_each_benchmark_is_listed() -> None:
    answer = CliRunner().invoke(bench.command, ["--list"])
    assert [line.split()[0] for line in answer.output.splitlines()] == list(bench.BENCHMARKS)


LISTS = [(bench.command, list(bench.BENCHMARKS)), (demo.command, [s.name for s in DEMOS])]


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(("command", "names"), LISTS, ids=["bench", "demo"])
def test_machines_can_read_what_is_listed(
    command: click.Command, names: list[str], form: str
) -> None:
    answer = CliRunner().invoke(command, ["--list", "-o", form])
    read = json.loads(answer.output) if form == "json" else yaml.safe_load(answer.output)
    assert [each["name"] for each in read] == names


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_machines_can_read_the_figures(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    async def measure(_: object) -> list[Row]:
        return [Row("keys", 1.5, "1/s")]

    monkeypatch.setattr(queue, "measure", measure)
    answer = CliRunner().invoke(bench.command, ["queue", "-o", form])
    [row] = json.loads(answer.output) if form == "json" else yaml.safe_load(answer.output)
    assert (row["what"], row["value"], row["stock"]) == ("keys", 1.5, None)


def test_a_demo_is_told_to_people_only() -> None:
    answer = CliRunner().invoke(demo.command, ["-o", "json"])
    assert str(answer.exception) == "-o json: only with --list"
