# SPDX-License-Identifier: Apache-2.0
"""What a shell offers without a cluster, and the script that asks for that."""

import shutil
import subprocess
from pathlib import Path

import pytest
from click import shell_completion

from refloat.base import gates
from refloat.cli import commands
from refloat.demo import catalogue
from tests.cases import cases
from tests.unit.cli.test_main import run


def completions(line: str) -> list[str]:
    """The words that a shell offers for the last word of the line."""
    *words, last = line.split(" ")
    root = shell_completion.ShellComplete(commands.refloat, {}, "refloat", "_REFLOAT_COMPLETE")
    return [item.value for item in root.get_completions(words, last)]


@cases(
    "line want",
    {
        "all commands": ("", list(commands.COMMANDS)),
        "commands that begin so": ("de", ["delete", "demo"]),
        "a command of a group": ("node f", ["freeze"]),
        "demos": ("demo ", [each.name for each in catalogue.DEMOS]),
        "demos that begin so": ("demo zo", ["zombie"]),
        "shells": ("completion ", ["bash", "zsh", "fish"]),
        "an option": ("--ver", ["--version"]),
        "values of a gate": (
            "up --feature-gates TaintForceEviction=",
            ["TaintForceEviction=true", "TaintForceEviction=false"],
        ),
        "the second gate": (
            "manager --feature-gates A=true,TaintForceEviction=t",
            ["A=true,TaintForceEviction=true"],
        ),
        "a number": ("up --nodes ", []),
    },
)
def test_a_shell_completes(line: str, want: list[str]) -> None:
    assert completions(line) == want


def test_a_shell_completes_all_gates() -> None:
    offered = completions("up --feature-gates ")
    assert {each.partition("=")[0] for each in offered} == {gate.name for gate in gates.KNOWN}


@pytest.mark.parametrize(
    "line", ["explain ", "explain job/", "explain pod x", "delete pod/", "node freeze "]
)
@pytest.mark.parametrize(
    "content", [None, "not: [yaml", "clusters: 7"], ids=["no file", "no YAML", "no kubeconfig"]
)
def test_without_a_cluster_nothing_is_offered_and_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, content: str | None
) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completions(line) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid_and_asks_refloat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert run(monkeypatch, "completion", shell) == 0
    script = capsys.readouterr().out
    assert f"_REFLOAT_COMPLETE={shell}_complete" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True)


def test_another_shell_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "completion", "cmd") == 2
