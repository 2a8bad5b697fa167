# SPDX-License-Identifier: Apache-2.0
"""At level debug each controller logs what it changed, with the object's key."""

import logging
import re

import pytest

from refloat.agent.simulated import ANNOTATION
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.sim.cluster import Cluster
from refloat.sim.run import Sim
from tests import builders
from tests.virtual import virtual

NAMESPACE = "default"


def logged(caplog: pytest.LogCaptureFixture, pattern: str) -> bool:
    messages = (each.getMessage() for each in caplog.records if "controllers" in each.name)
    return any(re.search(pattern, message) for message in messages)


async def pod(c: Cluster, name: str, **spec: object) -> None:
    script = {ANNOTATION: '{"main": [{"seconds": 86400}]}'}
    body = builders.pod(name, annotations=script, spec=spec)
    await c.client.create(kinds.PODS, body, namespace=NAMESPACE)


@virtual()
async def test_a_decision_that_changes_something_is_one_line_with_its_key(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Cluster(sim) as c:
        await pod(c, "p")
        await pod(c, "fits-nowhere", nodeSelector={"no": "where"})
        await c.submit(script={"main": {"seconds": 1}}, ttlSecondsAfterFinished=5)
        budget = {"maxUnavailable": 1, "selector": {}}
        body = {"metadata": {"name": "b"}, "spec": budget}
        await c.client.create(kinds.POD_DISRUPTION_BUDGETS, body, namespace=NAMESPACE)
        await c.client.create(kinds.NAMESPACES, {"metadata": {"name": "spare"}})
        await c.client.create(
            kinds.CONFIG_MAPS, {"metadata": {"name": "content"}}, namespace="spare"
        )
        await c.until(60)
        await c.client.delete(kinds.NAMESPACES, "spare")
        node = (await c.client.get(kinds.PODS, "p", namespace=NAMESPACE)).spec.node_name
        c.fleet.fail(node, "freeze")
        await c.until(700)
        await c.client.delete(kinds.NODES, node, options=DeleteOptions(grace_seconds=0))
        await c.until(1000)
    for pattern in (
        rf"^scheduler: pod default/p is bound to node {node}$",
        r"^scheduler: pod default/fits-nowhere waits: 0/\d+ nodes are available: ",
        rf"^node-lifecycle-controller: node {node}: wrote .*unreachable.*NoExecute",
        rf"^node-lifecycle-controller: pod default/p on node {node}: wrote .*'False'",
        rf"^taint-eviction-controller: pod default/p leaves node {node} in 300 s$",
        r"^taint-eviction-controller: pod default/p is deleted$",
        r"^pod-garbage-collector-controller: pod default/p is deleted: orphaned$",
        r"^controllermanager: budget default/b: wrote .*currentHealthy",
        r"^ttl-after-finished-controller: job default/j is deleted$",
        r"^garbage-collector-controller: pods default/j-\w+ is deleted, ",
        r"^namespace-controller: configmaps spare/content is deleted$",
    ):
        assert logged(caplog, pattern), pattern
