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
from refloat.cli import doctor
from refloat.client import errors, kinds
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.explain.actors import HIDDEN, NONE_EVER
from refloat.explain.codes import Code
from refloat.explain.explanation import Explanation
from refloat.explain.gather import Explainer
from refloat.policy.recovery import zombie
from refloat.sim import api_server
from refloat.sim.api_server import SimulatedServer
from refloat.sim.run import Sim
from tests.virtual import virtual

STUCK: Object = {
    "metadata": {
        "name": "p",
        "annotations": {zombie.ANNOTATIONS[0]: "true"},
        "finalizers": ["example.com/held"],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
}


class TenantClient(LocalClient):
    """May not read nodes."""

    async def _call(self, request: Request) -> bytes:
        if request.path.startswith("/api/v1/nodes"):
            raise errors.Forbidden("nodes is forbidden")
        return await super()._call(request)


class NarrowReader(LocalClient):
    """May read nothing of `kube-system`."""

    async def _call(self, request: Request) -> bytes:
        if "/namespaces/kube-system/" in request.path:
            raise errors.Forbidden("configmaps is forbidden")
        return await super()._call(request)


async def admin(api: SimulatedServer) -> LocalClient:
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


async def explain(client: LocalClient, sim: Sim, what: str = "pod/p") -> Explanation:
    return await Explainer(client, sim.clock).explain(what, "default")


def all_text(explanation: Explanation) -> str:
    finding = explanation.finding
    steps = [f"{each.component} {each.text}" for each in finding.next]
    facts = [f"{each.source}: {each.text}" for each in finding.evidence]
    return "\n".join((finding.verdict, *steps, *facts, *explanation.limits))


@virtual()
async def test_a_pod_is_explained_to_those_who_may_not_read_its_node(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        await publish(await admin(api), record(sim))
        explanation = await explain(TenantClient(api, field_manager="test"), sim)
    assert explanation.limits == ("get nodes: whether the nodes of the pods are alive",)
    assert "recovery" not in all_text(explanation)


NODE_CONTROLLER_WROTE: Object = {
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ],
    }
}


@virtual()
async def test_what_the_node_controller_wrote_shows_a_lost_node_to_those_who_may_not_read_it(
    sim: Sim,
) -> None:
    async with api_server.serve(sim) as api:
        client = await admin(api)
        reader = TenantClient(api, field_manager="test")
        await client.patch(
            kinds.PODS, "p", NODE_CONTROLLER_WROTE, namespace="default", subresource="status"
        )
        explanation = await explain(reader, sim)
        assert explanation.finding.code == Code.TERMINATING_LOST_NODE
        await client.create(
            kinds.PODS, {**STUCK, "metadata": {"name": "runs"}}, namespace="default"
        )
        await client.patch(
            kinds.PODS, "runs", NODE_CONTROLLER_WROTE, namespace="default", subresource="status"
        )
        explanation = await explain(reader, sim, "pod/runs")
        assert explanation.finding.code == Code.NODE_LOST


@virtual()
async def test_a_node_that_does_not_exist_is_told_as_such(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await publish(client, record(sim))
        explanation = await explain(client, sim)
    assert "its node n1 no longer exists" in explanation.finding.verdict


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
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim))
        pod = await client.get(kinds.PODS, "p", namespace="default")
        status: Object = {"status": {"conditions": [FORGED]}}
        await client.patch(kinds.PODS, "p", status, namespace="default", subresource="status")
        lease: Object = {"metadata": {"name": "n1"}}
        await client.create(kinds.LEASES, lease, namespace=NODE_NAMESPACE)
        forged = await explain(client, sim)
        listing = self_fence.write_listed({pod.metadata.uid: self_fence.Promise(100, 5)})
        annotated: Object = {"metadata": {"annotations": {self_fence.LISTED: listing}}}
        await client.patch(kinds.LEASES, "n1", annotated, namespace=NODE_NAMESPACE)
        listed = await explain(client, sim)
    assert "self-fence" not in all_text(forged)
    want = "self-fence: the node ends the pod by itself 100 s after it last reached the API"
    assert want in all_text(listed)


async def explained(sim: Sim, *records: tuple[Actor, Object], leader: str = "") -> str:
    """The explanation of a pod that hangs on a lost node, given the records of processes."""
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, *records)
        if leader:
            await lead(client, sim, leader)
        await sim.clock.sleep(5)
        return all_text(await explain(client, sim))


@virtual()
async def test_what_a_tenant_publishes_in_its_own_namespace_is_not_read(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim), namespace="default")
        for what in ("pod/p", "node/n1"):
            assert NONE_EVER in all_text(await explain(client, sim, what))


@virtual()
async def test_records_that_may_not_be_read_are_told_as_such(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        await lost(await admin(api))
        explanation = await explain(NarrowReader(api, field_manager="test"), sim)
    assert HIDDEN in all_text(explanation)


@virtual()
async def test_the_process_that_leads_and_is_alive_is_named_with_its_age(sim: Sim) -> None:
    text = await explained(sim, record(sim), leader="m1")
    assert "zombie recovery marks the pod Failed" in text
    assert "actor: manager m1 leads; last seen 5s ago" in text


@virtual()
async def test_the_configuration_of_the_leader_counts_and_not_that_of_another(sim: Sim) -> None:
    """An embedded cluster with its gate off, and a manager that acts."""
    embedded = record(sim, gate=False, identity="refloat-up", kind="embedded")
    text = await explained(sim, embedded, record(sim), leader="m1")
    assert "zombie recovery marks the pod Failed" in text
    assert "actor: manager m1 leads" in text


@virtual()
async def test_a_manager_that_was_killed_is_not_said_to_act(sim: Sim) -> None:
    start = sim.clock.now() - timedelta(hours=3)
    text = await explained(sim, record(sim, seen=start))
    assert "no component will act; the last manager was seen 3h0m5s ago" in text


@virtual()
async def test_a_manager_that_stopped_is_not_said_to_act(sim: Sim) -> None:
    text = await explained(sim, record(sim, stopped=True), leader="")
    assert "no component will act; the last manager stopped 5s ago" in text


@virtual()
async def test_a_controller_that_is_switched_off_does_not_act(sim: Sim) -> None:
    text = await explained(sim, record(sim, controllers=("job-controller",)))
    assert "no component will act: manager m1 runs without failure-recovery-controller" in text


@virtual()
async def test_a_gate_that_is_off_in_every_process_is_named(sim: Sim) -> None:
    text = await explained(sim, record(sim, gate=False))
    assert "no component will act: manager m1 has the gate FailureRecoveryPolicy off" in text


@virtual()
async def test_a_leader_of_other_namespaces_does_not_act_here(sim: Sim) -> None:
    narrow = record(sim, namespaces=("a", "b"))
    text = await explained(sim, narrow, record(sim, identity="m2"), leader="m1")
    assert "no component will act: manager m1 leads, and it acts only in a, b" in text


@virtual()
async def test_a_process_in_mode_report_is_said_to_force_nothing(sim: Sim) -> None:
    text = await explained(sim, record(sim, "Report"))
    assert "the mode is Report: recovery reports and changes nothing" in text


@virtual()
async def test_without_a_leader_the_process_that_may_take_over_is_named(sim: Sim) -> None:
    text = await explained(sim, record(sim))
    assert "manager m1 may take over; no process leads now" in text


@virtual()
async def test_the_servers_clock_says_how_old_a_record_is(sim: Sim) -> None:
    """The asker's own clock is three hours ahead."""
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim))
        server = sim.clock.now()
        await sim.clock.sleep(3 * 3600)
        for server_now, want in ((lambda: server, "may take over"), (None, "no component")):
            explainer = Explainer(client, sim.clock, server_now)
            assert want in all_text(await explainer.explain("pod/p", "default"))


class CountingClient(LocalClient):
    """Notes the paths that were read."""

    def __init__(self, api: SimulatedServer) -> None:
        super().__init__(api, field_manager="test")
        self.paths: list[str] = []

    async def _call(self, request: Request) -> bytes:
        self.paths.append(request.path)
        return await super()._call(request)


@virtual()
async def test_a_call_reads_the_processes_that_act_once_for_all_objects(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        client = await admin(api)
        await lost(client)
        await publish(client, record(sim))
        reader = CountingClient(api)
        explainer = Explainer(reader, sim.clock)
        for what in ("pod/p", "node/n1", "pod/p"):
            assert "m1 may take over" in all_text(await explainer.explain(what, "default"))
    assert sum(each.endswith(f"/configmaps/{actors.NAME}") for each in reader.paths) == 1


@virtual()
async def test_what_can_be_no_name_is_wrong_use(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        explainer = Explainer(LocalClient(api, field_manager="test"), sim.clock)
        with pytest.raises(UsageError, match="a name may not contain"):
            await explainer.explain("pod/a/b", "default")


class NamespaceReader(LocalClient):
    """May read the objects of the namespace `default` alone."""

    async def _call(self, request: Request) -> bytes:
        if "/namespaces/default/" not in request.path:
            raise errors.Forbidden("jobs.batch is forbidden")
        return await super()._call(request)


@virtual()
async def test_doctor_falls_back_to_the_namespace_that_the_user_may_read(sim: Sim) -> None:
    async with api_server.serve(sim) as api:
        await admin(api)
        explainer = Explainer(NamespaceReader(api, field_manager="test"), sim.clock)
        cluster = await doctor._survey(explainer, "", "default")
        with pytest.raises(errors.Forbidden):
            await doctor._survey(explainer, "", "")
    assert [each.metadata.name for each in cluster.pods] == ["p"]
    assert cluster.limits[0] == ("list jobs in all namespaces: only the namespace default was read")
    assert cluster.nodes is None
