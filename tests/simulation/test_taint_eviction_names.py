# SPDX-License-Identifier: Apache-2.0
"""Taint eviction neither marks nor deletes another pod of the same name.

The first pod goes, and another pod of that name comes, at the moment of a request
of taint eviction. That one tolerates the taint.
"""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from refloat.api import structs
from refloat.api.meta import Object
from refloat.app.controller_names import TAINT_EVICTION
from refloat.base.gates import POD_DISRUPTION_CONDITIONS, Gates
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.node_cluster import NodeCluster
from tests.virtual import virtual

DEDICATED: Object = {"key": "dedicated", "value": "a", "effect": "NoExecute"}
TOLERATES: Object = {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/p"

Hook: TypeAlias = Callable[[Request], Awaitable[None]]


def replacement(cluster: NodeCluster, method: str) -> Hook:
    """Replace the pod, once, before the first request with this method."""

    async def replace(request: Request) -> None:
        if request.method != method or not request.path.startswith(PATH):
            return
        cluster.faulty.before = cluster.faulty.before_read = nothing
        at_once = DeleteOptions(grace_seconds=0)
        await cluster.client.delete(kinds.PODS, "p", namespace=NAMESPACE, options=at_once)
        await cluster.pod(tolerations=[TOLERATES])

    return replace


@pytest.mark.parametrize(
    ("method", "marks"),
    [("GET", True), ("GET", False), ("PATCH", True), ("DELETE", True), ("DELETE", False)],
)
@virtual(seeds=3)
async def test_a_pod_that_takes_the_name_of_an_evicted_one_stays(
    sim: Sim, method: str, marks: bool
) -> None:
    """Replaced before the look, before the mark or before the delete."""
    gates = Gates({POD_DISRUPTION_CONDITIONS: marks})
    async with NodeCluster(sim, TAINT_EVICTION, gates=gates) as cluster:
        await cluster.node("n")
        first = await cluster.pod()
        await cluster.start()
        replace = replacement(cluster, method)
        cluster.faulty.before = cluster.faulty.before_read = replace
        await cluster.taint("n", DEDICATED)
        await cluster.until(60)
        pod = await cluster.get_pod()
        assert cluster.faulty.before is nothing
        assert pod.metadata.uid != first.metadata.uid
        assert not pod.is_terminating
        assert structs.find(pod.status.conditions, "DisruptionTarget") is None
