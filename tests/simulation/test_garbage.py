# SPDX-License-Identifier: Apache-2.0
"""Owners and what they leave behind, on a real API server in virtual time."""

import contextlib
from functools import partial
from typing import Any

import pytest

from refloat.api import kinds as resources
from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.app import inside
from refloat.client import errors
from refloat.client.contract import DeleteOptions, Kind
from refloat.client.requests import Request
from refloat.sim.run import Sim, run
from tests import builders
from tests.simulation import controller_world
from tests.simulation.controller_world import FAULTS, NAMESPACE, World
from tests.virtual import virtual

MAPS = Kind(resources.of("configmaps"), ApiObject)
SPACES = Kind(resources.of("namespaces"), ApiObject)
VOLUMES = Kind(resources.of("persistentvolumes"), ApiObject)
HELD = ["example.com/held"]

world = partial(controller_world.world, make=inside.MAKERS["garbage-collector-controller"])


async def add(
    w: World, name: str, *owners: Object, namespace: str = NAMESPACE, **metadata: Any
) -> Object:
    """A ConfigMap with these owners; a reference to it that blocks."""
    obj = builders.config_map(name, ownerReferences=list(owners), **metadata)
    made = await w.client.create(MAPS, obj, namespace=namespace)
    return reference(name, made.metadata.uid)


def reference(name: str, uid: str, **more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": uid,
        "blockOwnerDeletion": True,
        **more,
    }


async def there(w: World, namespace: str = NAMESPACE) -> list[str]:
    """The names that are left after a while."""
    await w.sim.clock.sleep(30)
    found = [each async for page in w.client.list(MAPS, namespace=namespace) for each in page.items]
    return sorted(each.metadata.name for each in found)


async def get(w: World, name: str) -> ApiObject:
    return await w.client.get(MAPS, name, namespace=NAMESPACE)


async def delete(w: World, name: str, propagation: Any = "Background") -> None:
    options = DeleteOptions(propagation=propagation)
    await w.client.delete(MAPS, name, namespace=NAMESPACE, options=options)


@virtual(seeds=3)
async def test_what_is_left_behind_goes_too(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        child = await add(w, "child", owner)
        await add(w, "grandchild", child)
        await add(w, "stranger")
        await delete(w, "owner")
        assert await there(w) == ["stranger"]


@virtual(seeds=3)
async def test_in_the_foreground_the_owner_goes_last(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        child = await add(w, "child", owner)
        await add(w, "grandchild", child, finalizers=HELD)
        await delete(w, "owner", "Foreground")
        assert await there(w) == ["child", "grandchild", "owner"]
        assert (await get(w, "owner")).metadata.finalizers == ("foregroundDeletion",)
        await release(w, "grandchild")
        assert await there(w) == []


async def release(w: World, name: str) -> None:
    free = {"metadata": {"finalizers": None}}
    await w.client.patch(MAPS, name, free, namespace=NAMESPACE)


@virtual()
async def test_a_dependent_that_does_not_block_is_not_waited_for(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        await add(w, "child", {**owner, "blockOwnerDeletion": False}, finalizers=HELD)
        await delete(w, "owner", "Foreground")
        assert await there(w) == ["child"]
        assert (await get(w, "child")).metadata.deletion_timestamp is not None


@virtual(seeds=3)
async def test_an_owner_does_not_wait_for_what_is_elsewhere(sim: Sim) -> None:
    """A user of another namespace writes the uid of an owner that is none of the user's."""
    async with world(sim) as w:
        await w.start()
        await w.client.create(SPACES, {"metadata": {"name": "elsewhere"}})
        owner = await add(w, "owner")
        await add(w, "forged", owner, namespace="elsewhere", finalizers=HELD)
        await delete(w, "owner", "Foreground")
        assert await there(w) == []


@pytest.mark.parametrize("seen_first", [True, False])
@virtual(seeds=3)
async def test_an_owner_that_leaves_orphans_writes_nothing_elsewhere(
    sim: Sim, seen_first: bool
) -> None:
    async with world(sim) as w:
        await w.client.create(SPACES, {"metadata": {"name": "elsewhere"}})
        if seen_first:
            await w.start()
        owner = await add(w, "owner")
        await add(w, "forged", owner, namespace="elsewhere", finalizers=HELD)
        await delete(w, "owner", "Orphan")
        if not seen_first:
            await w.start()
        assert await there(w) == []
        forged = await w.client.get(MAPS, "forged", namespace="elsewhere")
        assert [each.uid for each in forged.metadata.owner_references or ()] == [owner["uid"]]


@virtual()
async def test_an_owner_that_waits_goes_when_the_last_forgets_it(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        other = await add(w, "other")
        await add(w, "child", owner, other)
        await delete(w, "owner", "Foreground")
        assert await there(w) == ["child", "other"]
        (left,) = (await get(w, "child")).metadata.owner_references or ()
        assert left.name == "other"


@virtual()
async def test_a_circle_does_not_wait_for_itself(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        first = await add(w, "first")
        second = await add(w, "second", first)
        circle = {"metadata": {"ownerReferences": [second]}}
        await w.client.patch(MAPS, "first", circle, namespace=NAMESPACE)
        await delete(w, "first", "Foreground")
        assert await there(w) == []


@virtual(seeds=3)
async def test_orphans_are_set_free(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        await add(w, "child", owner)
        await delete(w, "owner", "Orphan")
        assert await there(w) == ["child"]
        assert not (await get(w, "child")).metadata.owner_references


@virtual()
async def test_an_owner_that_never_was_is_as_one_that_is_gone(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        await add(w, "no-such-uid", reference("owner", "another-uid"))
        await add(w, "no-such-name", {**owner, "name": "else"})
        await add(w, "of-another-kind", {**owner, "kind": "Secret"})
        await add(w, "half", owner, reference("nobody", "no-uid"))
        assert await there(w) == ["half", "owner"]
        (left,) = (await get(w, "half")).metadata.owner_references or ()
        assert left.name == "owner"


@virtual()
async def test_an_owner_of_a_kind_that_nobody_serves_keeps_what_it_owns(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        strange = {**reference("x", "u"), "apiVersion": "example.com/v1", "kind": "Thing"}
        await add(w, "a", strange)
        assert await there(w) == ["a"]


@virtual()
async def test_an_owner_in_another_namespace_is_none_and_an_event_says_so(sim: Sim) -> None:
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        await add(w, "a", owner, namespace="kube-system")
        assert await there(w, "kube-system") == []
        note = (
            f"ownerRef [v1/ConfigMap, namespace: kube-system, name: owner, uid: {owner['uid']}] "
            'does not exist in namespace "kube-system"'
        )
        assert ("Warning", "OwnerRefInvalidNamespace", note) in w.told.events


@virtual()
async def test_what_belongs_to_no_namespace_is_not_taken_for_an_owner_in_one(sim: Sim) -> None:
    volume = {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
    }
    async with world(sim) as w:
        await w.start()
        owner = await add(w, "owner")
        metadata = {"name": "v", "ownerReferences": [owner]}
        await w.client.create(VOLUMES, {"metadata": metadata, **volume})
        await delete(w, "owner")
        await sim.clock.sleep(30)
        await w.client.get(VOLUMES, "v")
        note = (
            f"ownerRef [v1/ConfigMap, namespace: , name: owner, uid: {owner['uid']}] "
            'does not exist in namespace ""'
        )
        assert ("Warning", "OwnerRefInvalidNamespace", note) in w.told.events


@virtual()
async def test_what_was_left_while_nobody_looked_is_found_at_the_start(sim: Sim) -> None:
    async with world(sim) as w:
        owner = await add(w, "owner")
        await add(w, "child", owner)
        await delete(w, "owner")
        await w.start()
        assert await there(w) == []


@virtual(seeds=3)
async def test_at_a_start_nothing_is_asked_about_what_has_its_owners(sim: Sim) -> None:
    reads: list[str] = []

    async def note(request: Request) -> None:
        reads.append(request.path)

    async with world(sim) as w:
        owner = await add(w, "owner")
        children = [f"child{number}" for number in range(9)]
        for name in children:
            await add(w, name, owner)
        await w.start(before_read=note)
        assert await there(w) == [*children, "owner"]
        assert reads == []
        await delete(w, "owner")
        assert await there(w) == []


@virtual(seeds=3)
async def test_a_new_owner_in_time_saves_it(sim: Sim) -> None:
    """The delete is of the version that was judged."""
    async with world(sim) as w:
        await w.start()
        owner, other = await add(w, "owner"), await add(w, "other")
        await add(w, "child", owner)
        adopted = {"metadata": {"ownerReferences": [other]}}
        await w.client.patch(MAPS, "child", adopted, namespace=NAMESPACE)
        await delete(w, "owner")
        assert await there(w) == ["child", "other"]


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_happens_at_a_write_the_end_is_the_same(
    fault: str, number: int, propagation: str
) -> None:
    async def program(sim: Sim) -> None:
        async with world(sim) as w:
            owner = await add(w, "owner")
            child = await add(w, "child", owner)
            await add(w, "grandchild", child)
            await delete(w, "owner", propagation)
            await FAULTS[fault](w, number, 30)
            left = ["child", "grandchild"] if propagation == "Orphan" else []
            assert await there(w) == left
            with contextlib.suppress(errors.NotFound):
                assert not (await get(w, "child")).metadata.owner_references

    run(program, seed=number)


@virtual(seeds=3)
async def test_an_owner_that_is_added_directly_before_the_delete_saves_its_dependent(
    sim: Sim,
) -> None:
    """The delete is of the version that was judged."""
    async with world(sim) as w:
        owner, other = await add(w, "owner"), await add(w, "other")
        await add(w, "child", owner)
        added: list[str] = []

        async def before(request: Request) -> None:
            if request.method == "DELETE" and not added:
                added.append("other")
                owners = {"metadata": {"ownerReferences": [owner, other]}}
                await w.client.patch(MAPS, "child", owners, namespace=NAMESPACE)

        await w.start(before=before)
        await delete(w, "owner")
        assert (await there(w), added) == (["child", "other"], ["other"])
