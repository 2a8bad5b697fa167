# SPDX-License-Identifier: Apache-2.0
"""Giving a pod to a node."""

from typing import Any

import pytest

from refloat.api import conditions, times
from refloat.api.meta import Object
from refloat.apiserver import binding
from refloat.apiserver.routes import Target
from tests import builders
from tests.apiserver_fixture import PODS, ServerFixture
from tests.cases import cases
from tests.clocks import START
from tests.refusals import refusal


def wish(node: str = "n", **metadata: Any) -> Object:
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}


async def bind(world: ServerFixture, body: Object, **call: Any) -> None:
    await binding.bind(
        world.registry, world.call(**call), Target(PODS, "default", "p", "binding"), body
    )


async def test_bound_pod_has_node_and_condition(world: ServerFixture) -> None:
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


async def test_labels_and_annotations_go_over_those_of_the_pod(world: ServerFixture) -> None:
    own = {"a": "1", "b": "1"}
    await world.create(builders.pod(labels=own, annotations=own))
    more = {"b": "2", "c": "2"}
    await bind(world, wish(labels=more, annotations=more))
    metadata = world.get(PODS, "p")["metadata"]
    assert metadata["labels"] == metadata["annotations"] == {"a": "1", "b": "2", "c": "2"}


async def test_a_bound_pod_is_nominated_no_more(world: ServerFixture) -> None:
    await world.create(builders.pod())
    await world.set_status(PODS, "p", nominatedNodeName="n")
    assert world.get(PODS, "p")["status"]["nominatedNodeName"] == "n"
    await bind(world, wish())
    assert "nominatedNodeName" not in world.get(PODS, "p")["status"]


async def test_nobody_owns_what_a_binding_writes(world: ServerFixture) -> None:
    await world.create(builders.pod())
    owned: Object = {"manager": "m", "operation": "Apply", "apiVersion": "v1"}
    owned |= {"fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:app": {}}}}}

    def own(pod: Object) -> None:
        pod["metadata"]["managedFields"] = [owned]

    await world.change(PODS, "p", own)
    managers = world.get(PODS, "p")["metadata"]["managedFields"]
    await bind(world, wish(), manager="n")
    assert world.get(PODS, "p")["metadata"]["managedFields"] == managers


async def test_dry_binding_writes_nothing(world: ServerFixture) -> None:
    before = await world.create(builders.pod())
    await bind(world, wish(), dry_run=True)
    assert world.get(PODS, "p") == before


async def test_binding_of_nothing_is_not_found(world: ServerFixture) -> None:
    with refusal(404, 'pods "p" not found'):
        await bind(world, wish())


@cases(
    "pod why",
    {
        "a bound pod": (builders.pod(node="m"), 'pod p is already assigned to node "m"'),
        "a gated pod": (
            builders.pod(spec={"schedulingGates": [{"name": "g"}]}),
            "pod p has non-empty .spec.schedulingGates",
        ),
    },
)
async def test_binding_is_refused_for(world: ServerFixture, pod: Object, why: str) -> None:
    await world.create(pod)
    message = f'Operation cannot be fulfilled on pods/binding "p": {why}'
    with refusal(409, message):
        await bind(world, wish())


async def test_binding_is_refused_for_a_pod_that_ends(world: ServerFixture) -> None:
    await world.create(builders.pod(finalizers=["a.b/c"]))
    await world.delete(PODS, "p")
    why = "pod p is being deleted, cannot be assigned to a host"
    with refusal(409, f'Operation cannot be fulfilled on pods/binding "p": {why}'):
        await bind(world, wish())


@pytest.mark.parametrize(
    ("field", "title", "value"),
    [
        ("uid", "UID", "other"),
        ("resourceVersion", "ResourceVersion", "1"),
        ("resourceVersion", "ResourceVersion", "abc"),
    ],
)
async def test_binding_of_another_pod_than_meant_is_a_conflict(
    world: ServerFixture, field: str, title: str, value: str
) -> None:
    actual = (await world.create(builders.pod()))["metadata"][field]
    message = (
        'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, '
        "Key: /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {title} in precondition: {value}, {title} in object meta: {actual}"
    )
    with refusal(409, message):
        await bind(world, wish(**{field: value}))


async def test_binding_of_the_pod_that_is_meant_goes_through(world: ServerFixture) -> None:
    metadata = (await world.create(builders.pod()))["metadata"]
    await bind(world, wish(uid=metadata["uid"], resourceVersion=metadata["resourceVersion"]))
    assert world.get(PODS, "p")["spec"]["nodeName"] == "n"


async def test_binding_needs_a_target(world: ServerFixture) -> None:
    await world.create(builders.pod())
    with refusal(500, "target.name: Required value"):
        await bind(world, wish(""))
