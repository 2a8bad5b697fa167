# SPDX-License-Identifier: Apache-2.0
"""Giving a pod to a node."""

from typing import Any

import pytest

from refloat.api import conditions, times
from refloat.api.meta import Object
from refloat.apiserver import binding
from tests import builders
from tests.clocks import START
from tests.refusals import refusal
from tests.worlds import PODS, World


def wish(node: str = "n", **metadata: Any) -> Object:
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}


async def bind(world: World, wanted: Object, **call: Any) -> None:
    await binding.bind(world.registry, world.call(**call), "default", "p", wanted)


async def test_bound_pod_has_node_and_condition(world: World) -> None:
    before = await world.create(builders.pod())
    await bind(world, wish())
    pod = world.get(PODS, "p")
    assert pod["spec"] == {**before["spec"], "nodeName": "n"}
    assert conditions.of(pod) == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": times.format_time(START),
        }
    ]


async def test_labels_and_annotations_go_over_those_of_the_pod(world: World) -> None:
    own = {"a": "1", "b": "1"}
    await world.create(builders.pod(labels=own, annotations=own))
    more = {"b": "2", "c": "2"}
    await bind(world, wish(labels=more, annotations=more))
    metadata = world.get(PODS, "p")["metadata"]
    assert metadata["labels"] == metadata["annotations"] == {"a": "1", "b": "2", "c": "2"}


async def test_a_bound_pod_is_nominated_no_more(world: World) -> None:
    await world.create(builders.pod())
    await world.set_status(PODS, "p", nominatedNodeName="n")
    assert world.get(PODS, "p")["status"]["nominatedNodeName"] == "n"
    await bind(world, wish())
    assert "nominatedNodeName" not in world.get(PODS, "p")["status"]


async def test_nobody_owns_what_a_binding_writes(world: World) -> None:
    await world.create(builders.pod())
    owned: Object = {"manager": "m", "operation": "Apply", "apiVersion": "v1"}
    owned |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}}}

    def own(pod: Object) -> None:
        pod["metadata"]["managedFields"] = [owned]

    await world.change(PODS, "p", own)
    told = world.get(PODS, "p")["metadata"]["managedFields"]
    await bind(world, wish(), manager="n")
    assert world.get(PODS, "p")["metadata"]["managedFields"] == told


async def test_dry_binding_writes_nothing(world: World) -> None:
    before = await world.create(builders.pod())
    await bind(world, wish(), dry_run=True)
    assert world.get(PODS, "p") == before


async def test_binding_of_nothing_is_not_found(world: World) -> None:
    with refusal(404, 'pods "p" not found'):
        await bind(world, wish())


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(
            builders.pod(node="m"), 'pod p is already assigned to node "m"', id="a bound pod"
        ),
        pytest.param(
            builders.pod(spec={"schedulingGates": [{"name": "g"}]}),
            "pod p has non-empty .spec.schedulingGates",
            id="a gated pod",
        ),
    ],
)
async def test_binding_is_refused_for(world: World, pod: Object, why: str) -> None:
    await world.create(pod)
    message = f'Operation cannot be fulfilled on pods/binding "p": {why}'
    with refusal(409, message):
        await bind(world, wish())


async def test_binding_is_refused_for_a_pod_that_ends(world: World) -> None:
    await world.create(builders.pod(finalizers=["a.b/c"]))
    await world.delete(PODS, "p")
    why = "pod p is being deleted, cannot be assigned to a host"
    with refusal(409, f'Operation cannot be fulfilled on pods/binding "p": {why}'):
        await bind(world, wish())


@pytest.mark.parametrize(
    ("field", "title", "given"),
    [
        ("uid", "UID", "other"),
        ("resourceVersion", "ResourceVersion", "1"),
        ("resourceVersion", "ResourceVersion", "abc"),
    ],
)
async def test_binding_of_another_pod_than_meant_is_a_conflict(
    world: World, field: str, title: str, given: str
) -> None:
    held = (await world.create(builders.pod()))["metadata"][field]
    message = (
        'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, '
        "Key: /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {title} in precondition: {given}, {title} in object meta: {held}"
    )
    with refusal(409, message):
        await bind(world, wish(**{field: given}))


async def test_binding_of_the_pod_that_is_meant_goes_through(world: World) -> None:
    metadata = (await world.create(builders.pod()))["metadata"]
    await bind(world, wish(uid=metadata["uid"], resourceVersion=metadata["resourceVersion"]))
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n"


async def test_binding_needs_a_target(world: World) -> None:
    await world.create(builders.pod())
    with refusal(500, "target.name: Required value"):
        await bind(world, wish(""))
