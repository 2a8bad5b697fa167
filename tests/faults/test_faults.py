# SPDX-License-Identifier: Apache-2.0
"""Jobs keep their promises while real processes and their links fail, one fault at a time.

One cluster plays all short scenarios of a kind, because the processes take most of the
time; `make faults` has the long ones and more seeds.
"""

from pathlib import Path

import pytest

from tests.faults.__main__ import replay
from tests.faults.fault_scenarios import SCENARIOS, FaultScenario
from tests.faults.processes import FaultCluster, running
from tests.faults.workload import workload

# The few random faults are short; they stop and kill the server, and kill a keeper.
SEED = 25


@pytest.mark.timeout(1800)  # a hang, not a slow machine
@pytest.mark.parametrize("manager", [False, True], ids=["embedded", "manager"])
def test_faults_break_no_promise_to_jobs(manager: bool, tmp_path: Path) -> None:
    scenarios = [each for each in SCENARIOS.values() if each.manager == manager and not each.long]
    with running(tmp_path, manager=manager) as cluster:
        failures = [failure for each in scenarios if (failure := _failure(each, cluster))]
    assert not failures, "\n".join(failures)


def _failure(each: FaultScenario, cluster: FaultCluster) -> str:
    """The violations of a scenario and the replay command; empty without violations."""
    try:
        with workload(cluster, each.name) as load:
            each.play(load, SEED)
    except AssertionError as error:
        return f"{each.name}: {error}\n  again: {replay(each.name, SEED)}"
    return ""
