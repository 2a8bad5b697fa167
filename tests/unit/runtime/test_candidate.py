# SPDX-License-Identifier: Apache-2.0
"""A candidate goes on whatever its controller does; `tests/simulation/test_actors.py` has more."""

import logging
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from refloat.base.rand import Rand
from refloat.runtime.candidate import Candidate, CandidateMetrics
from refloat.runtime.election import ElectionSettings
from refloat.sim.run import Sim
from tests.unit.runtime.clusters import ClusterClient, RegistryCluster
from tests.virtual import virtual

CONTROLLER = "failure-recovery-controller"


def candidate(
    sim: Sim,
    cluster: RegistryCluster,
    registry: CollectorRegistry,
    on_change: Callable[[bool], None],
) -> Candidate:
    return Candidate(
        CONTROLLER,
        ClusterClient(cluster.world, sim.clock),
        clock=sim.clock,
        rand=Rand(1),
        settings=ElectionSettings("kube-system", "refloat", "a", unique_identity=True),
        metrics=CandidateMetrics(registry),
        on_change=on_change,
    )


def state(registry: CollectorRegistry, name: str) -> float | None:
    labels = {"controller": CONTROLLER, "state": name}
    return registry.get_sample_value("refloat_actor_state", labels)


@virtual()
async def test_a_controller_that_fails_to_begin_is_tried_again_after_a_pause_and_logged(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[bool] = []

    def fails(leads: bool) -> None:
        calls.append(leads)
        if leads and len(calls) < 10:
            raise RuntimeError("no room")

    one = candidate(sim, await RegistryCluster.started(), CollectorRegistry(), fails)
    one.contend(enabled=True)
    one.start()
    await sim.clock.sleep(1)
    assert calls == [True, False]
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no room"
    await sim.clock.sleep(60)
    assert one.leads
    assert calls == [True, False] * 5 + [True]
    await one.stop(release=True)


@virtual()
async def test_a_controller_that_fails_to_end_does_not_keep_the_lease(sim: Sim) -> None:
    def fails(leads: bool) -> None:
        if not leads:
            raise RuntimeError("stuck")

    one = candidate(sim, await RegistryCluster.started(), CollectorRegistry(), fails)
    one.contend(enabled=True)
    one.start()
    await sim.clock.sleep(1)
    assert one.leads
    one.contend(enabled=False)
    await sim.clock.sleep(1)
    assert not one.leads
    await one.stop(release=False)


@virtual()
async def test_a_candidate_is_off_until_there_is_anything_to_lead_for(sim: Sim) -> None:
    registry = CollectorRegistry()
    one = candidate(sim, await RegistryCluster.started(), registry, lambda _: None)
    one.start()
    await sim.clock.sleep(60)
    assert not one.leads
    assert one.describe() == "off"
    assert (state(registry, "off"), state(registry, "standby")) == (1, 0)
    one.contend(enabled=True)
    assert state(registry, "standby") == 1
    await sim.clock.sleep(1)
    assert state(registry, "leader") == 1
    await one.stop(release=True)
