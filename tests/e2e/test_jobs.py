# SPDX-License-Identifier: Apache-2.0
"""A Job whose `refloat up` is killed; `tests/scenarios` has the other Jobs."""

from pathlib import Path

from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.scenario.cluster import connected
from refloat.scenario.namespace import ScenarioNamespace
from tests.e2e.cluster import serving


async def test_a_job_outlives_its_server(tmp_path: Path) -> None:
    """What a killed process has begun, the next one ends; nothing is counted twice."""
    flags = ("--simulated-nodes", "2", "--fast")
    with serving(tmp_path / "data", *flags) as server:
        async with connected(server.kubeconfig, RealClock(), Rand()) as cluster:
            ns = ScenarioNamespace(cluster, "default")
            await ns.submit(simulate={"main": [{"seconds": 1}]}, completions=4, parallelism=2)
            await ns.wait_until(lambda ns: ns.status().get("active"))
    with serving(tmp_path / "data", *flags) as server:
        async with connected(server.kubeconfig, RealClock(), Rand()) as cluster:
            ns = ScenarioNamespace(cluster, "default")
            status = await ns.finished()
    assert ns.condition("Complete")
    assert status["succeeded"] == 4
