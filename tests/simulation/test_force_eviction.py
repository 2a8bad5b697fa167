# SPDX-License-Identifier: Apache-2.0
"""Force eviction on a real API server in virtual time (KEP-36), its nodes moved by hand."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from refloat.api import times
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.app import controller_table
from refloat.base.gates import POD_DISRUPTION_CONDITIONS, TAINT_FORCE_EVICTION, Gates
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.policy.recovery.force_eviction import PROGRESS
from refloat.runtime.controller_env import Build
from refloat.sim.faulty_client import nothing
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import FAULTS, ControllerCluster, condition, running
from tests.virtual import virtual

ON = Gates({TAINT_FORCE_EVICTION: True})
EVICTION_TAINT: Object = {
    "key": "refloat.dev/force-eviction",
    "value": "true",
    "effect": "NoSchedule",
}
HELD = ["example.com/held"]
TARGET = {
    "status": "True",
    "reason": "DeletionByForceEviction",
    "message": "Force eviction: deleting a pod of a node that is down",
}
LEASES = "kube-node-lease"
MAKE = controller_table.CONTROLLERS["force-eviction-controller"]


@contextlib.asynccontextmanager
async def new_cluster(
    sim: Sim, gates: Gates = ON, make: Build = MAKE
) -> AsyncIterator[ControllerCluster]:
    """A node `n` that has just gone down with a pod and a volume, and says so."""
    async with ControllerCluster(sim, make, gates) as cluster:
        await cluster.node("n")
        await renew(cluster)
        await post(cluster, "Unknown")
        status = {"volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": ""}]}
        await cluster.client.patch(kinds.NODES, "n", {"status": status}, subresource="status")
        await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment("a", "n"))
        await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment("b", "m"))
        await cluster.pod("p", node="n")
        yield cluster


def attachment(name: str, node: str) -> Object:
    source = {"persistentVolumeName": f"volume-{name}"}
    return builders.volume_attachment(name, node=node, source=source)


async def post(cluster: ControllerCluster, ready: str) -> None:
    ready_condition = {"type": "Ready", "status": ready}
    await cluster.client.patch(
        kinds.NODES,
        "n",
        {"status": {"conditions": [ready_condition]}},
        patch_type="strategic",
        subresource="status",
    )


async def renew(cluster: ControllerCluster) -> None:
    when = times.format_micro(cluster.sim.clock.now())
    spec = {"renewTime": when, "leaseDurationSeconds": 40}
    try:
        await cluster.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace=LEASES)
    except errors.NotFound:
        await cluster.client.create(
            kinds.LEASES, {**builders.lease("n"), "spec": spec}, namespace=LEASES
        )


async def request_eviction(cluster: ControllerCluster, *taints: Object) -> None:
    await cluster.client.patch(
        kinds.NODES, "n", {"spec": {"taints": list(taints or (EVICTION_TAINT,))}}
    )


async def node(cluster: ControllerCluster) -> Node:
    return await cluster.client.get(kinds.NODES, "n")


async def taints(cluster: ControllerCluster) -> list[str]:
    return [
        each.key
        for each in (await node(cluster)).spec.taints or ()
        if each.key == EVICTION_TAINT["key"]
    ]


def event_reasons(cluster: ControllerCluster) -> list[str]:
    return [f"{kind} {why}" for kind, why, _ in cluster.event_log.events if why != "ForceEviction"]


async def attachments(cluster: ControllerCluster) -> list[str]:
    pages = cluster.client.list(kinds.VOLUME_ATTACHMENTS)
    return [each.metadata.name async for page in pages for each in page.items]


@virtual(new_cluster, seeds=3)
async def test_a_node_that_is_down_gives_up_pods_and_volumes(cluster: ControllerCluster) -> None:
    """KEP-36, Scenario 1"""
    await cluster.pod("held", node="n", finalizers=HELD)
    await cluster.pod("elsewhere", node="m")
    await cluster.pod("stays", node="n", spec={"tolerations": [{"operator": "Exists"}]})
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(49)
    assert (await node(cluster)).status.volumes_in_use == ("v",)
    assert await cluster.find_pod("p") is not None
    await cluster.sleep(2)
    current = await node(cluster)
    assert (current.status.volumes_in_use, current.status.volumes_attached) == (None, None)
    assert await taints(cluster) == []
    assert PROGRESS not in (current.metadata.annotations or {})
    assert await cluster.find_pod("p") is None
    pod = await cluster.get_pod("held")
    assert (pod.status.phase, pod.is_terminating) == ("Failed", True)
    assert condition(pod, "DisruptionTarget") == TARGET
    for name in ("elsewhere", "stays"):
        other = await cluster.get_pod(name)
        assert other.status.phase == "Running"
    assert await attachments(cluster) == ["b"]
    assert event_reasons(cluster) == ["Normal ForceEvictionStarted", "Normal ForceEvictionFinished"]
    assert cluster.sample("refloat_force_eviction_pods_total") == 2
    assert cluster.sample("refloat_force_eviction_volumes_total") == 1
    assert cluster.sample("refloat_force_eviction_nodes_total", result="finished") == 1
    assert cluster.sample("refloat_force_eviction_nodes_under_way") == 0


@virtual(running, new_cluster)
async def test_node_that_was_silent_for_long_is_not_waited_for(cluster: ControllerCluster) -> None:
    await cluster.sleep(60)
    await request_eviction(cluster)
    await cluster.sleep(1)
    assert await cluster.find_pod("p") is None
    assert await taints(cluster) == []


@virtual(ControllerCluster, MAKE, ON)
async def test_the_effect_of_the_kep_is_the_same_wish(cluster: ControllerCluster) -> None:
    await cluster.node("n")
    await renew(cluster)
    await post(cluster, "False")
    await cluster.pod("p", node="n")
    await cluster.start()
    await request_eviction(
        cluster, {"key": "nodeShutdown", "value": "true", "effect": "ForceEviction"}
    )
    await cluster.sleep(51)
    assert await cluster.find_pod("p") is None
    assert (await node(cluster)).spec.taints is None


@virtual(new_cluster, seeds=3)
async def test_a_ready_node_is_refused_at_once(cluster: ControllerCluster) -> None:
    """KEP-36, Scenario 3"""
    await post(cluster, "True")
    await cluster.start()
    await cluster.sleep(60)
    await request_eviction(cluster)
    await cluster.sleep(1)
    assert await taints(cluster) == []
    pod = await cluster.get_pod("p")
    assert pod.status.phase == "Running"
    assert (await node(cluster)).status.volumes_in_use == ("v",)
    [(_, reason, note)] = cluster.event_log.events
    assert reason == "ForceEvictionRefused"
    assert "refloat.dev/force-eviction=true:NoSchedule: it is Ready." in note
    assert cluster.sample("refloat_force_eviction_nodes_total", result="refused") == 1


@virtual(running, new_cluster, seeds=3)
async def test_a_node_that_still_renews_its_lease_is_refused(cluster: ControllerCluster) -> None:
    """Though the node is not Ready yet, and whatever its clock shows."""
    await request_eviction(cluster)
    await cluster.sleep(30)
    await renew(cluster)
    await cluster.sleep(1)
    assert await taints(cluster) == []
    assert await cluster.find_pod("p") is not None
    assert event_reasons(cluster) == ["Warning ForceEvictionRefused"]
    await cluster.sleep(300)
    assert await cluster.find_pod("p") is not None


@virtual(new_cluster)
async def test_a_clock_that_is_wrong_makes_nobody_dead(cluster: ControllerCluster) -> None:
    """The time in a Lease is another machine's: only changes of the Lease count."""
    spec = {"renewTime": "2001-01-01T00:00:00.000000Z"}
    await cluster.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace=LEASES)
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(49)
    assert await cluster.find_pod("p") is not None
    await cluster.sleep(2)
    assert await cluster.find_pod("p") is None


@virtual(running, new_cluster)
async def test_restarted_controller_watches_the_lease_anew(cluster: ControllerCluster) -> None:
    await request_eviction(cluster)
    await cluster.sleep(30)
    await cluster.stop()
    await cluster.start()
    await cluster.sleep(49)
    assert await cluster.find_pod("p") is not None
    await cluster.sleep(2)
    assert await cluster.find_pod("p") is None


@virtual(new_cluster, seeds=3)
async def test_restarted_controller_does_not_trust_its_taints(cluster: ControllerCluster) -> None:
    """The node returned while no controller ran, and its Ready condition is still Unknown."""
    await request_eviction(cluster)
    await cluster.start(dies_at=2, dies_after=True)  # the eviction has just begun
    await cluster.sleep(60)
    await cluster.stop()
    assert PROGRESS in ((await node(cluster)).metadata.annotations or {})
    await cluster.start()
    await cluster.sleep(5)
    await renew(cluster)
    await cluster.sleep(60)
    pod = await cluster.get_pod("p")
    assert pod.status.phase == "Running"
    assert await taints(cluster) == []
    assert event_reasons(cluster)[-1] == "Warning ForceEvictionRefused"


@virtual(running, new_cluster)
async def test_a_wish_that_is_taken_back_is_forgotten(cluster: ControllerCluster) -> None:
    await request_eviction(cluster)
    await cluster.sleep(30)
    await cluster.client.patch(kinds.NODES, "n", {"spec": {"taints": None}})
    await cluster.sleep(300)
    assert await cluster.find_pod("p") is not None
    assert event_reasons(cluster) == []


@virtual(running, new_cluster)
async def test_it_is_not_begun_again_after_its_end(cluster: ControllerCluster) -> None:
    await request_eviction(cluster)
    await cluster.sleep(60)
    version = (await node(cluster)).metadata.resource_version
    await cluster.pod("new", node="n")
    await cluster.sleep(600)
    assert (await node(cluster)).metadata.resource_version == version
    assert await cluster.find_pod("new") is not None


@virtual(running, new_cluster)
async def test_volume_that_another_node_has_by_now_stays_there(cluster: ControllerCluster) -> None:
    """All nodes share the one name that the attachment of an exclusive volume has."""
    await request_eviction(cluster)

    async def goes_to_another_node(request: Request) -> None:
        if request.method == "DELETE" and "volumeattachments" in request.path:
            await cluster.client.delete(kinds.VOLUME_ATTACHMENTS, "a")
            await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment("a", "m"))

    cluster.faulty.before = goes_to_another_node
    await cluster.sleep(60)
    assert sorted(await attachments(cluster)) == ["a", "b"]
    assert await taints(cluster) == []


@virtual(new_cluster)
async def test_pod_that_ends_well_before_the_write_succeeds(cluster: ControllerCluster) -> None:
    """Its node is back, and becomes Ready at the last moment."""
    await cluster.pod("held", node="n", finalizers=HELD)
    await cluster.start()
    await request_eviction(cluster)

    async def ends(request: Request) -> None:
        if request.path.partition("?")[0].endswith("/pods/held/status"):
            cluster.faulty.before = nothing
            await cluster.status("held", phase="Succeeded")

    cluster.faulty.before = ends
    await cluster.sleep(60)
    pod = await cluster.get_pod("held")
    assert (pod.status.phase, pod.is_terminating) == ("Succeeded", True)
    assert condition(pod, "DisruptionTarget") is None
    assert await taints(cluster) == []


@virtual(new_cluster)
async def test_node_that_is_back_keeps_a_volume_it_has_mounted(cluster: ControllerCluster) -> None:
    """The node reports the unmount, and attach/detach waits for that."""
    await cluster.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("volume-a"))
    await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment("c", "n"))
    await cluster.start()
    await request_eviction(cluster)

    async def comes_back(request: Request) -> None:
        if request.path.partition("?")[0].endswith("/pods/p/status"):
            await post(cluster, "True")
            mounted = {"volumesInUse": ["kubernetes.io/csi/volumes.refloat.dev^data"]}
            await cluster.client.patch(kinds.NODES, "n", {"status": mounted}, subresource="status")

    cluster.faulty.before = comes_back
    await cluster.sleep(60)
    assert await cluster.find_pod("p") is None
    assert sorted(await attachments(cluster)) == ["a", "b"]
    assert event_reasons(cluster)[-1] == "Normal ForceEvictionFinished"


@virtual(running, new_cluster, Gates())
async def test_without_its_gate_nobody_runs(cluster: ControllerCluster) -> None:
    await request_eviction(cluster)
    await cluster.sleep(600)
    assert await cluster.find_pod("p") is not None
    assert await taints(cluster) == [EVICTION_TAINT["key"]]


@virtual(new_cluster, Gates({TAINT_FORCE_EVICTION: True, POD_DISRUPTION_CONDITIONS: False}))
async def test_pods_fail_without_a_condition_with_its_gate_off(cluster: ControllerCluster) -> None:
    await cluster.pod("held", node="n", finalizers=HELD)
    await cluster.start()
    await request_eviction(cluster)
    await cluster.sleep(51)
    pod = await cluster.get_pod("held")
    assert pod.status.phase == "Failed"
    assert condition(pod, "DisruptionTarget") is None


# The writes: volumes, begin, two of each of two pods, the attachment, the end.
WRITES = 8


@pytest.mark.parametrize("number", range(1, WRITES + 2))
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    await cluster.pod("held", node="n", finalizers=HELD)
    await request_eviction(cluster)
    await FAULTS[fault](cluster, number, 60)
    await cluster.sleep(120)
    assert await cluster.find_pod("p") is None
    pod = await cluster.get_pod("held")
    assert condition(pod, "DisruptionTarget") == TARGET
    assert await attachments(cluster) == ["b"]
    current = await node(cluster)
    assert (current.status.volumes_in_use, current.status.volumes_attached) == (None, None)
    assert await taints(cluster) == []
    assert PROGRESS not in (current.metadata.annotations or {})


@pytest.mark.parametrize("returns", ["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
@virtual(new_cluster, seed_from="number")
async def test_a_node_that_returns_at_a_write_is_refused_or_finished_with(
    cluster: ControllerCluster, returns: str, number: int
) -> None:
    """Refused until the eviction begins, at the second write; finished from then on."""
    await cluster.pod("held", node="n", finalizers=HELD)
    await request_eviction(cluster)
    await cluster.start()
    moment = number if returns == "before" else number + 1

    async def comes_back(_: Any) -> None:
        if cluster.faulty.writes == moment:
            await renew(cluster)
            await post(cluster, "True")

    cluster.faulty.before = comes_back
    await cluster.sleep(120)
    assert await taints(cluster) == []
    assert PROGRESS not in ((await node(cluster)).metadata.annotations or {})
    other, pod = await cluster.find_pod("held"), await cluster.find_pod("p")
    assert other is not None
    if moment <= 2:
        assert pod is not None
        assert (pod.status.phase, other.status.phase) == ("Running", "Running")
        assert sorted(await attachments(cluster)) == ["a", "b"]
        assert event_reasons(cluster)[-1] == "Warning ForceEvictionRefused"
    else:
        assert pod is None
        assert other.status.phase == "Failed"
        assert await attachments(cluster) == ["b"]
        assert event_reasons(cluster)[-1] == "Normal ForceEvictionFinished"


@virtual(new_cluster)
async def test_gate_off_between_two_volumes_keeps_the_second(cluster: ControllerCluster) -> None:
    await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment("c", "n"))
    await cluster.start()
    await request_eviction(cluster)

    async def goes_off(request: Request) -> None:
        if request.method == "DELETE" and "volumeattachments" in request.path:
            cluster.process.env.update(gates=Gates())

    cluster.faulty.before = goes_off
    await cluster.sleep(60)
    assert len(await attachments(cluster)) == 2
    assert await taints(cluster) == [EVICTION_TAINT["key"]]
    cluster.faulty.before = nothing
    cluster.process.env.update(gates=ON)
    await cluster.sleep(60)
    assert await attachments(cluster) == ["b"]
    assert await taints(cluster) == []


@pytest.mark.parametrize("number", range(2, WRITES - 1))  # with one pod
@virtual(new_cluster, seed_from="number")
async def test_a_gate_that_is_switched_off_stops_it_and_on_again_ends_it(
    cluster: ControllerCluster, number: int
) -> None:
    await request_eviction(cluster)
    await cluster.start(dies_at=number)
    await cluster.sleep(60)
    await cluster.stop()
    # A while without the gate, in which the node is back and runs something new.
    await renew(cluster)
    await post(cluster, "True")
    await cluster.sleep(600)
    before = (await node(cluster)).metadata.resource_version
    await cluster.pod("new", node="n")
    await cluster.status("new", startTime=times.format_time(cluster.sim.clock.now()))
    await cluster.start()
    await cluster.sleep(60)
    assert (await node(cluster)).metadata.resource_version != before
    assert await taints(cluster) == []
    new = await cluster.get_pod("new")
    assert new.status.phase == "Running"
