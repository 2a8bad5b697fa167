# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from refloat.cli import explain
from refloat.explain.account import Account, Point
from tests.unit.app.test_nodes import KUBECONFIG
from tests.unit.cli.test_main import run


@pytest.mark.parametrize(
    ("argv", "want"),
    [
        pytest.param(["pod/a/b"], "'pod/a/b': a name may not contain '/'", id="a folder"),
        pytest.param(["node/.."], "'node/..': a name may not be '..'", id="the folder above"),
        pytest.param(["pod/a%2f"], "'pod/a%2f': a name may not contain '%'", id="an escape"),
        pytest.param(
            ["pod/a", "-n", "b/c"], "namespace 'b/c': a name may not contain '/'", id="a namespace"
        ),
        pytest.param(["pod/"], "'pod/': expected pod/NAME or node/NAME", id="no name"),
    ],
)
def test_what_can_be_no_name_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    argv: list[str],
    want: str,
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    assert run(monkeypatch, "explain", *argv, "--kubeconfig", str(file)) == 2
    assert capsys.readouterr().err == f"refloat: {want}\n"


def test_an_account_fits_a_terminal() -> None:
    points = (Point("recovery", "it will be made to fail " * 9), Point("node", "n1"))
    lines = explain.render(Account("pod ml/train-0", points))
    assert lines[0] == "pod ml/train-0"
    assert lines[-1] == "  node      n1"
    assert all(len(line) <= explain.WIDTH for line in lines)
    assert all(line.startswith(" " * 12) for line in lines[2:-1])
