# SPDX-License-Identifier: Apache-2.0
"""`refloat mcp` without a cluster; tests/e2e/test_mcp.py speaks to the real command."""

import sys
from pathlib import Path
from typing import Any

import pytest

from refloat.cli import mcp
from tests.unit.app.test_simulated_nodes import KUBECONFIG
from tests.unit.cli.test_main import run


def test_without_the_package_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    assert run(monkeypatch, "mcp", "--kubeconfig", str(file)) == 2
    assert "pip install 'refloat[mcp]'" in capsys.readouterr().err


def test_without_a_kubeconfig_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "mcp", "--kubeconfig", str(tmp_path / "none")) != 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "none" in captured.err


def report(rows: int) -> dict[str, Any]:
    return {"jobs": [*range(rows)], "pods": [], "nodes": [], "atRisk": [], "limits": ["a"]}


def test_a_long_report_is_cut_and_says_so() -> None:
    short = mcp.bounded(report(mcp.MAX_ROWS + 7))
    assert short["jobs"] == [*range(mcp.MAX_ROWS)]
    want = "jobs: 7 more are left out; `refloat doctor -o json` has them"
    assert short["limits"] == ["a", want]


def test_a_short_report_is_whole() -> None:
    assert mcp.bounded(report(mcp.MAX_ROWS)) == report(mcp.MAX_ROWS)
