# SPDX-License-Identifier: Apache-2.0
"""Owners and what they leave behind, on a real API server in virtual time."""

import contextlib
from functools import partial
from typing import Any

import pytest

from refloat.api import kinds as resources
from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.app import controller_table
from refloat.client import errors
from refloat.client.contract import DeleteOptions, Kind
from refloat.client.requests import Request
from tests import builders
from tests.simulation.controller_cluster import FAULTS, NAMESPACE, ControllerCluster, running
from tests.virtual import virtual

MAPS = Kind(resources.of("configmaps"), ApiObject)
SPACES = Kind(resources.of("namespaces"), ApiObject)
VOLUMES = Kind(resources.of("persistentvolumes"), ApiObject)
HELD = ["example.com/held"]

new_cluster = partial(
    ControllerCluster, build=controller_table.CONTROLLERS["garbage-collector-controller"]
)


async def add(
    cluster: ControllerCluster,
    name: str,
    *owners: Object,
    namespace: str = NAMESPACE,
    **metadata: Any,
) -> Object:
    """A ConfigMap with these owners; `blocks`: a reference that blocks the owner."""
    obj = builders.config_map(name, ownerReferences=list(owners), **metadata)
    obj_after = await cluster.client.create(MAPS, obj, namespace=namespace)
    return reference(name, obj_after.metadata.uid)


def reference(name: str, uid: str, **more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
        **more,
    }


async def there(cluster: ControllerCluster, namespace: str = NAMESPACE) -> list[str]:
    """The names that are left after a while."""
    await cluster.sleep(30)
    maps = [
        each async for page in cluster.client.list(MAPS, namespace=namespace) for each in page.items
    ]
    return sorted(each.metadata.name for each in maps)


async def get(cluster: ControllerCluster, name: str) -> ApiObject:
    return await cluster.client.get(MAPS, name, namespace=NAMESPACE)


async def delete(cluster: ControllerCluster, name: str, propagation: Any = "Background") -> None:
    options = DeleteOptions(propagation=propagation)
    await cluster.client.delete(MAPS, name, namespace=NAMESPACE, options=options)


@virtual(running, new_cluster, seeds=3)
async def test_what_is_left_behind_goes_too(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    child = await add(cluster, "child", owner)
    await add(cluster, "grandchild", child)
    await add(cluster, "stranger")
    await delete(cluster, "owner")
    assert await there(cluster) == ["stranger"]


@virtual(running, new_cluster, seeds=3)
async def test_in_the_foreground_the_owner_goes_last(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    child = await add(cluster, "child", owner)
    await add(cluster, "grandchild", child, finalizers=HELD)
    await delete(cluster, "owner", "Foreground")
    assert await there(cluster) == ["child", "grandchild", "owner"]
    assert (await get(cluster, "owner")).metadata.finalizers == ("foregroundDeletion",)
    await release(cluster, "grandchild")
    assert await there(cluster) == []


async def release(cluster: ControllerCluster, name: str) -> None:
    free = {"metadata": {"finalizers": None}}
    await cluster.client.patch(MAPS, name, free, namespace=NAMESPACE)


@virtual(running, new_cluster)
async def test_dependent_that_does_not_block_is_not_waited_for(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    await add(cluster, "child", {**owner, "blockOwnerDeletion": False}, finalizers=HELD)
    await delete(cluster, "owner", "Foreground")
    assert await there(cluster) == ["child"]
    assert (await get(cluster, "child")).metadata.deletion_timestamp is not None


@virtual(running, new_cluster, seeds=3)
async def test_an_owner_does_not_wait_for_what_is_elsewhere(cluster: ControllerCluster) -> None:
    """A user of another namespace writes the uid of an owner that is none of the user's."""
    await cluster.client.create(SPACES, {"metadata": {"name": "elsewhere"}})
    owner = await add(cluster, "owner")
    await add(cluster, "forged", owner, namespace="elsewhere", finalizers=HELD)
    await delete(cluster, "owner", "Foreground")
    assert await there(cluster) == []


@pytest.mark.parametrize("seen_first", [True, False])
@virtual(new_cluster, seeds=3)
async def test_an_owner_that_leaves_orphans_writes_nothing_elsewhere(
    cluster: ControllerCluster, seen_first: bool
) -> None:
    await cluster.client.create(SPACES, {"metadata": {"name": "elsewhere"}})
    if seen_first:
        await cluster.start()
    owner = await add(cluster, "owner")
    await add(cluster, "forged", owner, namespace="elsewhere", finalizers=HELD)
    await delete(cluster, "owner", "Orphan")
    if not seen_first:
        await cluster.start()
    assert await there(cluster) == []
    forged = await cluster.client.get(MAPS, "forged", namespace="elsewhere")
    assert [each.uid for each in forged.metadata.owner_references or ()] == [owner["uid"]]


@virtual(running, new_cluster)
async def test_owner_that_waits_goes_when_the_last_forgets_it(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    other = await add(cluster, "other")
    await add(cluster, "child", owner, other)
    await delete(cluster, "owner", "Foreground")
    assert await there(cluster) == ["child", "other"]
    (reference,) = (await get(cluster, "child")).metadata.owner_references or ()
    assert reference.name == "other"


@virtual(running, new_cluster)
async def test_a_circle_does_not_wait_for_itself(cluster: ControllerCluster) -> None:
    first = await add(cluster, "first")
    second = await add(cluster, "second", first)
    circle = {"metadata": {"ownerReferences": [second]}}
    await cluster.client.patch(MAPS, "first", circle, namespace=NAMESPACE)
    await delete(cluster, "first", "Foreground")
    assert await there(cluster) == []


@virtual(running, new_cluster, seeds=3)
async def test_orphans_are_set_free(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    await add(cluster, "child", owner)
    await delete(cluster, "owner", "Orphan")
    assert await there(cluster) == ["child"]
    assert not (await get(cluster, "child")).metadata.owner_references


@virtual(running, new_cluster)
async def test_an_owner_that_never_was_is_as_one_that_is_gone(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    await add(cluster, "no-such-uid", reference("owner", "another-uid"))
    await add(cluster, "no-such-name", {**owner, "name": "else"})
    await add(cluster, "of-another-kind", {**owner, "kind": "Secret"})
    await add(cluster, "half", owner, reference("nobody", "no-uid"))
    assert await there(cluster) == ["half", "owner"]
    (remaining,) = (await get(cluster, "half")).metadata.owner_references or ()
    assert remaining.name == "owner"


@virtual(running, new_cluster)
async def test_owner_of_an_unserved_kind_keeps_what_it_owns(cluster: ControllerCluster) -> None:
    strange = {**reference("x", "u"), "apiVersion": "example.com/v1", "kind": "Thing"}
    await add(cluster, "a", strange)
    assert await there(cluster) == ["a"]


@virtual(running, new_cluster)
async def test_owner_in_another_namespace_is_none_as_events_say(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    await add(cluster, "a", owner, namespace="kube-system")
    assert await there(cluster, "kube-system") == []
    note = (
        f"ownerRef [v1/ConfigMap, namespace: kube-system, name: owner, uid: {owner['uid']}] "
        'does not exist in namespace "kube-system"'
    )
    assert ("Warning", "OwnerRefInvalidNamespace", note) in cluster.event_log.events


@virtual(running, new_cluster)
async def test_object_without_a_namespace_is_no_owner_in_one(cluster: ControllerCluster) -> None:
    volume = {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
    }
    owner = await add(cluster, "owner")
    metadata = {"name": "v", "ownerReferences": [owner]}
    await cluster.client.create(VOLUMES, {"metadata": metadata, **volume})
    await delete(cluster, "owner")
    await cluster.sleep(30)
    await cluster.client.get(VOLUMES, "v")
    note = (
        f"ownerRef [v1/ConfigMap, namespace: , name: owner, uid: {owner['uid']}] "
        'does not exist in namespace ""'
    )
    assert ("Warning", "OwnerRefInvalidNamespace", note) in cluster.event_log.events


@virtual(new_cluster)
async def test_orphans_of_an_earlier_life_are_found_at_start(cluster: ControllerCluster) -> None:
    owner = await add(cluster, "owner")
    await add(cluster, "child", owner)
    await delete(cluster, "owner")
    await cluster.start()
    assert await there(cluster) == []


@virtual(new_cluster, seeds=3)
async def test_at_a_start_nothing_is_asked_about_what_has_its_owners(
    cluster: ControllerCluster,
) -> None:
    reads: list[str] = []

    async def note(request: Request) -> None:
        reads.append(request.path)

    owner = await add(cluster, "owner")
    children = [f"child{number}" for number in range(9)]
    for name in children:
        await add(cluster, name, owner)
    await cluster.start(before_read=note)
    assert await there(cluster) == [*children, "owner"]
    assert reads == []
    await delete(cluster, "owner")
    assert await there(cluster) == []


@virtual(running, new_cluster, seeds=3)
async def test_a_new_owner_in_time_saves_it(cluster: ControllerCluster) -> None:
    """The delete is of the version that was judged."""
    owner, other = await add(cluster, "owner"), await add(cluster, "other")
    await add(cluster, "child", owner)
    adopted = {"metadata": {"ownerReferences": [other]}}
    await cluster.client.patch(MAPS, "child", adopted, namespace=NAMESPACE)
    await delete(cluster, "owner")
    assert await there(cluster) == ["child", "other"]


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int, propagation: str
) -> None:
    owner = await add(cluster, "owner")
    child = await add(cluster, "child", owner)
    await add(cluster, "grandchild", child)
    await delete(cluster, "owner", propagation)
    await FAULTS[fault](cluster, number, 30)
    survivors = ["child", "grandchild"] if propagation == "Orphan" else []
    assert await there(cluster) == survivors
    with contextlib.suppress(errors.NotFound):
        assert not (await get(cluster, "child")).metadata.owner_references


@virtual(new_cluster, seeds=3)
async def test_an_owner_that_is_added_directly_before_the_delete_saves_its_dependent(
    cluster: ControllerCluster,
) -> None:
    """The delete is of the version that was judged."""
    owner, other = await add(cluster, "owner"), await add(cluster, "other")
    await add(cluster, "child", owner)
    added: list[str] = []

    async def before(request: Request) -> None:
        if request.method == "DELETE" and not added:
            added.append("other")
            owners = {"metadata": {"ownerReferences": [owner, other]}}
            await cluster.client.patch(MAPS, "child", owners, namespace=NAMESPACE)

    await cluster.start(before=before)
    await delete(cluster, "owner")
    assert (await there(cluster), added) == (["child", "other"], ["other"])
