# SPDX-License-Identifier: Apache-2.0
"""Namespaces that are deleted, on a real API server in virtual time."""

import contextlib
from functools import partial

import pytest

from refloat.api import kinds as resources
from refloat.api.core import Namespace
from refloat.api.structs import ApiObject
from refloat.app import controller_table
from refloat.client import errors, kinds
from refloat.client.contract import Kind
from tests import builders
from tests.simulation import controller_cluster
from tests.simulation.controller_cluster import FAULTS, ControllerCluster, running
from tests.virtual import virtual

MAPS = Kind(resources.of("configmaps"), ApiObject)
HELD = ["example.com/a", "example.com/b"]
SPACE = "doomed"

new_cluster = partial(ControllerCluster, build=controller_table.CONTROLLERS["namespace-controller"])


async def add(cluster: ControllerCluster) -> None:
    await cluster.client.create(kinds.NAMESPACES, builders.namespace(SPACE))


async def found(cluster: ControllerCluster) -> Namespace | None:
    with contextlib.suppress(errors.NotFound):
        return await cluster.client.get(kinds.NAMESPACES, SPACE)
    return None


async def told(cluster: ControllerCluster) -> dict[str, str]:
    """The messages of what is wrong."""
    namespace = await found(cluster)
    assert namespace is not None
    conditions = namespace.status.conditions or ()
    return {each.reason: each.message for each in conditions if each.status == "True"}


async def release(cluster: ControllerCluster, name: str) -> None:
    await cluster.client.patch(MAPS, name, {"metadata": {"finalizers": None}}, namespace=SPACE)


@virtual(running, new_cluster, seeds=3)
async def test_an_empty_namespace_goes_after_five_seconds(cluster: ControllerCluster) -> None:
    await add(cluster)
    await cluster.client.create(MAPS, builders.config_map("a"), namespace=SPACE)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await cluster.sleep(4.9)
    assert await found(cluster) is not None
    await cluster.sleep(1)
    assert await found(cluster) is None


@virtual(running, new_cluster)
async def test_what_keeps_a_namespace_stands_in_its_conditions(cluster: ControllerCluster) -> None:
    await add(cluster)
    for name in ("a", "b"):
        obj = builders.config_map(name, finalizers=HELD[: 2 if name == "a" else 1])
        await cluster.client.create(MAPS, obj, namespace=SPACE)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await cluster.sleep(6)
    assert await told(cluster) == {
        "SomeResourcesRemain": "Some resources are remaining: configmaps. has 2 resource instances",
        "SomeFinalizersRemain": "Some content in the namespace has finalizers remaining: "
        "example.com/a in 2 resource instances, example.com/b in 1 resource instances",
    }
    await release(cluster, "a")
    await release(cluster, "b")
    await cluster.sleep(9)
    assert await found(cluster) is None


@virtual(running, new_cluster)
async def test_while_a_pod_is_left_nothing_else_is_deleted(cluster: ControllerCluster) -> None:
    await add(cluster)
    await cluster.client.create(kinds.PODS, builders.pod("p", node="n", grace=30), namespace=SPACE)
    await cluster.client.create(MAPS, builders.config_map("needed"), namespace=SPACE)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await cluster.sleep(20)
    pod = await cluster.client.get(kinds.PODS, "p", namespace=SPACE)
    assert pod.is_terminating
    assert pod.metadata.deletion_grace_period_seconds == 30
    needed = await cluster.client.get(MAPS, "needed", namespace=SPACE)
    assert needed.metadata.deletion_timestamp is None
    assert await told(cluster) == {}
    await cluster.client.delete(
        kinds.PODS, "p", namespace=SPACE, options=controller_cluster.AT_ONCE
    )
    await cluster.sleep(20)
    assert await found(cluster) is None


@virtual(running, new_cluster)
async def test_pod_that_does_not_end_in_time_is_told_as_failure(cluster: ControllerCluster) -> None:
    await add(cluster)
    await cluster.client.create(kinds.PODS, builders.pod("p", node="n", grace=30), namespace=SPACE)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await cluster.sleep(60)
    text = "unexpected items still remain in namespace: doomed for gvr: /v1, Resource=pods"
    assert await told(cluster) == {
        "ContentDeletionFailed": f"Failed to delete all resource types, 1 remaining: {text}"
    }


@virtual(running, new_cluster)
async def test_finalizers_of_others_stay_on_an_empty_namespace(cluster: ControllerCluster) -> None:
    namespace = builders.namespace(SPACE, labels={"a": "b"})
    namespace["spec"] = {"finalizers": ["kubernetes", "example.com/mine"]}
    await cluster.client.create(kinds.NAMESPACES, namespace)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await cluster.sleep(10)
    names = await found(cluster)
    assert names is not None
    assert names.spec.finalizers == ("example.com/mine",)
    assert (names.metadata.labels or {})["a"] == "b"


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("fault", FAULTS)
@virtual(new_cluster, seed_from="number")
async def test_whatever_happens_at_a_write_the_end_is_the_same(
    cluster: ControllerCluster, fault: str, number: int
) -> None:
    await add(cluster)
    for name in ("a", "b"):
        await cluster.client.create(MAPS, builders.config_map(name), namespace=SPACE)
    await cluster.client.delete(kinds.NAMESPACES, SPACE)
    await FAULTS[fault](cluster, number, 30)
    await cluster.sleep(60)
    assert await found(cluster) is None
