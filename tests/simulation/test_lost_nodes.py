# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes that are lost, with the controllers as the embedded cluster joins them."""

import contextlib
from collections.abc import AsyncIterator

from refloat.api import conditions
from refloat.app import controller_names
from refloat.app.controller_names import ControllerSelection
from refloat.scenario.cluster import PODS
from refloat.scenario.namespace import ScenarioNamespace
from refloat.scenario.nodes import ScenarioNodes
from refloat.sim.cluster import Cluster
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

NODE = "node-1"
TOLERATION = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
BOTH = (controller_names.NODE_LIFECYCLE, controller_names.TAINT_EVICTION)


@contextlib.asynccontextmanager
async def lost(
    sim: Sim, controllers: tuple[str, ...], *, stays: int = 300, fast: bool = False
) -> AsyncIterator[ScenarioNamespace]:
    """A pod that stays on a lost node for so many seconds, and whose node falls silent now."""
    async with Cluster(sim, ControllerSelection(controllers, 4, fast)) as cluster:
        ns = ScenarioNamespace(await cluster.scenarios(), "default")
        spec = {"tolerations": [{**TOLERATION, "tolerationSeconds": stays}]}
        script = {"main": [{"seconds": 86400}]}
        body = builders.pod(node=NODE, spec=spec, simulate=script)
        await ns.client.create(PODS, body, namespace=ns.name)
        await ns.sleep(5)
        assert ns.running
        cluster.fleet.fail(NODE, "freeze")
        yield ns


async def seconds_until_terminating(ns: ScenarioNamespace) -> float:
    clock = ns.cluster.clock
    began = clock.monotonic()
    await ns.wait_until(lambda ns: not ns.active, "the pod is not deleted", 2000)
    return clock.monotonic() - began


@virtual(lost, BOTH)
async def test_a_pod_of_a_frozen_node_hangs_and_ends_when_the_node_is_back(
    ns: ScenarioNamespace,
) -> None:
    """Behaviour G5, D8.1; KEP-6757's first flow: up to 10 s + 50 s + a pass, and 300 s."""
    assert 340 <= await seconds_until_terminating(ns) <= 356
    await ns.sleep(600)
    (pod,) = ns.present
    assert pod["status"]["phase"] == "Running"
    assert conditions.is_true(conditions.of(pod), "DisruptionTarget")
    assert ns.cluster.faults is not None
    ns.cluster.faults.heal(NODE)
    await ns.sleep(60)
    assert not ns.present, "its node ends and removes it"
    nodes = ScenarioNodes(ns.cluster)
    assert (nodes.taints(NODE), nodes.is_ready(NODE)) == ([], True)


@virtual(lost, BOTH, stays=10, fast=True)
async def test_with_short_waits_it_is_a_tenth(ns: ScenarioNamespace) -> None:
    assert 10 + 4 <= await seconds_until_terminating(ns) <= 10 + 6.1


@virtual(lost, (controller_names.NODE_LIFECYCLE,))
async def test_without_taint_eviction_it_says_that_its_node_is_lost(ns: ScenarioNamespace) -> None:
    """KEP-3329: joined from which controllers run."""
    await ns.sleep(1000)
    (pod,) = ns.active
    assert pod["status"]["reason"] == "NodeLost"
