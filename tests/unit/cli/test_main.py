# SPDX-License-Identifier: Apache-2.0
"""The command line: what it says, and how it ends."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import refloat
from refloat.app import embedded
from refloat.base import log
from refloat.cli import commands, main, up
from tests.cases import cases


def run(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    """The exit code of a command, which leaves this process' logs alone."""
    monkeypatch.setattr(sys, "argv", ["refloat", *argv])
    monkeypatch.setattr(log, "setup", lambda *_args, **_more: None)
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.parametrize("argument", ["version", "--version"])
def test_version_names_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argument: str
) -> None:
    assert run(monkeypatch, argument) == 0
    shown = capsys.readouterr().out
    assert re.fullmatch(rf"refloat {re.escape(refloat.__version__)} \(Kubernetes API .+\)\n", shown)


def test_without_a_command_it_shows_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch) == 2
    assert capsys.readouterr().err.startswith("Usage: refloat")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert run(monkeypatch, flag) == 0
    shown = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert re.search(rf"^  {name} ", shown, re.MULTILINE)


@pytest.mark.parametrize("name", list(commands.COMMANDS))
def test_every_command_has_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert run(monkeypatch, name, "--help") == 0
    assert "Usage: refloat" in capsys.readouterr().out


@cases(
    "argv told",
    {
        "no command": (["nonsense"], "No such command 'nonsense'"),
        "no option": (["up", "--nonsense"], "(see 'refloat up --help')"),
        "no port": (["up", "--port", "99999"], "99999"),
        "no node": (["node", "crash"], "(see 'refloat node crash --help')"),
        "no file": (["policy", "convert", "x"], "No such file"),
        "no file but a folder": (["policy", "convert", "."], "Is a directory"),
        "no controller": (["up", "--controllers", "nope"], "unknown controller 'nope'"),
        "no address": (["up", "--bind-address", "here"], "'here' is not an IP address"),
        "no gate": (["up", "--feature-gates", "Nope=true"], "unknown feature gate 'Nope'"),
        "shorter than a lease": (
            ["up", "--self-fence-seconds", "39"],
            "--self-fence-seconds: 39 is less than the 40 s for which a node's lease is good",
        ),
        "shorter than a fast lease": (
            ["agent", "--fast", "--self-fence-seconds", "3"],
            "--self-fence-seconds: 3 is less than the 4 s",
        ),
        "no configuration": (["up", "--config", "none.yaml"], "cannot be read"),
    },
)
def test_wrong_use_ends_with_two_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    argv: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    data = ["--data-dir", str(tmp_path / "data")] if argv[0] == "up" else []
    assert run(monkeypatch, *argv, *data) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert re.fullmatch("refloat: .+[^.]\n", captured.err)
    assert captured.out == ""
    assert not (tmp_path / "data").exists()


def test_gates_of_the_command_line_go_over_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "apiVersion: config.refloat.dev/v1alpha1\nkind: Configuration\n"
        "featureGates: {TaintForceEviction: true, FailureRecoveryPolicy: true}\n"
    )
    seen = []

    async def note(settings: embedded.EmbeddedSettings, nodes: int, flags: list[str]) -> None:
        seen.append(settings.gates)

    monkeypatch.setattr(up, "_run", note)
    flags = ["--config", str(path), "--feature-gates", "TaintForceEviction=false"]
    assert run(monkeypatch, "up", "--data-dir", str(tmp_path), *flags) == 0
    (gates,) = seen
    assert not gates.enabled("TaintForceEviction")
    assert gates.enabled("FailureRecoveryPolicy")


@cases(
    "flags want",
    {
        "one if nothing is said": ([], 1),
        "none if that is said": (["--nodes", "0"], 0),
        "so many": (["--nodes", "3"], 3),
        "none beside simulated ones": (["--simulated-nodes", "2"], 0),
        "one if nothing is simulated": (["--simulated-nodes", "0"], 1),
        "both if both are said": (["--simulated-nodes", "2", "--nodes", "1"], 1),
    },
)
def test_a_cluster_has_one_node_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], want: int
) -> None:
    seen = []

    async def note(settings: embedded.EmbeddedSettings, nodes: int, flags: list[str]) -> None:
        seen.append(nodes)

    monkeypatch.setattr(up, "_run", note)
    assert run(monkeypatch, "up", "--data-dir", str(tmp_path), *flags) == 0
    assert seen == [want]


@pytest.mark.parametrize(("text", "want"), [("::1", "::1"), ("127.0.0.1", "127.0.0.1")])
def test_address_is_taken(text: str, want: str) -> None:
    assert up.check_address(text) == want


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "refloat", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"refloat {refloat.__version__} ")
