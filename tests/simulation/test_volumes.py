# SPDX-License-Identifier: Apache-2.0
"""Claims, volumes and attachments on a real API server in virtual time; nodes say by hand what
they have mounted."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.app import controller_table
from refloat.client import errors, kinds
from refloat.controllers.attach_detach.writes import AttachmentWriter, name_of
from refloat.policy.recovery import force_eviction
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.manager import Worker
from refloat.sim.run import Sim
from tests import builders
from tests.simulation.controller_cluster import AT_ONCE, FAULTS, ControllerCluster, running
from tests.virtual import virtual

NAME = "kubernetes.io/csi/volumes.refloat.dev^data"


def claiming(claim: str) -> Object:
    return {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": claim}}]}


CLAIMING = claiming("c")

EXCLUSIVE = "exclusively attached to one node and can't be attached to another"


def blocked(volume: str, why: str) -> tuple[str, str, str]:
    note = f'Multi-Attach error for volume "{volume}" Volume is already {why}'
    return "Warning", "FailedAttachVolume", note


def make(env: ControllerEnv) -> Sequence[Worker]:
    names = ("persistentvolume-binder-controller", "persistentvolume-attach-detach-controller")
    return controller_table.build(env, names)


@contextlib.asynccontextmanager
async def new_cluster(
    sim: Sim, mode: str = "ReadWriteOnce", **claim: Any
) -> AsyncIterator[ControllerCluster]:
    async with ControllerCluster(sim, make) as cluster:
        for name in ("a", "b"):
            await cluster.node(name)
            await ready(cluster, name, "True")
        await cluster.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("v", modes=[mode]))
        await cluster.client.create(
            kinds.PERSISTENT_VOLUME_CLAIMS,
            builders.claim("c", modes=[mode], **(claim or {"volume": "v"})),
            namespace="default",
        )
        yield cluster


@contextlib.asynccontextmanager
async def attached_volume(sim: Sim) -> AsyncIterator[ControllerCluster]:
    """A pod `one` on node `a` whose volume is attached there."""
    async with new_cluster(sim) as cluster:
        await cluster.pod("one", node="a", spec=CLAIMING)
        await cluster.start()
        await sim.clock.sleep(1)
        yield cluster


async def ready(cluster: ControllerCluster, node: str, value: str) -> None:
    await status(cluster, node, conditions=[{"type": "Ready", "status": value}])


async def status(cluster: ControllerCluster, node: str, **fields: Any) -> None:
    await cluster.client.patch(kinds.NODES, node, {"status": fields}, subresource="status")


async def progress(cluster: ControllerCluster, node: str, text: str) -> None:
    """How far force eviction came with a node that an administrator declared down."""
    patch = {
        "metadata": {"annotations": {force_eviction.PROGRESS: text}},
        "spec": {"taints": [msgspec.to_builtins(force_eviction.REQUEST_TAINT)]},
    }
    await cluster.client.patch(kinds.NODES, node, patch)


async def holders(cluster: ControllerCluster) -> list[str]:
    """The nodes that have an attachment."""
    pages = cluster.client.list(kinds.VOLUME_ATTACHMENTS)
    attachments = [each async for page in pages for each in page.items]
    return sorted(each.spec.node_name for each in attachments if each.status.attached)


async def attached(cluster: ControllerCluster) -> list[str]:
    """The nodes that have an attachment, and those that say so."""
    attachments = []
    for name in ("a", "b"):
        node = await cluster.client.get(kinds.NODES, name)
        attachments += [name for each in node.status.volumes_attached or () if each.name == NAME]
    assert await holders(cluster) == attachments
    return attachments


async def twin(cluster: ControllerCluster) -> None:
    """Another PersistentVolume of the same folder, and a claim that has it."""
    await cluster.client.create(kinds.PERSISTENT_VOLUMES, builders.volume("twin"))
    await cluster.client.create(
        kinds.PERSISTENT_VOLUME_CLAIMS, builders.claim("d", volume="twin"), namespace="default"
    )


async def other_attachment(cluster: ControllerCluster, node: str) -> None:
    """A VolumeAttachment that a user created."""
    source = {"persistentVolumeName": "v"}
    attachment = builders.volume_attachment("refloat-0123456789abcdef", node=node, source=source)
    attachment["spec"]["attacher"] = "volumes.refloat.dev"
    await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment)
    patch = {"status": {"attached": True}}
    name = attachment["metadata"]["name"]
    await cluster.client.patch(kinds.VOLUME_ATTACHMENTS, name, patch, subresource="status")
    await status(cluster, node, volumesAttached=[{"name": NAME, "devicePath": ""}])


async def gone(cluster: ControllerCluster, volume: str = "v") -> None:
    """Both protections of the volume."""
    await cluster.client.patch(kinds.PERSISTENT_VOLUMES, volume, {"metadata": {"finalizers": None}})
    await cluster.client.delete(kinds.PERSISTENT_VOLUMES, volume)
    with contextlib.suppress(errors.NotFound):
        patch = {"metadata": {"finalizers": None}}
        await cluster.client.patch(kinds.PERSISTENT_VOLUMES, volume, patch)


async def phases(cluster: ControllerCluster) -> tuple[str, str]:
    claim = await cluster.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "c", namespace="default")
    volume = await cluster.client.get(kinds.PERSISTENT_VOLUMES, "v")
    return claim.status.phase, volume.status.phase


@virtual(running, new_cluster)
async def test_a_claim_that_names_a_volume_gets_it(cluster: ControllerCluster) -> None:
    await cluster.sleep(1)
    assert await phases(cluster) == ("Bound", "Bound")
    await cluster.client.delete(kinds.PERSISTENT_VOLUME_CLAIMS, "c", namespace="default")
    await cluster.sleep(1)
    volume = await cluster.client.get(kinds.PERSISTENT_VOLUMES, "v")
    assert volume.status.phase == "Released"


@virtual(running, new_cluster, volume="")
async def test_a_volume_that_names_a_claim_gets_it(cluster: ControllerCluster) -> None:
    await cluster.sleep(1)
    assert await phases(cluster) == ("Pending", "Available")
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c"}
    patch = {"spec": {"claimRef": reference}}
    await cluster.client.patch(kinds.PERSISTENT_VOLUMES, "v", patch)
    await cluster.sleep(1)
    assert await phases(cluster) == ("Bound", "Bound")


@virtual(running, new_cluster)
async def test_a_volume_is_claimed_once(cluster: ControllerCluster) -> None:
    await cluster.sleep(1)
    late = builders.claim("late", volume="v")
    await cluster.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, late, namespace="default")
    await cluster.sleep(1)
    claim = await cluster.client.get(kinds.PERSISTENT_VOLUME_CLAIMS, "late", namespace="default")
    assert claim.status.phase == "Pending"
    assert cluster.event_log.events[-1] == (
        "Warning",
        "FailedBinding",
        'volume "v" already bound to a different claim.',
    )


@virtual(new_cluster, volume="")
async def test_a_claim_gets_no_volume_that_cannot_be_used_so(cluster: ControllerCluster) -> None:
    env = builders.claim("env", volume="v", modes=["ReadWriteMany"])
    await cluster.client.create(kinds.PERSISTENT_VOLUME_CLAIMS, env, namespace="default")
    await cluster.start()
    await cluster.sleep(1)
    assert await phases(cluster) == ("Pending", "Available")
    assert "incompatible accessMode" in cluster.event_log.events[-1][2]


@virtual(attached_volume, seeds=5)
async def test_a_volume_goes_from_node_to_node(cluster: ControllerCluster) -> None:
    assert await attached(cluster) == ["a"]
    await status(cluster, "a", volumesInUse=[NAME])
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]
    assert ("Warning", "FailedAttachVolume") in [each[:2] for each in cluster.event_log.events]
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]  # the node has not unmounted the volume yet
    await status(cluster, "a", volumesInUse=None)
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]
    assert cluster.event_log.events[-1][1] == "SuccessfulAttachVolume"


@virtual(attached_volume)
async def test_a_pod_that_has_ended_needs_no_volume(cluster: ControllerCluster) -> None:
    await cluster.status("one", phase="Succeeded")
    await cluster.sleep(1)
    assert await attached(cluster) == []


@virtual(attached_volume)
async def test_node_that_is_down_keeps_a_volume_for_six_minutes(cluster: ControllerCluster) -> None:
    await status(cluster, "a", volumesInUse=[NAME])
    await ready(cluster, "a", "Unknown")
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.sleep(359)
    assert await attached(cluster) == ["a"]
    await cluster.sleep(2)
    assert await attached(cluster) == ["b"]


@virtual(attached_volume)
async def test_out_of_service_frees_it_at_once(cluster: ControllerCluster) -> None:
    await status(cluster, "a", volumesInUse=[NAME])
    await ready(cluster, "a", "Unknown")
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.pod("two", node="b", spec=CLAIMING)
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"taints": [taint]}})
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]


@virtual(attached_volume)
async def test_node_with_cleared_lists_keeps_a_volume(cluster: ControllerCluster) -> None:
    """The node may return with a mounted volume: then force eviction refuses."""
    await ready(cluster, "a", "Unknown")
    await progress(cluster, "a", '{"step":"VolumesCleared"}')
    await status(cluster, "a", volumesAttached=None)
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.sleep(300)
    assert await holders(cluster) == ["a"]
    await progress(cluster, "a", '{"step":"Evicting","started":"2026-01-01T00:00:00Z"}')
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]


@virtual(new_cluster)
async def test_node_whose_taint_is_gone_gets_volumes_again(cluster: ControllerCluster) -> None:
    """The controller that would remove the annotation may be switched off."""
    await progress(cluster, "a", '{"step":"Evicting","started":"2026-01-01T00:00:00Z"}')
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.start()
    await cluster.sleep(60)
    assert await attached(cluster) == []
    await cluster.client.patch(kinds.NODES, "a", {"spec": {"taints": None}})
    await cluster.sleep(1)
    assert await attached(cluster) == ["a"]


@virtual(new_cluster)
async def test_node_hears_of_no_volume_that_another_has_by_now(cluster: ControllerCluster) -> None:
    """The caches may be behind."""
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.start()
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]
    name = name_of(NAME, "a", exclusive=True)
    assert not await AttachmentWriter(cluster.client).report(NAME, "a", name)
    assert await attached(cluster) == ["b"]
    await cluster.stop()
    await cluster.client.delete(kinds.VOLUME_ATTACHMENTS, name)
    assert not await AttachmentWriter(cluster.client).report(NAME, "a", name)
    assert (await cluster.client.get(kinds.NODES, "a")).status.volumes_attached is None


@virtual(new_cluster, "ReadWriteMany")
async def test_a_shared_volume_is_on_all_nodes_that_need_it(cluster: ControllerCluster) -> None:
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.start()
    await cluster.sleep(1)
    assert await attached(cluster) == ["a", "b"]


@virtual(new_cluster, seeds=5)
async def test_two_volumes_of_a_folder_are_on_one_node_at_a_time(
    cluster: ControllerCluster,
) -> None:
    """Both pods would write the volume."""
    await twin(cluster)
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.pod("two", node="b", spec=claiming("d"))
    await cluster.start()
    await cluster.sleep(60)
    (holder,) = await attached(cluster)
    events = [each for each in cluster.event_log.events if each[1] == "FailedAttachVolume"]
    user, volume = ("one", "twin") if holder == "a" else ("two", "v")
    assert events == [blocked(volume, f"used by pod(s) {user}")]
    await cluster.client.delete(kinds.PODS, user, namespace="default", options=AT_ONCE)
    await cluster.sleep(1)
    assert await attached(cluster) == ["b" if holder == "a" else "a"]


@virtual(new_cluster)
async def test_folder_stays_while_a_pod_needs_it_by_any_volume(cluster: ControllerCluster) -> None:
    await twin(cluster)
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.pod("two", node="a", spec=claiming("d"))
    await cluster.start()
    await cluster.sleep(1)
    for name, names in (("one", ["a"]), ("two", [])):
        assert await attached(cluster) == ["a"]
        await cluster.client.delete(kinds.PODS, name, namespace="default", options=AT_ONCE)
        await cluster.sleep(1)
        assert await attached(cluster) == names


@virtual(new_cluster)
async def test_attachment_under_another_name_is_detached(cluster: ControllerCluster) -> None:
    await other_attachment(cluster, "a")
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.start()
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]


@virtual(attached_volume, seeds=3)
async def test_what_is_attached_of_a_deleted_volume_is_detached(cluster: ControllerCluster) -> None:
    await status(cluster, "a", volumesInUse=[NAME])
    await gone(cluster)
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]  # the pod uses the volume
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]  # the node has not unmounted the volume yet
    await status(cluster, "a", volumesInUse=None)
    await cluster.sleep(1)
    assert await attached(cluster) == []


@virtual(attached_volume)
async def test_unneeded_attachment_of_a_deleted_volume_goes(cluster: ControllerCluster) -> None:
    """No controller ran meanwhile."""
    await cluster.stop()
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await gone(cluster)
    await cluster.start()
    await cluster.sleep(1)
    assert await attached(cluster) == []


@virtual(new_cluster)
async def test_what_is_attached_of_a_deleted_volume_under_another_name_is_detached(
    cluster: ControllerCluster,
) -> None:
    await other_attachment(cluster, "a")
    await status(cluster, "a", volumesInUse=[NAME])
    await gone(cluster)
    await cluster.start()
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]
    await status(cluster, "a", volumesInUse=None)
    await cluster.sleep(1)
    assert await attached(cluster) == []


@virtual(new_cluster)
async def test_attachment_of_a_deleted_volume_keeps_its_folder(cluster: ControllerCluster) -> None:
    await twin(cluster)
    await cluster.pod("one", node="a", spec=CLAIMING)
    await cluster.start()
    await cluster.sleep(1)
    await status(cluster, "a", volumesInUse=[NAME])
    await gone(cluster)
    await cluster.pod("two", node="b", spec=claiming("d"))
    await cluster.sleep(60)
    assert await attached(cluster) == ["a"]
    assert cluster.event_log.events[-1] == blocked("twin", "used by pod(s) one")
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await status(cluster, "a", volumesInUse=None)
    await cluster.sleep(1)
    assert await attached(cluster) == ["b"]


@virtual(new_cluster)
async def test_attachments_of_others_are_left_alone(cluster: ControllerCluster) -> None:
    attachment = builders.volume_attachment("other", node="a")
    await cluster.client.create(kinds.VOLUME_ATTACHMENTS, attachment)
    await cluster.start()
    await cluster.sleep(1)
    newest = await cluster.client.get(kinds.VOLUME_ATTACHMENTS, "other")
    assert not newest.metadata.deletion_timestamp


@virtual(attached_volume)
async def test_who_waits_for_a_volume_is_told_once_for_whom(cluster: ControllerCluster) -> None:
    cluster.event_log.events.clear()
    await status(cluster, "a", volumesInUse=[NAME])
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.sleep(60)
    assert cluster.event_log.events == [blocked("v", "used by pod(s) one")]
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(60)
    assert cluster.event_log.events == [blocked("v", "used by pod(s) one")]


@virtual(attached_volume)
async def test_who_waits_for_node_to_unmount_volume_is_told_so(cluster: ControllerCluster) -> None:
    await status(cluster, "a", volumesInUse=[NAME])
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(1)
    cluster.event_log.events.clear()
    for name in ("two", "three"):
        await cluster.pod(name, node="b", spec=CLAIMING)
        await cluster.sleep(10)
        assert cluster.event_log.events == [blocked("v", EXCLUSIVE)]
        await cluster.client.delete(kinds.PODS, name, namespace="default", options=AT_ONCE)
        await cluster.sleep(1)
        cluster.event_log.events.clear()


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    """Bound, attached to the first, and then to the second."""
    await cluster.pod("one", node="a", spec=CLAIMING)
    await FAULTS[fault](cluster, number, 5)
    await cluster.sleep(10)
    await cluster.pod("two", node="b", spec=CLAIMING)
    await cluster.client.delete(kinds.PODS, "one", namespace="default", options=AT_ONCE)
    await cluster.sleep(60)
    if cluster.faulty.died.is_set():
        await cluster.stop()
        await cluster.start()
        await cluster.sleep(60)
    assert await phases(cluster) == ("Bound", "Bound")
    assert await attached(cluster) == ["b"]
