# SPDX-License-Identifier: Apache-2.0
"""Jobs keep their promises while real processes and their links fail, one fault at a time.

One cluster plays all short scenarios of a kind, because its processes take most of the
time; `make faults` has the long ones and more seeds.
"""

from pathlib import Path

import pytest

from tests.faults.__main__ import replay
from tests.faults.catalogue import SCENARIOS, Scenario
from tests.faults.processes import Cluster, running
from tests.faults.workload import workload

SEED = 7


@pytest.mark.timeout(1800)  # a hang, not a slow machine
@pytest.mark.parametrize("manager", [False, True], ids=["embedded", "manager"])
def test_faults_break_no_promise_to_jobs(manager: bool, tmp_path: Path) -> None:
    chosen = [each for each in SCENARIOS.values() if each.manager == manager and not each.long]
    with running(tmp_path, manager=manager) as cluster:
        failures = [failure for each in chosen if (failure := _failure(each, cluster))]
    assert not failures, "\n".join(failures)


def _failure(each: Scenario, cluster: Cluster) -> str:
    """What a scenario broke, and how to run it again; empty: nothing."""
    try:
        with workload(cluster, each.name) as load:
            each.play(load, SEED)
    except AssertionError as error:
        return f"{each.name}: {error}\n  again: {replay(each.name, SEED)}"
    return ""
