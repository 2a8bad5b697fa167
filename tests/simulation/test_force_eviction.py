# SPDX-License-Identifier: Apache-2.0
"""Force eviction on a real API server in virtual time (KEP-36), its nodes moved by hand."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from refloat.api import times
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.app import inside
from refloat.app.equipment import Equipment
from refloat.base.gates import POD_DISRUPTION_CONDITIONS, TAINT_FORCE_EVICTION, Gates
from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers.force_eviction.controller import ForceEviction
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.policy.force_eviction import PROGRESS
from refloat.policy.switches import ALL_ON
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import controller_world
from tests.simulation.controller_world import FAULTS, Make, World, condition
from tests.simulation.job_world import nothing
from tests.virtual import virtual

ON = Gates({TAINT_FORCE_EVICTION: True})
WISH: Object = {"key": "refloat.dev/force-eviction", "value": "true", "effect": "NoSchedule"}
HELD = ["example.com/held"]
TARGET = {
    "status": "True",
    "reason": "DeletionByForceEviction",
    "message": "Force eviction: deleting a pod of a node that is down",
}
LEASES = "kube-node-lease"
MAKE = inside.MAKERS["force-eviction-controller"]


class Switched:
    """Makes the controller, with a gate that can be switched while it runs."""

    force_eviction: ForceEviction

    def __call__(self, shared: Equipment) -> Sequence[Worker]:
        client = shared.client("force-eviction-controller")
        self.force_eviction = ForceEviction(
            client,
            shared.nodes,
            None,
            clock=shared.clock,
            sink=shared.recorder(client, "force-eviction"),
            instruments=shared.instruments,
            metrics=ForceEvictionMetrics(shared.registry),
        )
        return [self.force_eviction.controller]


@contextlib.asynccontextmanager
async def world(sim: Sim, gates: Gates = ON, make: Make = MAKE) -> AsyncIterator[World]:
    """A node `n` that has just gone down with a pod and a volume, and says so."""
    async with controller_world.world(sim, make, gates) as w:
        await w.node("n")
        await renew(w)
        await post(w, "Unknown")
        status = {"volumesInUse": ["v"], "volumesAttached": [{"name": "v", "devicePath": ""}]}
        await w.client.patch(kinds.NODES, "n", {"status": status}, subresource="status")
        await w.client.create(kinds.VOLUME_ATTACHMENTS, attachment("a", "n"))
        await w.client.create(kinds.VOLUME_ATTACHMENTS, attachment("b", "m"))
        await w.pod("p", node="n")
        yield w


def attachment(name: str, node: str) -> Object:
    source = {"persistentVolumeName": f"volume-{name}"}
    return builders.volume_attachment(name, node=node, source=source)


async def post(w: World, ready: str) -> None:
    ready_condition = {"type": "Ready", "status": ready}
    await w.client.patch(
        kinds.NODES,
        "n",
        {"status": {"conditions": [ready_condition]}},
        patch_type="strategic",
        subresource="status",
    )


async def renew(w: World) -> None:
    when = times.format_micro(w.sim.clock.now())
    spec = {"renewTime": when, "leaseDurationSeconds": 40}
    try:
        await w.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace=LEASES)
    except errors.NotFound:
        await w.client.create(kinds.LEASES, {**builders.lease("n"), "spec": spec}, namespace=LEASES)


async def wish(w: World, *taints: Object) -> None:
    await w.client.patch(kinds.NODES, "n", {"spec": {"taints": list(taints or (WISH,))}})


async def node(w: World) -> Node:
    return await w.client.get(kinds.NODES, "n")


async def taints(w: World) -> list[str]:
    return [each.key for each in (await node(w)).spec.taints or () if each.key == WISH["key"]]


def told(w: World) -> list[str]:
    return [f"{kind} {why}" for kind, why, _ in w.told.events if why != "ForceEviction"]


async def attachments(w: World) -> list[str]:
    pages = w.client.list(kinds.VOLUME_ATTACHMENTS)
    return [each.metadata.name async for page in pages for each in page.items]


@virtual(seeds=3)
async def test_a_node_that_is_down_gives_up_pods_and_volumes(sim: Sim) -> None:
    """KEP-36, Scenario 1"""
    async with world(sim) as w:
        await w.pod("held", node="n", finalizers=HELD)
        await w.pod("elsewhere", node="m")
        await w.pod("stays", node="n", spec={"tolerations": [{"operator": "Exists"}]})
        await w.start()
        await wish(w)
        await sim.clock.sleep(49)
        assert (await node(w)).status.volumes_in_use == ("v",)
        assert await w.found("p") is not None
        await sim.clock.sleep(2)
        seen = await node(w)
        assert (seen.status.volumes_in_use, seen.status.volumes_attached) == (None, None)
        assert await taints(w) == []
        assert PROGRESS not in (seen.metadata.annotations or {})
        assert await w.found("p") is None
        held = await w.found("held")
        assert held is not None
        assert (held.status.phase, held.is_terminating) == ("Failed", True)
        assert condition(held, "DisruptionTarget") == TARGET
        for name in ("elsewhere", "stays"):
            other = await w.found(name)
            assert other is not None
            assert other.status.phase == "Running"
        assert await attachments(w) == ["b"]
        assert told(w) == ["Normal ForceEvictionStarted", "Normal ForceEvictionFinished"]
        assert w.sample("refloat_force_eviction_pods_total") == 2
        assert w.sample("refloat_force_eviction_volumes_total") == 1
        assert w.sample("refloat_force_eviction_nodes_total", result="finished") == 1
        assert w.sample("refloat_force_eviction_nodes_under_way") == 0


@virtual()
async def test_a_node_that_was_silent_for_long_is_not_waited_for(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await sim.clock.sleep(60)
        await wish(w)
        await sim.clock.sleep(1)
        assert await w.found("p") is None
        assert await taints(w) == []


@virtual()
async def test_the_effect_of_the_kep_is_the_same_wish(sim: Sim) -> None:
    async with controller_world.world(sim, MAKE, ON) as w:
        await w.node("n")
        await renew(w)
        await post(w, "False")
        await w.pod("p", node="n")
        await w.start()
        await wish(w, {"key": "nodeShutdown", "value": "true", "effect": "ForceEviction"})
        await sim.clock.sleep(51)
        assert await w.found("p") is None
        assert (await node(w)).spec.taints is None


@virtual(seeds=3)
async def test_a_ready_node_is_refused_at_once(sim: Sim) -> None:
    """KEP-36, Scenario 3"""
    async with world(sim) as w:
        await post(w, "True")
        await w.start()
        await sim.clock.sleep(60)
        await wish(w)
        await sim.clock.sleep(1)
        assert await taints(w) == []
        pod = await w.found("p")
        assert pod is not None
        assert pod.status.phase == "Running"
        assert (await node(w)).status.volumes_in_use == ("v",)
        [(_, reason, note)] = w.told.events
        assert reason == "ForceEvictionRefused"
        assert "refloat.dev/force-eviction=true:NoSchedule: it is Ready." in note
        assert w.sample("refloat_force_eviction_nodes_total", result="refused") == 1


@virtual(seeds=3)
async def test_a_node_that_still_renews_its_lease_is_refused(sim: Sim) -> None:
    """Though it does not say that it is ready, and whatever its clock says."""
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(30)
        await renew(w)
        await sim.clock.sleep(1)
        assert await taints(w) == []
        assert await w.found("p") is not None
        assert told(w) == ["Warning ForceEvictionRefused"]
        await sim.clock.sleep(300)
        assert await w.found("p") is not None


@virtual()
async def test_a_clock_that_is_wrong_makes_nobody_dead(sim: Sim) -> None:
    """The time in a lease is another machine's: only that it changes says something."""
    async with world(sim) as w:
        spec = {"renewTime": "2001-01-01T00:00:00.000000Z"}
        await w.client.patch(kinds.LEASES, "n", {"spec": spec}, namespace=LEASES)
        await w.start()
        await wish(w)
        await sim.clock.sleep(49)
        assert await w.found("p") is not None
        await sim.clock.sleep(2)
        assert await w.found("p") is None


@virtual()
async def test_a_controller_that_was_restarted_watches_the_lease_anew(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(30)
        await w.stop()
        await w.start()
        await sim.clock.sleep(49)
        assert await w.found("p") is not None
        await sim.clock.sleep(2)
        assert await w.found("p") is None


@virtual(seeds=3)
async def test_a_controller_that_was_restarted_does_not_trust_what_was_begun(sim: Sim) -> None:
    """The node returned while no controller ran, and its Ready condition is still Unknown."""
    async with world(sim) as w:
        await wish(w)
        await w.start(dies_at=2, dies_after=True)  # it has just begun
        await sim.clock.sleep(60)
        await w.stop()
        assert PROGRESS in ((await node(w)).metadata.annotations or {})
        await w.start()
        await sim.clock.sleep(5)
        await renew(w)
        await sim.clock.sleep(60)
        found = await w.found("p")
        assert found is not None
        assert found.status.phase == "Running"
        assert await taints(w) == []
        assert told(w)[-1] == "Warning ForceEvictionRefused"


@virtual()
async def test_a_wish_that_is_taken_back_is_forgotten(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(30)
        await w.client.patch(kinds.NODES, "n", {"spec": {"taints": None}})
        await sim.clock.sleep(300)
        assert await w.found("p") is not None
        assert told(w) == []


@virtual()
async def test_it_is_not_begun_again_after_its_end(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(60)
        version = (await node(w)).metadata.resource_version
        await w.pod("new", node="n")
        await sim.clock.sleep(600)
        assert (await node(w)).metadata.resource_version == version
        assert await w.found("new") is not None


@virtual()
async def test_a_volume_that_another_node_has_by_now_stays_there(sim: Sim) -> None:
    """All nodes share the one name that the attachment of an exclusive volume has."""
    async with world(sim) as w:
        await w.start()
        await wish(w)

        async def goes_to_another_node(request: Request) -> None:
            if request.method == "DELETE" and "volumeattachments" in request.path:
                await w.client.delete(kinds.VOLUME_ATTACHMENTS, "a")
                await w.client.create(kinds.VOLUME_ATTACHMENTS, attachment("a", "m"))

        w.mortal.before = goes_to_another_node
        await sim.clock.sleep(60)
        assert sorted(await attachments(w)) == ["a", "b"]
        assert await taints(w) == []


@virtual()
async def test_a_pod_that_ends_well_before_it_is_failed_has_ended_well(sim: Sim) -> None:
    """Its node is back, and says so at the last moment."""
    async with world(sim) as w:
        await w.pod("held", node="n", finalizers=HELD)
        await w.start()
        await wish(w)

        async def ends(request: Request) -> None:
            if request.path.partition("?")[0].endswith("/pods/held/status"):
                w.mortal.before = nothing
                await w.status("held", phase="Succeeded")

        w.mortal.before = ends
        await sim.clock.sleep(60)
        held = await w.found("held")
        assert held is not None
        assert (held.status.phase, held.is_terminating) == ("Succeeded", True)
        assert condition(held, "DisruptionTarget") is None
        assert await taints(w) == []


@virtual()
async def test_a_volume_that_a_node_has_mounted_when_it_is_back_is_left_to_it(sim: Sim) -> None:
    """It says itself when it has unmounted it, and attach/detach waits for that."""
    async with world(sim) as w:
        await w.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("volume-a"))
        await w.client.create(kinds.VOLUME_ATTACHMENTS, attachment("c", "n"))
        await w.start()
        await wish(w)

        async def comes_back(request: Request) -> None:
            if request.path.partition("?")[0].endswith("/pods/p/status"):
                await post(w, "True")
                mounted = {"volumesInUse": ["kubernetes.io/csi/volumes.refloat.dev^data"]}
                await w.client.patch(kinds.NODES, "n", {"status": mounted}, subresource="status")

        w.mortal.before = comes_back
        await sim.clock.sleep(60)
        assert await w.found("p") is None
        assert sorted(await attachments(w)) == ["a", "b"]
        assert told(w)[-1] == "Normal ForceEvictionFinished"


@virtual()
async def test_without_its_gate_nobody_runs(sim: Sim) -> None:
    async with world(sim, Gates()) as w:
        await w.start()
        await wish(w)
        await sim.clock.sleep(600)
        assert await w.found("p") is not None
        assert await taints(w) == [WISH["key"]]


@virtual()
async def test_without_disruption_conditions_pods_fail_without_one(sim: Sim) -> None:
    gates = Gates({TAINT_FORCE_EVICTION: True, POD_DISRUPTION_CONDITIONS: False})
    async with world(sim, gates) as w:
        await w.pod("held", node="n", finalizers=HELD)
        await w.start()
        await wish(w)
        await sim.clock.sleep(51)
        held = await w.found("held")
        assert held is not None
        assert held.status.phase == "Failed"
        assert condition(held, "DisruptionTarget") is None


# The writes: volumes, begin, two of each of two pods, the attachment, the end.
WRITES = 8


@pytest.mark.parametrize("number", range(1, WRITES + 2))
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(fault: str, number: int) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("held", node="n", finalizers=HELD)
            await wish(w)
            await FAULTS[fault](w, number, 60)
            await sim.clock.sleep(120)
            assert await w.found("p") is None
            held = await w.found("held")
            assert held is not None
            assert condition(held, "DisruptionTarget") == TARGET
            assert await attachments(w) == ["b"]
            seen = await node(w)
            assert (seen.status.volumes_in_use, seen.status.volumes_attached) == (None, None)
            assert await taints(w) == []
            assert PROGRESS not in (seen.metadata.annotations or {})

    run(program, seed=number)


@pytest.mark.parametrize("returns", ["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
def test_a_node_that_returns_at_a_write_is_refused_or_finished_with(
    returns: str, number: int
) -> None:
    """Refused until it begins, at the second write; finished with from then on."""

    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("held", node="n", finalizers=HELD)
            await wish(w)
            await w.start()
            moment = number if returns == "before" else number + 1

            async def comes_back(_: Any) -> None:
                if w.mortal.writes == moment:
                    await renew(w)
                    await post(w, "True")

            w.mortal.before = comes_back
            await sim.clock.sleep(120)
            assert await taints(w) == []
            assert PROGRESS not in ((await node(w)).metadata.annotations or {})
            held, pod = await w.found("held"), await w.found("p")
            assert held is not None
            if moment <= 2:
                assert pod is not None
                assert (pod.status.phase, held.status.phase) == ("Running", "Running")
                assert sorted(await attachments(w)) == ["a", "b"]
                assert told(w)[-1] == "Warning ForceEvictionRefused"
            else:
                assert pod is None
                assert held.status.phase == "Failed"
                assert await attachments(w) == ["b"]
                assert told(w)[-1] == "Normal ForceEvictionFinished"

    run(program, seed=number)


@virtual()
async def test_a_gate_that_is_switched_off_between_two_volumes_keeps_the_second(sim: Sim) -> None:
    made = Switched()
    async with world(sim, make=made) as w:
        await w.client.create(kinds.VOLUME_ATTACHMENTS, attachment("c", "n"))
        await w.start()
        await wish(w)

        async def goes_off(request: Request) -> None:
            if request.method == "DELETE" and "volumeattachments" in request.path:
                made.force_eviction.take_up(is_on=False, switches=ALL_ON)

        w.mortal.before = goes_off
        await sim.clock.sleep(60)
        assert len(await attachments(w)) == 2
        assert await taints(w) == [WISH["key"]]
        w.mortal.before = nothing
        made.force_eviction.take_up(is_on=True, switches=ALL_ON)
        await sim.clock.sleep(60)
        assert await attachments(w) == ["b"]
        assert await taints(w) == []


@pytest.mark.parametrize("number", range(2, WRITES - 1))  # with one pod
def test_a_gate_that_is_switched_off_stops_it_and_on_again_ends_it(number: int) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await wish(w)
            await w.start(dies_at=number)
            await sim.clock.sleep(60)
            await w.stop()
            # A while without the gate, in which the node is back and runs something new.
            await renew(w)
            await post(w, "True")
            await sim.clock.sleep(600)
            before = (await node(w)).metadata.resource_version
            await w.pod("new", node="n")
            await w.status("new", startTime=times.format_time(sim.clock.now()))
            await w.start()
            await sim.clock.sleep(60)
            assert (await node(w)).metadata.resource_version != before
            assert await taints(w) == []
            new = await w.found("new")
            assert new is not None
            assert new.status.phase == "Running"

    run(program, seed=number)
