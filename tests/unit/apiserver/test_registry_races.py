# SPDX-License-Identifier: Apache-2.0
"""Writers that race, gates, and namespaces that end, below HTTP."""

import asyncio
from typing import Any

import pytest

from refloat.api.errors import StatusError
from refloat.apiserver import identity, registry
from refloat.apiserver.routes import Target
from refloat.store import errors as store_errors
from tests import builders
from tests.apiserver_fixture import BUDGETS, CONFIG_MAPS, NAMESPACES, PODS, ServerFixture, started
from tests.refusals import refusal

# -- races ------------------------------------------------------------------


async def test_writers_without_a_version_all_get_through(world: ServerFixture) -> None:
    await world.create(builders.config_map(data={}))

    def count(index: int) -> Any:
        return lambda obj: obj.setdefault("data", {}).update({f"k{index}": "v"})

    writers = (world.change(CONFIG_MAPS, "c", count(index)) for index in range(8))
    await asyncio.gather(*writers)
    assert len(world.get(CONFIG_MAPS, "c")["data"]) == 8


async def test_one_of_the_writers_with_a_version_gets_through(world: ServerFixture) -> None:
    before = await world.create(builders.config_map())

    async def write(index: int) -> int:
        try:
            await world.replace({**before, "data": {"k": str(index)}})
        except StatusError as error:
            return 0 if error.reason == "Conflict" else -99
        return 1

    assert sum(await asyncio.gather(*map(write, range(5)))) == 1


async def test_writer_that_loses_every_race_is_told(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    tries = 0

    async def lost(key: str, value: bytes, *, expected: int) -> Any:
        nonlocal tries
        tries += 1
        raise store_errors.Conflict(key, expected=expected, actual=expected + 1)

    world.store.update = lost  # type: ignore[method-assign]
    with refusal(
        409,
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again",
    ):
        await world.replace(builders.config_map(data={"a": "b"}))
    assert tries == registry.MAX_RACES


async def test_a_writer_that_waits_for_its_turn_behind_other_writers_gets_through(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map(data={"other": "0"}))
    turns = 0

    async def behind_another(size: int, function: Any, /, *args: Any) -> Any:
        nonlocal turns
        turns += 1
        await world.change(CONFIG_MAPS, "c", lambda obj: obj["data"].update(other=str(turns)))
        return await identity.run_inline(size, function, *args)

    def add(obj: Any) -> None:
        obj["data"]["own"] = "v"

    await world.change(CONFIG_MAPS, "c", add, offload=behind_another)
    assert world.get(CONFIG_MAPS, "c")["data"] == {"own": "v", "other": "1"}


async def test_delete_races_with_an_update_and_both_end_well(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    await asyncio.gather(
        world.set_status(PODS, "p", phase="Running"),
        world.delete(PODS, "p"),
        world.set_status(PODS, "p", message="m"),
    )
    pod = world.get(PODS, "p")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert (pod["status"]["phase"], pod["status"]["message"]) == ("Running", "m")


# -- gates and namespaces ---------------------------------------------------


async def test_force_eviction_taint_needs_its_gate(world: ServerFixture) -> None:
    taint = {"key": "k", "effect": "ForceEviction"}
    with pytest.raises(StatusError) as error:
        await world.create(builders.node(taints=[taint]))
    assert error.value.code == 422


async def test_force_eviction_taint_is_taken_with_its_gate() -> None:
    world = await started(gates={"TaintForceEviction": True})
    node = await world.create(builders.node(taints=[{"key": "k", "effect": "ForceEviction"}]))
    assert node["spec"]["taints"][0]["effect"] == "ForceEviction"
    await world.dispatcher.close()


async def test_nothing_new_in_a_namespace_that_ends(world: ServerFixture) -> None:
    await world.create(builders.namespace("ns"))
    await world.delete(NAMESPACES, "ns")
    message = (
        'configmaps "c" is forbidden: unable to create new content in namespace ns '
        "because it is being terminated"
    )
    with refusal(403, message) as error:
        await world.create(builders.config_map(), namespace="ns")
    assert error.value.details == {
        "name": "c",
        "kind": "configmaps",
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": "namespace ns is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }


async def test_what_is_in_a_namespace_that_ends_can_be_changed(world: ServerFixture) -> None:
    await world.create(builders.namespace("ns"))
    await world.create(builders.budget(), namespace="ns")
    await world.delete(NAMESPACES, "ns")
    entry = await world.registry.modify(
        world.call(),
        Target(BUDGETS, "ns", "b"),
        lambda old: {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}},
    )
    assert entry.revision == world.store.revision


async def test_namespace_must_exist(world: ServerFixture) -> None:
    with refusal(404, 'namespaces "nope" not found'):
        await world.create(builders.config_map(), namespace="nope")
