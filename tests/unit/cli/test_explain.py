# SPDX-License-Identifier: Apache-2.0
from refloat.cli import explain
from refloat.explain.account import Account, Point


def test_an_account_fits_a_terminal() -> None:
    points = (Point("recovery", "it will be made to fail " * 9), Point("node", "n1"))
    lines = explain.render(Account("pod ml/train-0", points))
    assert lines[0] == "pod ml/train-0"
    assert lines[-1] == "  node      n1"
    assert all(len(line) <= explain.WIDTH for line in lines)
    assert all(line.startswith(" " * 12) for line in lines[2:-1])
