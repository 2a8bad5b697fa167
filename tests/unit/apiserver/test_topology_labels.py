# SPDX-License-Identifier: Apache-2.0
"""A pod gets the zone and region labels of the node."""

from typing import Any

import pytest

from refloat.api.meta import Object
from refloat.apiserver import binding
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import NODES, PODS, ServerFixture

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
WHERE = {ZONE: "z", REGION: "r"}
OTHERS = {"topology.kubernetes.io/rack": "k", "a": "b"}


async def bind(
    world: ServerFixture, *, kind: str = "Node", node: str = "n", **metadata: Any
) -> Object:
    wish = {"metadata": {"name": "p", **metadata}, "target": {"kind": kind, "name": node}}
    await binding.bind(world.registry, world.call(), Target(PODS, "default", "p", "binding"), wish)
    return world.get(PODS, "p")


def labels(obj: Object) -> Object:
    labels: Object = obj["metadata"].get("labels", {})
    return labels


async def test_pod_that_comes_with_a_node_is_labelled(world: ServerFixture) -> None:
    await world.create(builders.node(labels=WHERE | OTHERS))
    pod = await world.create(builders.pod(node="n", labels={ZONE: "mine", "app": "x"}))
    assert labels(pod) == {"app": "x", **WHERE}


async def test_bound_pod_is_labelled(world: ServerFixture) -> None:
    await world.create(builders.node(labels=WHERE | OTHERS))
    await world.create(builders.pod(labels={ZONE: "mine", "app": "x"}))
    pod = await bind(world, labels={REGION: "mine", "more": "y"})
    assert labels(pod) == {"app": "x", "more": "y", **WHERE}


@pytest.mark.parametrize("node_labels", [{ZONE: "z"}, {REGION: "r"}, OTHERS, {}])
async def test_pod_gets_no_label_that_its_node_does_not_have(
    world: ServerFixture, node_labels: Object
) -> None:
    await world.create(builders.node(labels=node_labels))
    want = {key: value for key, value in node_labels.items() if key in WHERE}
    assert labels(await world.create(builders.pod("q", node="n"))) == want
    await world.create(builders.pod())
    assert labels(await bind(world)) == want


async def test_pod_on_an_unknown_node_is_left_as_it_is(world: ServerFixture) -> None:
    assert labels(await world.create(builders.pod("q", node="n"))) == {}
    await world.create(builders.pod())
    assert labels(await bind(world)) == {}


async def test_pod_without_a_node_is_left_as_it_is(world: ServerFixture) -> None:
    await world.create(builders.node(labels=WHERE))
    assert labels(await world.create(builders.pod())) == {}


async def test_binding_that_does_not_say_node_brings_no_labels(world: ServerFixture) -> None:
    await world.create(builders.node(labels=WHERE))
    await world.create(builders.pod())
    assert labels(await bind(world, kind="")) == {}


async def test_pods_do_not_follow_a_node_that_moves(world: ServerFixture) -> None:
    await world.create(builders.node(labels=WHERE))
    before = await world.create(builders.pod(node="n"))

    def move(node: Object) -> None:
        node["metadata"]["labels"][ZONE] = "other"

    await world.change(NODES, "n", move)
    await world.change(PODS, "p", lambda pod: pod["metadata"].update(annotations={"a": "b"}))
    assert labels(world.get(PODS, "p")) == labels(before)
