# SPDX-License-Identifier: Apache-2.0
"""Feature gates: defaults, overrides, and what is refused."""

import pytest

from refloat.base import gates
from refloat.base.errors import UsageError
from refloat.base.gates import Gates


def test_gates_are_listed_in_order() -> None:
    names = [gate.name for gate in gates.KNOWN]
    assert names == sorted(names)


@pytest.mark.parametrize("gate", gates.KNOWN, ids=lambda gate: gate.name)
def test_alpha_is_off_and_stable_is_on(gate: gates.Gate) -> None:
    assert gate.default is (gate.stage == "stable")
    assert Gates().enabled(gate.name) is gate.default


@pytest.mark.parametrize("gate", gates.KNOWN, ids=lambda gate: gate.name)
@pytest.mark.parametrize("on", [True, False])
def test_every_gate_can_be_switched_either_way(gate: gates.Gate, on: bool) -> None:
    assert Gates({gate.name: on}).enabled(gate.name) is on


def test_unknown_gate_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"unknown feature gate 'Nope'; known are: Failure"):
        Gates({"Nope": True})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", {}),
        ("A=true", {"A": True}),
        ("A=true,B=false", {"A": True, "B": False}),
        (" A=True , B=FALSE ,", {"A": True, "B": False}),
        ("A=true,A=false", {"A": False}),
    ],
)
def test_flag_is_read(text: str, want: dict[str, bool]) -> None:
    assert gates.parse(text) == want


@pytest.mark.parametrize("text", ["A", "A=", "A=yes", "A=1", "=", "A=true=false"])
def test_flag_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected Name=true or Name=false"):
        gates.parse(text)


def test_gates_show_as_the_flag_takes_them() -> None:
    shown = repr(Gates({"TaintForceEviction": True}))
    assert Gates(gates.parse(shown)).enabled("TaintForceEviction")
