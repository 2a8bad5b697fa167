# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes that are lost, with the controllers as the embedded cluster joins them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from refloat.agent.simulated import ANNOTATION
from refloat.api import structs
from refloat.api.core import Pod
from refloat.app import controller_names
from refloat.app.controller_env import EmbeddedEnv
from refloat.app.controller_names import ControllerSelection
from refloat.app.embedded_controllers import EmbeddedControllers
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.sim import api_server
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

NODES = 4
TOLERATION = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
BOTH = (controller_names.NODE_LIFECYCLE, controller_names.TAINT_EVICTION)


@dataclass(slots=True)
class Here:
    sim: Sim
    client: LocalClient
    inside: EmbeddedControllers

    async def pod(self, name: str, node: str, stays: int) -> None:
        """One that runs for a day, and stays on a lost node for so long."""
        script = '{"main": [{"seconds": 86400}]}'
        spec = {"tolerations": [{**TOLERATION, "tolerationSeconds": stays}]}
        body = builders.pod(name, node=node, spec=spec, annotations={ANNOTATION: script})
        await self.client.create(kinds.PODS, body, namespace="default")

    async def get(self, name: str = "p") -> Pod:
        return await self.client.get(kinds.PODS, name, namespace="default")

    async def seconds_until_terminating(self) -> float:
        began = self.sim.clock.monotonic()
        while not (await self.get()).is_terminating:
            await self.sim.clock.sleep(0.5)
            assert self.sim.clock.monotonic() - began < 2000
        return self.sim.clock.monotonic() - began


@contextlib.asynccontextmanager
async def cluster(
    sim: Sim, controllers: tuple[str, ...], *, fast: bool = False
) -> AsyncIterator[Here]:
    async with api_server.serve(sim) as api:
        env = EmbeddedEnv(
            lambda user: LocalClient(api, field_manager=user.name),
            ControllerSelection(controllers, NODES, fast),
            gates=Gates(),
            clock=sim.clock,
            rand=sim.rand,
            registry=CollectorRegistry(),
        )
        inside = EmbeddedControllers(env)
        inside.start()
        await sim.clock.sleep(30)
        try:
            yield Here(sim, LocalClient(api, field_manager="test"), inside)
        finally:
            await inside.close()


async def _lose(here: Here, stays: int = 300) -> None:
    await here.pod("p", "node-1", stays)
    await here.sim.clock.sleep(5)
    assert (await here.get()).status.phase == "Running"
    assert here.inside.fleet is not None
    here.inside.fleet.fail("node-1", "freeze")


@virtual(cluster, BOTH)
async def test_a_pod_of_a_frozen_node_hangs_and_ends_when_the_node_is_back(here: Here) -> None:
    """Behaviour G5, D8.1; KEP-6757's first flow: up to 10 s + 50 s + a pass, and 300 s."""
    await _lose(here)
    assert 340 <= await here.seconds_until_terminating() <= 356
    await here.sim.clock.sleep(600)
    pod = await here.get()
    assert pod.status.phase == "Running"
    assert structs.is_true(pod.status.conditions, "DisruptionTarget")
    assert here.inside.fleet is not None
    here.inside.fleet.heal("node-1")
    await here.sim.clock.sleep(60)
    try:
        await here.get()
    except errors.NotFound:
        pass
    else:
        raise AssertionError("its node ends and removes it")
    node = await here.client.get(kinds.NODES, "node-1")
    assert node.spec.taints is None
    assert structs.is_true(node.status.conditions, "Ready")


@virtual(cluster, BOTH, fast=True)
async def test_with_short_waits_it_is_a_tenth(here: Here) -> None:
    await _lose(here, stays=10)
    assert 10 + 4 <= await here.seconds_until_terminating() <= 10 + 6.1


@virtual(cluster, (controller_names.NODE_LIFECYCLE,))
async def test_without_taint_eviction_it_says_that_its_node_is_lost(here: Here) -> None:
    """KEP-3329: joined from which controllers run."""
    await _lose(here)
    await here.sim.clock.sleep(1000)
    pod = await here.get()
    assert (pod.status.reason, pod.is_terminating) == ("NodeLost", False)
