# SPDX-License-Identifier: Apache-2.0
"""Claims, volumes and attachments on a real API server in virtual time; nodes say by hand what
they have mounted."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.app import inside
from refloat.app.equipment import Equipment
from refloat.client import errors, kinds
from refloat.controllers.attach_detach.writes import Writes, name_of
from refloat.policy import force_eviction
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import controller_world
from tests.simulation.controller_world import AT_ONCE, FAULTS, World
from tests.virtual import virtual

NAME = "kubernetes.io/csi/volumes.refloat.dev^data"


def claiming(claim: str) -> Object:
    return {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]}


CLAIMING = claiming("c")

EXCLUSIVE = "exclusively attached to one node and can't be attached to another"


def blocked(volume: str, why: str) -> tuple[str, str, str]:
    said = f'Multi-Attach error for volume "{volume}" Volume is already {why}'
    return "Warning", "FailedAttachVolume", said


def make(shared: Equipment) -> Sequence[Worker]:
    names = ("persistentvolume-binder-controller", "persistentvolume-attach-detach-controller")
    return [worker for name in names for worker in inside.MAKERS[name](shared)]


@contextlib.asynccontextmanager
async def world(sim: Sim, mode: str = "ReadWriteOnce", **claim: Any) -> AsyncIterator[World]:
    async with controller_world.world(sim, make) as w:
        for name in ("a", "b"):
            await w.node(name)
            await ready(w, name, "True")
        await w.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("v", modes=[mode]))
        await w.client.create(
            kinds.PERSISTENT_VOLUME_CLAIMS,
            builders.claim("c", modes=[mode], **(claim or {"volume": "v"})),
            namespace="default",
        )
        yield w


async def ready(w: World, node: str, value: str) -> None:
    await status(w, node, conditions=[{"type": "Ready", "status": value}])


async def status(w: World, node: str, **fields: Any) -> None:
    await w.client.patch(kinds.NODES, node, {"status": fields}, subresource="status")


async def progress(w: World, node: str, text: str) -> None:
    """How far force eviction came with a node that somebody says is down."""
    patch = {
        "metadata": {"annotations": {force_eviction.PROGRESS: text}},
        "spec": {"taints": [msgspec.to_builtins(force_eviction.WISH)]},
    }
    await w.client.patch(kinds.NODES, node, patch)


async def holders(w: World) -> list[str]:
    """The nodes that have an attachment."""
    pages = w.client.list(kinds.VOLUME_ATTACHMENTS)
    held = [each async for page in pages for each in page.items]
    return sorted(each.spec.node_name for each in held if each.status.attached)


async def attached(w: World) -> list[str]:
    """The nodes that have an attachment, and those that say so."""
    said = []
    for name in ("a", "b"):
        node = await w.client.get(kinds.NODES, name)
        said += [name for each in node.status.volumes_attached or () if each.name == NAME]
    assert await holders(w) == said
    return said


async def twin(w: World) -> None:
    """Another PersistentVolume of the same folder, and a claim that has it."""
    await w.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("twin"))
    await w.client.create(
        kinds.PERSISTENT_VOLUME_CLAIMS, builders.claim("d", volume="twin"), namespace="default"
    )


async def other_attachment(w: World, node: str) -> None:
    """One that somebody made by hand."""
    source = {"persistentVolumeName": "v"}
    made = builders.volume_attachment("refloat-0123456789abcdef", node=node, source=source)
    made["spec"]["attacher"] = "volumes.refloat.dev"
    await w.client.create(kinds.VOLUME_ATTACHMENTS, made)
    patch = {"status": {"attached": True}}
    name = made["metadata"]["name"]
    await w.client.patch(kinds.VOLUME_ATTACHMENTS, name, patch, subresource="status")
    await status(w, node, volumesAttached=[{"name": NAME, "devicePath": ""}])


async def gone(w: World, volume: str = "v") -> None:
    """Whatever would keep it."""
    await w.client.patch(kinds.PERSISTENT_VOLUMES, volume, {"metadata": {"finalizers": None}})
    await w.client.delete(kinds.PERSISTENT_VOLUMES, volume)
    with contextlib.suppress(errors.NotFound):
        patch = {"metadata": {"finalizers": None}}
        await w.client.patch(kinds.PERSISTENT_VOLUMES, volume, patch)


async def phases(w: World) -> tuple[str, str]:
    claim = await w.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "c", namespace="default")
    volume = await w.client.get(kinds.PERSISTENT_VOLUMES, "v")
    return claim.status.phase, volume.status.phase


@virtual()
async def test_a_claim_that_names_a_volume_gets_it(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await sim.clock.sleep(1)
        assert await phases(w) == ("Bound", "Bound")
        await w.client.delete(kinds.PERSISTENT_VOLUME_CLAIMS, "c", namespace="default")
        await sim.clock.sleep(1)
        volume = await w.client.get(kinds.PERSISTENT_VOLUMES, "v")
        assert volume.status.phase == "Released"


@virtual()
async def test_a_volume_that_names_a_claim_gets_it(sim: Sim) -> None:
    async with world(sim, volume="") as w:
        await w.start()
        await sim.clock.sleep(1)
        assert await phases(w) == ("Pending", "Available")
        reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
        patch = {"spec": {"claimRef": reference}}
        await w.client.patch(kinds.PERSISTENT_VOLUMES, "v", patch)
        await sim.clock.sleep(1)
        assert await phases(w) == ("Bound", "Bound")


@virtual()
async def test_a_volume_is_claimed_once(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        await sim.clock.sleep(1)
        late = builders.claim("late", volume="v")
        await w.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, late, namespace="default")
        await sim.clock.sleep(1)
        found = await w.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "late", namespace="default")
        assert found.status.phase == "Pending"
        assert w.told.events[-1] == (
            "Warning",
            "FailedBinding",
            'volume "v" already bound to a different claim.',
        )


@virtual()
async def test_a_claim_gets_no_volume_that_cannot_be_used_so(sim: Sim) -> None:
    async with world(sim, volume="") as w:
        shared = builders.claim("shared", volume="v", modes=["ReadWriteMany"])
        await w.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, shared, namespace="default")
        await w.start()
        await sim.clock.sleep(1)
        assert await phases(w) == ("Pending", "Available")
        assert "incompatible accessMode" in w.told.events[-1][2]


@virtual(seeds=5)
async def test_a_volume_goes_from_node_to_node(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        assert await attached(w) == ["a"]
        await status(w, "a", volumesInUse=[NAME])
        await w.pod("two", node="b", spec=CLAIMING)
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]
        assert ("Warning", "FailedAttachVolume") in [each[:2] for each in w.told.events]
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]  # its node has not unmounted it yet
        await status(w, "a", volumesInUse=None)
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]
        assert w.told.events[-1][1] == "SuccessfulAttachVolume"


@virtual()
async def test_a_pod_that_has_ended_needs_no_volume(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await w.status("one", phase="Succeeded")
        await sim.clock.sleep(1)
        assert await attached(w) == []


@virtual()
async def test_a_node_that_is_down_keeps_a_volume_for_six_minutes(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await status(w, "a", volumesInUse=[NAME])
        await ready(w, "a", "Unknown")
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await w.pod("two", node="b", spec=CLAIMING)
        await sim.clock.sleep(359)
        assert await attached(w) == ["a"]
        await sim.clock.sleep(2)
        assert await attached(w) == ["b"]


@virtual()
async def test_out_of_service_frees_it_at_once(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await status(w, "a", volumesInUse=[NAME])
        await ready(w, "a", "Unknown")
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await w.pod("two", node="b", spec=CLAIMING)
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        await w.client.patch(kinds.NODES, "a", {"spec": {"taints": [taint]}})
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]


@virtual()
async def test_a_node_whose_lists_are_cleared_keeps_a_volume_until_it_is_evicted(sim: Sim) -> None:
    """It may yet return, and have it mounted: then force eviction refuses it."""
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await ready(w, "a", "Unknown")
        await progress(w, "a", '{"step":"VolumesCleared"}')
        await status(w, "a", volumesAttached=None)
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await w.pod("two", node="b", spec=CLAIMING)
        await sim.clock.sleep(300)
        assert await holders(w) == ["a"]
        await progress(w, "a", '{"step":"Evicting","started":"2026-01-01T00:00:00Z"}')
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]


@virtual()
async def test_a_node_that_nobody_says_is_down_any_more_gets_volumes(sim: Sim) -> None:
    """Whoever would take off what stands on it may be switched off."""
    async with world(sim) as w:
        await progress(w, "a", '{"step":"Evicting","started":"2026-01-01T00:00:00Z"}')
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(60)
        assert await attached(w) == []
        await w.client.patch(kinds.NODES, "a", {"spec": {"taints": None}})
        await sim.clock.sleep(1)
        assert await attached(w) == ["a"]


@virtual()
async def test_a_node_is_told_of_no_volume_that_another_has_by_now(sim: Sim) -> None:
    """The caches may be behind."""
    async with world(sim) as w:
        await w.pod("two", node="b", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]
        name = name_of(NAME, "a", exclusive=True)
        assert not await Writes(w.client).report(NAME, "a", name)
        assert await attached(w) == ["b"]
        await w.stop()
        await w.client.delete(kinds.VOLUME_ATTACHMENTS, name)
        assert not await Writes(w.client).report(NAME, "a", name)
        assert (await w.client.get(kinds.NODES, "a")).status.volumes_attached is None


@virtual()
async def test_a_shared_volume_is_on_all_nodes_that_need_it(sim: Sim) -> None:
    async with world(sim, "ReadWriteMany") as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.pod("two", node="b", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        assert await attached(w) == ["a", "b"]


@virtual(seeds=5)
async def test_two_persistent_volumes_of_one_folder_are_on_one_node_at_a_time(sim: Sim) -> None:
    """Both would write it."""
    async with world(sim) as w:
        await twin(w)
        await w.pod("one", node="a", spec=CLAIMING)
        await w.pod("two", node="b", spec=claiming("d"))
        await w.start()
        await sim.clock.sleep(60)
        (holder,) = await attached(w)
        told = [each for each in w.told.events if each[1] == "FailedAttachVolume"]
        user, volume = ("one", "twin") if holder == "a" else ("two", "v")
        assert told == [blocked(volume, f"used by pod(s) {user}")]
        await w.client.delete(kinds.PODS, user, namespace="default", options=AT_ONCE)
        await sim.clock.sleep(1)
        assert await attached(w) == ["b" if holder == "a" else "a"]


@virtual()
async def test_a_folder_stays_while_a_pod_needs_it_by_either_persistent_volume(sim: Sim) -> None:
    async with world(sim) as w:
        await twin(w)
        await w.pod("one", node="a", spec=CLAIMING)
        await w.pod("two", node="a", spec=claiming("d"))
        await w.start()
        await sim.clock.sleep(1)
        for name, left in (("one", ["a"]), ("two", [])):
            assert await attached(w) == ["a"]
            await w.client.delete(kinds.PODS, name, namespace="default", options=AT_ONCE)
            await sim.clock.sleep(1)
            assert await attached(w) == left


@virtual()
async def test_an_attachment_under_another_name_is_found_and_detached(sim: Sim) -> None:
    async with world(sim) as w:
        await other_attachment(w, "a")
        await w.pod("one", node="a", spec=CLAIMING)
        await w.pod("two", node="b", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]


@virtual(seeds=3)
async def test_what_is_attached_of_a_deleted_volume_is_detached(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await status(w, "a", volumesInUse=[NAME])
        await gone(w)
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]  # its pod has it
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]  # its node has not unmounted it yet
        await status(w, "a", volumesInUse=None)
        await sim.clock.sleep(1)
        assert await attached(w) == []


@virtual()
async def test_what_nobody_needed_when_its_volume_was_deleted_is_detached(sim: Sim) -> None:
    """Nobody looked meanwhile."""
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await w.stop()
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await gone(w)
        await w.start()
        await sim.clock.sleep(1)
        assert await attached(w) == []


@virtual()
async def test_what_is_attached_of_a_deleted_volume_under_another_name_is_detached(
    sim: Sim,
) -> None:
    async with world(sim) as w:
        await other_attachment(w, "a")
        await status(w, "a", volumesInUse=[NAME])
        await gone(w)
        await w.start()
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]
        await status(w, "a", volumesInUse=None)
        await sim.clock.sleep(1)
        assert await attached(w) == []


@virtual()
async def test_what_a_deleted_volume_has_left_keeps_its_folder_from_other_nodes(sim: Sim) -> None:
    async with world(sim) as w:
        await twin(w)
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await status(w, "a", volumesInUse=[NAME])
        await gone(w)
        await w.pod("two", node="b", spec=claiming("d"))
        await sim.clock.sleep(60)
        assert await attached(w) == ["a"]
        assert w.told.events[-1] == blocked("twin", "used by pod(s) one")
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await status(w, "a", volumesInUse=None)
        await sim.clock.sleep(1)
        assert await attached(w) == ["b"]


@virtual()
async def test_attachments_of_others_are_left_alone(sim: Sim) -> None:
    async with world(sim) as w:
        made = builders.volume_attachment("other", node="a")
        await w.client.create(kinds.VOLUME_ATTACHMENTS, made)
        await w.start()
        await sim.clock.sleep(1)
        found = await w.client.get(kinds.VOLUME_ATTACHMENTS, "other")
        assert not found.metadata.deletion_timestamp


@virtual()
async def test_who_waits_for_a_volume_is_told_once_for_whom(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        w.told.events.clear()
        await status(w, "a", volumesInUse=[NAME])
        await w.pod("two", node="b", spec=CLAIMING)
        await sim.clock.sleep(60)
        assert w.told.events == [blocked("v", "used by pod(s) one")]
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await sim.clock.sleep(60)
        assert w.told.events == [blocked("v", "used by pod(s) one")]


@virtual()
async def test_who_waits_for_a_node_to_unmount_a_volume_is_told_so(sim: Sim) -> None:
    async with world(sim) as w:
        await w.pod("one", node="a", spec=CLAIMING)
        await w.start()
        await sim.clock.sleep(1)
        await status(w, "a", volumesInUse=[NAME])
        await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
        await sim.clock.sleep(1)
        w.told.events.clear()
        for name in ("two", "three"):
            await w.pod(name, node="b", spec=CLAIMING)
            await sim.clock.sleep(10)
            assert w.told.events == [blocked("v", EXCLUSIVE)]
            await w.client.delete(kinds.PODS, name, namespace="default", options=AT_ONCE)
            await sim.clock.sleep(1)
            w.told.events.clear()


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(fault: str, number: int) -> None:
    """Bound, attached to the first, and then to the second."""

    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            await w.pod("one", node="a", spec=CLAIMING)
            await FAULTS[fault](w, number, 5)
            await sim.clock.sleep(10)
            await w.pod("two", node="b", spec=CLAIMING)
            await w.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
            await sim.clock.sleep(60)
            if w.mortal.died.is_set():
                await w.stop()
                await w.start()
                await sim.clock.sleep(60)
            assert await phases(w) == ("Bound", "Bound")
            assert await attached(w) == ["b"]

    run(program, seed=number)
