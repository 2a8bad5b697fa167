# SPDX-License-Identifier: Apache-2.0
"""What is asked of a cluster for an explanation, by people with fewer rights and more."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from refloat.api import self_fence, times
from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.meta import Object
from refloat.base.errors import UsageError
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.explain import surroundings
from refloat.explain.actors import HIDDEN, NONE_EVER
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


class Reader(LocalClient):
    """May read nothing of `kube-system`."""

    async def _call(self, request: Request) -> bytes:
        if "/namespaces/kube-system/" in request.path:
            raise errors.Forbidden("configmaps is forbidden")
        return await super()._call(request)


async def admin(api: Server) -> LocalClient:
    """With a pod that is being deleted, on a node that does not exist."""
    client = LocalClient(api, field_manager="test")
    await client.create(kinds.PODS, STUCK, namespace="default")
    await client.delete(kinds.PODS, "p", namespace="default")
    return client


def record(
    sim: Sim, mode: str = "Enforce", *, gate: bool = True, **fields: Any
) -> tuple[Actor, Object]:
    """The record of a manager that was seen now."""
    actor = Actor("m1", "manager", sim.clock.now(), (actors.FAILURE_RECOVERY,))
    policy = {"failureRecoveryPolicy": {"mode": mode}}
    gates = Gates({FAILURE_RECOVERY_POLICY: gate})
    document = actors.configuration(policy, gates, timedelta(minutes=1))
    return replace(actor, **fields), document


async def publish(
    client: LocalClient, *records: tuple[Actor, Object], namespace: str = actors.NAMESPACE
) -> None:
    data = {actors.key(actor.identity): actors.write(actor, doc) for actor, doc in records}
    body: Object = {"metadata": {"name": actors.NAME}, "data": data}
    await client.create(kinds.CONFIG_MAPS, body, namespace=namespace)


async def lead(client: LocalClient, sim: Sim, identity: str) -> None:
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": 15,
        "renewTime": times.format_micro(sim.clock.now()),
    }
    body: Object = {"metadata": {"name": actors.LEASES[actors.FAILURE_RECOVERY]}, "spec": spec}
    await client.create(kinds.LEASES, body, namespace=actors.NAMESPACE)


async def told(client: LocalClient, sim: Sim, what: str = "pod/p") -> dict[str, str]:
    account = await Asker(client, sim.clock).explain(what, "default")
    return {each.about: each.text for each in account.points}


@virtual()
async def test_a_pod_is_explained_to_those_who_may_not_read_its_node(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        await publish(await admin(api), record(sim))
        said = await told(Tenant(api, field_manager="test"), sim)
    assert said["node"] == "n1 (you may not read it)"
    assert said["recovery"] == surroundings.NODE_HIDDEN


@virtual()
async def test_a_node_that_does_not_exist_is_told_as_such(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await publish(client, record(sim))
        said = await told(client, sim)
    assert said["node"] == "n1 does not exist"
    assert said["recovery"].startswith("nothing is forced: ")


NODE: Object = {
    "metadata": {"name": "n1"},
    "spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
    "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
}


async def lost(client: LocalClient) -> None:
    await client.create(kinds.NODES, NODE)


FORGED: Object = {
    "type": self_fence.CONDITION,
    "status": "True",
    "message": self_fence.write(self_fence.Promise(380, 5, "ab")),
}


@virtual()
async def test_a_promise_is_what_the_lease_of_the_node_lists_and_not_a_condition(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim))
        pod = await client.get(kinds.PODS, "p", namespace="default")
        status: Object = {"status": {"conditions": [FORGED]}}
        await client.patch(kinds.PODS, "p", status, namespace="default", subresource="status")
        lease: Object = {"metadata": {"name": "n1"}}
        await client.create(kinds.LEASES, lease, namespace=NODE_NAMESPACE)
        forged = await told(client, sim)
        listing = self_fence.write_listed({pod.metadata.uid: self_fence.Promise(100, 5)})
        annotated: Object = {"metadata": {"annotations": {self_fence.LISTED: listing}}}
        await client.patch(kinds.LEASES, "n1", annotated, namespace=NODE_NAMESPACE)
        listed = await told(client, sim)
    assert "self-fence" not in forged
    want = "its node ends it by itself 100s after it last reached the API"
    assert listed["self-fence"] == want


async def explained(sim: Sim, *records: tuple[Actor, Object], leader: str = "") -> dict[str, str]:
    """What is said of a pod that hangs on a lost node, given who published what."""
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, *records)
        if leader:
            await lead(client, sim, leader)
        await sim.clock.sleep(5)
        return await told(client, sim)


@virtual()
async def test_what_a_tenant_publishes_in_its_own_namespace_is_not_read(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim), namespace="default")
        for what in ("pod/p", "node/n1"):
            assert (await told(client, sim, what))["recovery"] == NONE_EVER


@virtual()
async def test_records_that_may_not_be_read_are_told_as_such(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        await lost(await admin(api))
        said = await told(Reader(api, field_manager="test"), sim)
    assert said["recovery"] == HIDDEN


@virtual()
async def test_the_process_that_leads_and_is_alive_is_named_with_its_age(sim: Sim) -> None:
    said = await explained(sim, record(sim), leader="m1")
    assert "it will be made to fail" in said["recovery"]
    assert said["actor"] == "manager m1 leads; last seen at 00:00:00Z (5s ago)"


@virtual()
async def test_the_configuration_of_the_leader_counts_and_not_that_of_another(sim: Sim) -> None:
    """An embedded cluster with its gate off, and a manager that acts."""
    embedded = record(sim, gate=False, identity="refloat-up", kind="embedded")
    said = await explained(sim, embedded, record(sim), leader="m1")
    assert "it will be made to fail" in said["recovery"]
    assert said["actor"].startswith("manager m1 leads")
    assert "but" not in said


@virtual()
async def test_a_manager_that_was_killed_is_not_said_to_act(sim: Sim) -> None:
    seen = sim.clock.now() - timedelta(hours=3)
    said = await explained(sim, record(sim, seen=seen))
    assert said["recovery"] == (
        "no component will act; the last manager was seen at 2025-12-31T21:00:00Z (3h0m5s ago)"
    )


@virtual()
async def test_a_manager_that_stopped_is_not_said_to_act(sim: Sim) -> None:
    said = await explained(sim, record(sim, stopped=True), leader="")
    assert said["recovery"] == (
        "no component will act; the last manager stopped at 00:00:00Z (5s ago)"
    )


@virtual()
async def test_a_controller_that_is_switched_off_does_not_act(sim: Sim) -> None:
    said = await explained(sim, record(sim, controllers=("job-controller",)))
    assert said["recovery"] == (
        "no component will act: manager m1 runs without failure-recovery-controller"
    )


@virtual()
async def test_a_gate_that_is_off_in_every_process_is_named(sim: Sim) -> None:
    said = await explained(sim, record(sim, gate=False))
    assert said["recovery"] == (
        "no component will act: manager m1 has the gate FailureRecoveryPolicy off"
    )


@virtual()
async def test_a_leader_of_other_namespaces_does_not_act_here(sim: Sim) -> None:
    narrow = record(sim, namespaces=("a", "b"))
    said = await explained(sim, narrow, record(sim, identity="m2"), leader="m1")
    assert said["recovery"] == ("no component will act: manager m1 leads, and it acts only in a, b")


@virtual()
async def test_a_process_in_mode_report_is_said_to_force_nothing(sim: Sim) -> None:
    said = await explained(sim, record(sim, "Report"))
    assert said["but"] == "the mode is Report, so it is told and nothing is touched"
    assert "manager m1 reports, and forces nothing" in said["actor"]


@virtual()
async def test_without_a_leader_the_process_that_may_take_over_is_named(sim: Sim) -> None:
    said = await explained(sim, record(sim))
    assert "manager m1 may take over; no process leads now" in said["actor"]


@virtual()
async def test_the_servers_clock_says_how_old_a_record_is(sim: Sim) -> None:
    """The asker's own clock is three hours ahead."""
    async with api_program.serving(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim))
        server = sim.clock.now()
        await sim.clock.sleep(3 * 3600)
        for server_now, want in ((lambda: server, "may take over"), (None, "no component")):
            account = await Asker(client, sim.clock, server_now).explain("pod/p", "default")
            assert any(want in point.text for point in account.points)


@virtual()
async def test_what_can_be_no_name_is_wrong_use(sim: Sim) -> None:
    async with api_program.serving(sim) as api:
        asker = Asker(LocalClient(api, field_manager="test"), sim.clock)
        with pytest.raises(UsageError, match="a name may not contain"):
            await asker.explain("pod/a/b", "default")
