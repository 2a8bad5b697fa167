# SPDX-License-Identifier: Apache-2.0
"""What is asked of a cluster for an explanation, by people with fewer rights and more."""

from datetime import timedelta

import pytest

from refloat.api.meta import Object
from refloat.base.errors import UsageError
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.config import announced
from refloat.explain import surroundings
from refloat.explain.gather import Asker
from refloat.policy import zombie
from refloat.sim.run import Sim
from tests.simulation import api_program
from tests.simulation.api_program import Server
from tests.virtual import virtual

STUCK: Object = {
    "metadata": {
        "name": "p",
        "annotations": {zombie.ANNOTATIONS[0]: "true"},
        "finalizers": ["example.com/held"],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
}


class Tenant(LocalClient):
    """May not read nodes."""

    async def _call(self, request: Request) -> bytes:
        if request.path.startswith("/api/v1/nodes"):
            raise errors.Forbidden("nodes is forbidden")
        return await super()._call(request)


async def admin(api: Server) -> LocalClient:
    """With a pod that is being deleted, on a node that does not exist."""
    client = LocalClient(api, field_manager="test")
    await client.create(kinds.PODS, STUCK, namespace="default")
    await client.delete(kinds.PODS, "p", namespace="default")
    return client


async def announce(client: LocalClient, namespace: str, mode: str, **metadata: str) -> None:
    if namespace != "kube-system":
        await client.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
    gates = Gates({FAILURE_RECOVERY_POLICY: True})
    policy = {"failureRecoveryPolicy": {"mode": mode}}
    body = announced.body(policy, gates, timedelta(minutes=1))
    body["metadata"] |= metadata
    await client.create(kinds.CONFIG_MAPS, body, namespace=namespace)


async def told(client: LocalClient, sim: Sim, what: str = "pod/p") -> dict[str, str]:
    account = await Asker(client, sim.clock).explain(what, "default")
    return {each.about: each.text for each in account.points}


@virtual()
async def test_a_pod_is_explained_to_those_who_may_not_read_its_node(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        await announce(await admin(api), "kube-system", "Enforce")
        said = await told(Tenant(api, field_manager="test"), sim)
    assert said["node"] == "n1 (you may not read it)"
    assert said["recovery"] == surroundings.NODE_HIDDEN


@virtual()
async def test_a_node_that_does_not_exist_is_told_as_such(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await announce(client, "kube-system", "Enforce")
        said = await told(client, sim)
    assert said["node"] == "n1 does not exist"
    assert said["recovery"].startswith("nothing is forced: ")
    assert "configuration" not in said


NODE: Object = {
    "metadata": {"name": "n1"},
    "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
}


async def lost(client: LocalClient) -> None:
    await client.create(kinds.NODES, NODE)


@virtual()
async def test_what_a_tenant_announces_under_another_name_does_not_count(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await announce(client, "a-tenant", "Report", name="mine")
        assert (await told(client, sim))["recovery"] == surroundings.UNKNOWN


@virtual()
async def test_what_a_tenant_announces_does_not_come_before_what_refloat_says(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await announce(client, "a-tenant", "Report")
        for namespace in ("refloat-system", "kube-system"):
            await announce(client, namespace, "Enforce")
            for what in ("pod/p", "node/n1"):
                said = await told(client, sim, what)
                assert "but" not in said
                assert f"announced in namespace {namespace}; " in said["configuration"]


@virtual()
async def test_what_is_announced_in_an_unusual_namespace_is_told_with_it(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await announce(client, "ops", "Report")
        said = await told(client, sim)
    assert said["but"] == "the mode is Report, so it is told and nothing is touched"
    assert said["configuration"] == "the one that is announced in namespace ops"


@virtual()
async def test_what_can_be_no_name_is_wrong_use(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        asker = Asker(LocalClient(api, field_manager="test"), sim.clock)
        with pytest.raises(UsageError, match="a name may not contain"):
            await asker.explain("pod/a/b", "default")
