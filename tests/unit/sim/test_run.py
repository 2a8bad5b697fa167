# SPDX-License-Identifier: Apache-2.0
"""Traces, streams of chance, and the decorator that tests are written with."""

import os
from pathlib import Path

import pytest

from refloat.sim.run import Sim, run, stream
from refloat.sim.trace import Trace
from tests import virtual as virtual_module
from tests.cases import cases
from tests.virtual import ONLY, seeds, virtual


def _trace(*lines: tuple[float, str]) -> Trace:
    times = iter([when for when, _ in lines])
    trace = Trace(lambda: next(times))
    for _, text in lines:
        trace.add(text)
    return trace


def test_equal_traces_have_equal_digests() -> None:
    lines = [(0.0, "begun"), (1.5, "ended")]
    assert _trace(*lines).digest() == _trace(*lines).digest()
    assert str(_trace(*lines)) == "    0.000000 begun\n    1.500000 ended"


@cases(
    "other",
    {
        "another time": [(0.0, "begun"), (1.6, "ended")],
        "another text": [(0.0, "begun"), (1.5, "failed")],
        "another order": [(1.5, "ended"), (0.0, "begun")],
        "a line less": [(0.0, "begun")],
        "two lines in one": [(0.0, "begun\n1.5 'ended'")],
    },
)
def test_different_traces_have_different_digests(other: list[tuple[float, str]]) -> None:
    assert _trace(*other).digest() != _trace((0.0, "begun"), (1.5, "ended")).digest()


def test_a_digest_is_the_same_on_every_machine() -> None:
    """`printf "0.1 'begun'\\n1.5 'ended'\\n" | sha256sum`"""
    assert _trace((0.1, "begun"), (1.5, "ended")).digest().startswith("fb92de45")


def test_a_stream_of_chance_is_told_by_its_seed_and_its_purpose() -> None:
    first = {stream(seed, purpose).uid() for seed in range(10) for purpose in ("order", "faults")}
    again = {stream(seed, purpose).uid() for seed in range(10) for purpose in ("order", "faults")}
    assert first == again
    assert len(first) == 20


def test_a_program_is_given_its_seed_and_chance_from_it() -> None:
    async def main(sim: Sim) -> tuple[int, str]:
        return sim.seed, sim.rand.uid()

    assert run(main, seed=4) == run(main, seed=4)
    assert run(main, seed=4)[1] != run(main, seed=5)[1]


@virtual()
async def test_a_virtual_test_may_use_fixtures(sim: Sim, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    await sim.clock.sleep(3600)


def test_a_failing_virtual_test_says_how_to_see_it_again() -> None:
    ran: list[int] = []

    @virtual(seeds=10)
    async def fails_at_three(sim: Sim) -> None:
        ran.append(sim.seed)
        assert sim.seed != 3

    with pytest.raises(AssertionError) as error:
        fails_at_three()
    assert ran == [0, 1, 2, 3]
    [_, again] = error.value.__notes__
    assert again.startswith(f"again: {ONLY}=3 pytest 'tests/unit/sim/test_run.py::test_a_failing")


def test_one_seed_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ONLY, raising=False)
    assert list(seeds(3)) == [0, 1, 2]
    monkeypatch.setitem(os.environ, ONLY, "17")
    assert list(virtual_module.seeds(3)) == [17]
