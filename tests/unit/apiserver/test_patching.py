# SPDX-License-Identifier: Apache-2.0
"""The patch verb on stored objects; each format has a suite of its own."""

import asyncio
from typing import Any

import msgspec
import pytest

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.apiserver import patching, stored
from tests import builders
from tests.refusals import refusal
from tests.worlds import CONFIG_MAPS, JOBS, PODS, World

JSON_PATCH = [{"op": "add", "path": "/data", "value": {"k": "v"}}]


async def patch(
    world: World,
    resource: kinds.Resource,
    name: str,
    body: Any,
    *,
    patch_format: patching.Format = "merge",
    subresource: str = "",
    **call: Any,
) -> Object:
    entry = await patching.patch(
        world.registry,
        world.call(**call),
        resource,
        "default",
        name,
        subresource=subresource,
        patch_format=patch_format,
        body=body if isinstance(body, bytes) else msgspec.json.encode(body),
    )
    return stored.unpack(resource, entry)


@pytest.mark.parametrize(
    ("patch_format", "body"),
    [
        ("merge", {"data": {"k": "v"}}),
        ("strategic", {"data": {"k": "v"}}),
        ("json", JSON_PATCH),
    ],
)
async def test_patch_is_applied_to_what_is_there(
    world: World, patch_format: patching.Format, body: Any
) -> None:
    await world.create(builders.config_map(labels={"a": "b"}))
    after = await patch(world, CONFIG_MAPS, "c", body, patch_format=patch_format)
    assert after["data"] == {"k": "v"}
    assert after["metadata"]["labels"] == {"a": "b"}


async def test_patch_without_a_change_keeps_the_revision(world: World) -> None:
    await world.create(builders.config_map(data={"k": "v"}))
    revision = world.store.revision
    await patch(world, CONFIG_MAPS, "c", {"data": {"k": "v"}})
    assert world.store.revision == revision


async def test_patch_is_defaulted_and_counted_as_an_update(world: World) -> None:
    await world.create(builders.job())
    after = await patch(world, JOBS, "j", {"spec": {"parallelism": None, "completions": None}})
    assert after["spec"]["parallelism"] == 1
    assert after["metadata"]["generation"] == 1
    after = await patch(world, JOBS, "j", {"spec": {"parallelism": 3}})
    assert after["metadata"]["generation"] == 2


async def test_patch_of_a_status_keeps_the_spec(world: World) -> None:
    await world.create(builders.pod())
    body = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    after = await patch(world, PODS, "p", body, subresource="status")
    assert "nodeName" not in after["spec"]
    assert after["status"]["phase"] == "Running"


async def test_patch_of_nothing_is_not_found_whatever_it_says(world: World) -> None:
    with refusal(404, 'configmaps "c" not found'):
        await patch(world, CONFIG_MAPS, "c", b"{")


async def test_patch_with_a_version_insists_on_it(world: World) -> None:
    before = await world.create(builders.config_map())
    version = before["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "data": {"k": "v"}}
    assert await patch(world, CONFIG_MAPS, "c", body)
    message = (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    with refusal(409, message):
        await patch(world, CONFIG_MAPS, "c", {**body, "data": {"k": "w"}})


async def test_patch_cannot_rename(world: World) -> None:
    await world.create(builders.config_map())
    message = "the name of the object (d) does not match the name on the URL (c)"
    with refusal(400, message):
        await patch(world, CONFIG_MAPS, "c", {"metadata": {"name": "d"}})


async def test_dry_patch_writes_nothing(world: World) -> None:
    before = await world.create(builders.config_map())
    after = await patch(world, CONFIG_MAPS, "c", {"data": {"k": "v"}}, dry_run=True)
    assert after["data"] == {"k": "v"}
    assert world.get(CONFIG_MAPS, "c") == before


async def test_patches_at_once_are_all_applied(world: World) -> None:
    await world.create(builders.config_map())
    bodies = [{"data": {f"k{index}": "v"}} for index in range(6)]
    await asyncio.gather(*(patch(world, CONFIG_MAPS, "c", body) for body in bodies))
    assert len(world.get(CONFIG_MAPS, "c")["data"]) == 6


async def test_unknown_fields_are_warned_of_and_dropped(world: World) -> None:
    await world.create(builders.config_map())
    call = world.call()
    await patching.patch(
        world.registry,
        call,
        CONFIG_MAPS,
        "default",
        "c",
        subresource="",
        patch_format="merge",
        body=b'{"foo":1}',
    )
    assert call.warnings == ['unknown field "foo"']
    assert "foo" not in world.get(CONFIG_MAPS, "c")
