# SPDX-License-Identifier: Apache-2.0
"""Taint eviction and another pod of the same name: it is neither marked nor deleted.

The first pod goes, and another one of its name comes, at the moment of a request
of taint eviction. That one tolerates the taint.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from refloat.api import structs
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.policy.switches import ALL_ON, Switches
from refloat.sim.run import Sim
from tests.simulation.job_world import nothing
from tests.simulation.node_world import NAMESPACE, Choice, World, world
from tests.virtual import virtual

DEDICATED: Object = {"key": "dedicated", "value": "a", "effect": "NoExecute"}
TOLERATES: Object = {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/p"

Hook: TypeAlias = Callable[[Request], Awaitable[None]]


def replacement(here: World, method: str) -> Hook:
    """Replace the pod, once, before the first request with this method."""

    async def replace(request: Request) -> None:
        if request.method != method or not request.path.startswith(PATH):
            return
        here.process.client.before = here.process.client.before_read = nothing
        at_once = DeleteOptions(grace_seconds=0)
        await here.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=at_once)
        await here.pod(tolerations=[TOLERATES])

    return replace


@pytest.mark.parametrize(
    ("method", "marks"),
    [("GET", True), ("GET", False), ("PATCH", True), ("DELETE", True), ("DELETE", False)],
)
def test_a_pod_that_takes_the_name_of_an_evicted_one_stays(method: str, marks: bool) -> None:
    """Replaced before the look, before the mark or before the delete."""

    @virtual(seeds=3)
    async def run(sim: Sim) -> None:
        switches = ALL_ON if marks else Switches(pod_disruption_conditions=False)
        async with world(sim, Choice(lifecycle=False, switches=switches)) as here:
            await here.node("n")
            first = await here.pod()
            await here.start()
            replace = replacement(here, method)
            here.process.client.before = here.process.client.before_read = replace
            await here.taint("n", DEDICATED)
            await here.until(60)
            pod = await here.get_pod()
            assert here.process.client.before is nothing
            assert pod.metadata.uid != first.metadata.uid
            assert not pod.is_terminating
            assert structs.find(pod.status.conditions, "DisruptionTarget") is None

    run()
