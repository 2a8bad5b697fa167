# SPDX-License-Identifier: Apache-2.0
"""Every scenario holds on the embedded cluster, over HTTP."""

import fnmatch

import pytest

from tests.scenarios import comparing, scenario
from tests.scenarios.playing import ScenarioResult
from tests.scenarios.scenario import Scenario

EVERY = scenario.every()


# The first of them plays them all, on a machine that may be busy.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("each", EVERY, ids=[each.name for each in EVERY])
def test_scenario(each: Scenario, results: dict[str, ScenarioResult]) -> None:
    error = results[each.name].error
    assert not error, error
    assert results[each.name].outcome is not None


def test_each_scenario_says_what_it_is_about() -> None:
    assert [each.name for each in EVERY if not each.told.startswith("behaviour ")] == []


def test_there_are_as_many_scenarios_as_were_promised() -> None:
    assert len(EVERY) >= 60


def test_each_meant_difference_is_of_a_scenario() -> None:
    lines = comparing.meant()
    assert lines
    assert len({each.id for each in lines}) == len(lines)
    for line in lines:
        assert any(fnmatch.fnmatchcase(each.name, line.scenarios) for each in EVERY), line
        assert set(line.settings.split()) <= {"embedded", "managed"}, line
