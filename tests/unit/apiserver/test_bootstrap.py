# SPDX-License-Identifier: Apache-2.0
"""The objects that every cluster begins with."""

from refloat.api.meta import Object
from refloat.apiserver import bootstrap
from tests.apiserver_fixture import NAMESPACES, PRIORITY_CLASSES, ServerFixture


async def test_every_cluster_has_namespaces_and_classes() -> None:
    world = ServerFixture()
    await bootstrap.ensure(world.registry, world.clock)
    for name in ("default", "kube-node-lease", "kube-public", "kube-system"):
        assert world.get(NAMESPACES, name)["status"] == {"phase": "Active"}
    values = {
        name: world.get(PRIORITY_CLASSES, name)["value"]
        for name in ("system-cluster-critical", "system-node-critical")
    }
    assert values == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }


async def test_second_start_changes_nothing(world: ServerFixture) -> None:
    revision = world.store.revision
    await bootstrap.ensure(world.registry, world.clock)
    assert world.store.revision == revision


async def test_what_users_changed_stays(world: ServerFixture) -> None:
    def change(obj: Object) -> None:
        obj["metadata"]["labels"]["mine"] = "yes"

    await world.change(NAMESPACES, "default", change)
    await bootstrap.ensure(world.registry, world.clock)
    assert world.get(NAMESPACES, "default")["metadata"]["labels"]["mine"] == "yes"


async def test_what_is_missing_is_made_again(world: ServerFixture) -> None:
    await world.delete(PRIORITY_CLASSES, "system-node-critical")
    await bootstrap.ensure(world.registry, world.clock)
    assert world.exists(PRIORITY_CLASSES, "system-node-critical")
