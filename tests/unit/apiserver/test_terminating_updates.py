# SPDX-License-Identifier: Apache-2.0
"""What no write undoes: that an object is being deleted, and which version a delete means."""

import asyncio
from typing import Any

import pytest

from refloat.api import errors
from refloat.apiserver import deletion
from tests import apiserver_fixture
from tests.apiserver_fixture import CONFIG_MAPS, PODS, ServerFixture
from tests.builders import config_map, pod

MAPS = "/api/v1/namespaces/default/configmaps"
STAMPS = ("deletionTimestamp", "deletionGracePeriodSeconds")


async def terminating() -> ServerFixture:
    """A ConfigMap with a finalizer, and a pod in its grace period."""
    world = await apiserver_fixture.started()
    await world.create(config_map("a", finalizers=["example.com/keep"]))
    await world.create(pod("a", node="n1", grace=30))
    await world.delete(CONFIG_MAPS, "a")
    await world.delete(PODS, "a")
    return world


def _forget(obj: Any) -> None:
    for name in STAMPS:
        obj["metadata"].pop(name, None)
    obj["metadata"]["labels"] = {"a": "b"}


def _forget_the_time(obj: Any) -> None:
    del obj["metadata"]["deletionTimestamp"]
    obj["metadata"]["labels"] = {"a": "b"}


@pytest.mark.parametrize("forget", [_forget, _forget_the_time])
@pytest.mark.parametrize("kind", [CONFIG_MAPS, PODS], ids=["a ConfigMap", "a pod"])
async def test_update_that_leaves_the_deletion_out_does_not_end_it(kind: Any, forget: Any) -> None:
    world = await terminating()
    before = world.get(kind, "a")["metadata"]
    after = (await world.change(kind, "a", forget))["metadata"]
    assert after["labels"] == {"a": "b"}
    assert {name: after[name] for name in STAMPS} == {name: before[name] for name in STAMPS}


async def test_a_put_and_a_patch_that_leave_the_deletion_out_do_not_end_it() -> None:
    world = await terminating()
    stamp = world.get(CONFIG_MAPS, "a")["metadata"]["deletionTimestamp"]
    whole = config_map("a", finalizers=["example.com/keep"], labels={"a": "b"})
    patch = {"metadata": {"deletionTimestamp": None, "labels": {"a": "c"}}}
    async with world.served() as face:
        for method, body, media in (
            ("PUT", whole, "application/json"),
            ("PATCH", patch, "application/merge-patch+json"),
        ):
            code, answer = await face.ask(method, f"{MAPS}/a", body, media=media)
            assert (code, answer["metadata"]["deletionTimestamp"]) == (200, stamp)
    assert world.get(CONFIG_MAPS, "a")["metadata"]["deletionTimestamp"] == stamp


async def test_a_delete_of_an_older_version_than_there_is_deletes_nothing() -> None:
    """Over the wire, where the precondition is in the body."""
    world = await apiserver_fixture.started()
    old = await world.create(config_map("a"))
    new = await world.change(CONFIG_MAPS, "a", lambda obj: obj.update(data={"a": "1"}))
    async with world.served() as face:
        for version, want in (("resourceVersion", 409), ("", 200)):
            current = old if version else new
            body = {"preconditions": {"resourceVersion": current["metadata"]["resourceVersion"]}}
            code, _ = await face.ask("DELETE", f"{MAPS}/a", body)
            assert code == want
            assert world.exists(CONFIG_MAPS, "a") is (want == 409)


@pytest.mark.parametrize("kind", [CONFIG_MAPS, PODS], ids=["at once", "with a mark first"])
async def test_a_change_that_comes_before_the_delete_is_written_stops_it(kind: Any) -> None:
    """1. The delete finds the version. 2. A change is written. 3. The delete comes to write."""
    world = await apiserver_fixture.started()
    builder = config_map if kind is CONFIG_MAPS else pod
    created = await world.create(builder("a"))
    options = deletion.Options(resource_version=created["metadata"]["resourceVersion"])

    def label(obj: Any) -> None:
        obj["metadata"]["labels"] = {"a": "b"}

    changed, deleted = await asyncio.gather(
        world.change(kind, "a", label), world.delete(kind, "a", options), return_exceptions=True
    )
    assert isinstance(deleted, errors.StatusError)
    assert (deleted.code, deleted.reason) == (409, "Conflict")
    assert world.get(kind, "a") == changed
