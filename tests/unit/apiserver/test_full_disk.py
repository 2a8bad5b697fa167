# SPDX-License-Identifier: Apache-2.0
"""What is still written when the disk is nearly full, and what is refused."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from refloat.api import errors
from refloat.apiserver import full_disk
from refloat.store import errors as store_errors
from refloat.store.memory import MemoryStore
from tests import apiserver_fixture
from tests.apiserver_fixture import CONFIG_MAPS, LEASES, NODES, PODS, ServerFixture
from tests.builders import config_map, event, lease, node, pod
from tests.cases import cases

SHORTAGE = "the disk of the server's data directory is nearly full: 3 MiB are free"
ONLY = "until there is room only deletes, leases and nodes are written"


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> ServerFixture:
    """A cluster that had room when the objects were created."""
    world = await apiserver_fixture.started()
    for obj in (
        config_map("there"),
        config_map("kept", finalizers=["example.com/keep"]),
        lease("there"),
        node("there"),
        pod("there", spec={"nodeName": "there"}),
        pod("going", spec={"nodeName": "there"}),
    ):
        await world.create(obj)
    await world.delete(PODS, "going")
    monkeypatch.setattr(MemoryStore, "shortage", SHORTAGE)
    return world


def label(obj: Any) -> None:
    obj["metadata"]["labels"] = {"a": "b"}


def grow(obj: Any) -> None:
    obj["metadata"]["annotations"] = {"a": "x" * full_disk.VITAL_BYTES}


def release(obj: Any) -> None:
    del obj["metadata"]["finalizers"]


REFUSED: dict[str, Any] = {
    "an object is created": lambda w: w.create(config_map("new")),
    "an event is recorded": lambda w: w.create(event("new", regarding={})),
    "an object is changed": lambda w: w.change(CONFIG_MAPS, "there", label),
    "a pod's status": lambda w: w.set_status(PODS, "there", phase="Running"),
    "a lease of many bytes": lambda w: w.change(LEASES, "there", grow),
}


@cases("write", REFUSED)
async def test_most_writes_are_refused_with_the_reason(
    world: ServerFixture, write: Callable[[ServerFixture], Awaitable[object]]
) -> None:
    before = world.store.revision
    with pytest.raises(errors.StatusError) as error:
        await write(world)
    status = error.value
    # As kube-apiserver does when etcd has raised NOSPACE; no Retry-After: kubectl reports at once.
    assert (status.code, status.reason, status.retry_after) == (500, "", None)
    assert status.message == f"{SHORTAGE}; {ONLY}"
    assert world.store.revision == before


async def _all_of_a_deletion(world: ServerFixture) -> None:
    await world.delete(CONFIG_MAPS, "kept")
    assert world.exists(CONFIG_MAPS, "kept")
    await world.change(CONFIG_MAPS, "kept", release)
    assert not world.exists(CONFIG_MAPS, "kept")


WRITTEN: dict[str, Any] = {
    "a delete": lambda w: w.delete(CONFIG_MAPS, "there"),
    "a delete with grace": lambda w: w.delete(PODS, "there"),
    "a delete that waits for a finalizer": _all_of_a_deletion,
    "a terminating pod": lambda w: w.set_status(PODS, "going", phase="Failed"),
    "a new lease": lambda w: w.create(lease("new")),
    "a lease": lambda w: w.change(LEASES, "there", label),
    "a node's status": lambda w: w.set_status(NODES, "there", phase="x"),
    "a node": lambda w: w.change(NODES, "there", label),
}


@cases("write", WRITTEN)
async def test_deletes_leases_and_nodes_are_still_written(
    world: ServerFixture, write: Callable[[ServerFixture], Awaitable[object]]
) -> None:
    before = world.store.revision
    await write(world)
    assert world.store.revision > before


async def test_a_dry_run_needs_no_room(world: ServerFixture) -> None:
    await world.create(config_map("new"), dry_run=True)
    await world.change(CONFIG_MAPS, "there", label, dry_run=True)


async def test_all_is_written_again_once_there_is_room(
    world: ServerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryStore, "shortage", "")
    await world.create(config_map("new"))


async def test_a_write_that_the_disk_refuses_is_reported_without_a_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path("/var/lib/secret-place/state.db")

    async def fail(self: object, key: str, value: bytes) -> None:
        raise store_errors.WriteFailed(path, "database or disk is full")

    world = await apiserver_fixture.started()
    monkeypatch.setattr(MemoryStore, "create", fail)
    async with world.served() as face:
        code, body = await face.ask(
            "POST", "/api/v1/namespaces/default/configmaps", config_map("new")
        )
    assert (code, body["reason"]) == (500, "InternalError")
    assert body["message"].endswith("the server cannot write: database or disk is full")
    assert "secret-place" not in str(body)
    assert str(path) in caplog.text
