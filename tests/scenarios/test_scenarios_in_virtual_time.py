# SPDX-License-Identifier: Apache-2.0
"""Scenarios and random Jobs on the simulated cluster, in virtual time."""

from dataclasses import replace

from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.scenario.namespace import opened
from refloat.sim.cluster import ALL_CONTROLLERS, Cluster
from refloat.sim.run import Sim
from tests.differential import jobs, plans
from tests.scenarios import lost_node, playing, scenario
from tests.scenarios.scenario import Scenario
from tests.virtual import virtual


async def run_all(sim: Sim, scenarios: list[Scenario]) -> None:
    async with Cluster(sim, replace(ALL_CONTROLLERS, simulated_nodes=5)) as cluster:
        results = await playing.play_on(await cluster.scenarios(), scenarios)
    assert {each.name: each.error for each in results.values() if each.error} == {}
    assert [each.name for each in results.values() if each.outcome is None] == []
    assert len(results) == len(scenarios)


@virtual()
async def test_every_scenario_holds_in_virtual_time(sim: Sim) -> None:
    await run_all(sim, scenario.every())


@virtual()
async def test_random_jobs_come_to_rest_in_virtual_time(sim: Sim) -> None:
    """Their shortest back-off is ten seconds, as on any cluster."""
    waits: list[float] = []
    await run_all(sim, [jobs.scenario(plans.plan(1, number), waits) for number in range(40)])
    assert waits
    assert int(min(waits)) == jobs.BACKOFF_SECONDS


@virtual()
async def test_a_job_goes_on_after_its_node_froze(sim: Sim) -> None:
    gates = Gates({FAILURE_RECOVERY_POLICY: True})
    async with Cluster(sim, gates=gates) as cluster, opened(await cluster.scenarios(), "z") as ns:
        await lost_node.a_job_goes_on_after_its_node_froze(ns)
