# SPDX-License-Identifier: Apache-2.0
"""One run of all scenarios on an embedded cluster, whose results all tests read.

The tests may be spread over several processes: the first that gets here plays,
the others wait for its results.
"""

import asyncio
import fcntl
from pathlib import Path

import msgspec
import pytest

from tests.e2e import cluster
from tests.scenarios import playing, scenario
from tests.scenarios.playing import ScenarioResult
from tests.scenarios.setting import Setting


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, ScenarioResult]:
    """How each scenario ended on `refloat up`."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent
    file = shared / "scenarios.json"
    with (shared / "scenarios.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_bytes(msgspec.json.encode(_play(own)))
    return msgspec.json.decode(file.read_bytes(), type=dict[str, ScenarioResult])


def _play(folder: Path) -> dict[str, ScenarioResult]:
    with cluster.serving(folder / "scenarios", "--simulated-nodes", "5") as server:
        setting = Setting("embedded", server.kubeconfig)
        return asyncio.run(playing.play(setting, scenario.every(), at_once=200))
