# SPDX-License-Identifier: Apache-2.0
"""What is decided about a write beyond the object itself."""

import pytest

from refloat.api.meta import Object
from tests import builders
from tests.refusals import refusal
from tests.worlds import NAMESPACES, NODES, PODS, World

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def added(*keys: str) -> list[Object]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in keys
    ]


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        pytest.param([], [NOT_READY, UNREACHABLE], id="both, in order"),
        pytest.param([{"operator": "Exists"}], [], id="none for who tolerates everything"),
        pytest.param(
            [{"operator": "Exists", "effect": "NoExecute"}], [], id="none for every NoExecute"
        ),
        pytest.param(
            [{"operator": "Exists", "effect": "NoSchedule"}],
            [NOT_READY, UNREACHABLE],
            id="both for another effect",
        ),
        pytest.param(
            [{"key": NOT_READY, "operator": "Equal", "value": "x", "effect": "NoExecute"}],
            [UNREACHABLE],
            id="operator and value do not count",
        ),
        pytest.param(
            [{"key": UNREACHABLE, "operator": "Exists"}], [NOT_READY], id="each on its own"
        ),
        pytest.param(
            [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}],
            [NOT_READY, UNREACHABLE],
            id="a key with another effect",
        ),
    ],
)
async def test_tolerations_are_added(
    world: World, present: list[Object], missing: list[str]
) -> None:
    """behaviour C4.1, C4.2"""
    pod = await world.create(builders.pod(spec={"tolerations": present}))
    assert pod["spec"]["tolerations"] == present + added(*missing)


async def test_tolerations_are_added_again_by_an_update(world: World) -> None:
    """behaviour C4.1"""
    before = await world.create(builders.pod())

    def change(obj: Object) -> None:
        del obj["spec"]["tolerations"]

    after = await world.change(PODS, "p", change)
    assert after == before


async def test_tolerations_are_not_added_to_a_subresource(world: World) -> None:
    """behaviour C4.1"""
    before = await world.create(builders.pod())
    pod = before["spec"]["tolerations"]
    after = await world.set_status(PODS, "p", phase="Running")
    assert after["spec"]["tolerations"] == pod


# -- priorities -------------------------------------------------------------


async def test_pod_without_a_class_has_priority_zero(world: World) -> None:
    spec = (await world.create(builders.pod()))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


async def test_class_gives_priority_and_policy(world: World) -> None:
    await world.create(builders.priority_class("low", value=-5, preemptionPolicy="Never"))
    spec = (await world.create(builders.pod(spec={"priorityClassName": "low"})))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (-5, "Never")


async def test_default_class_is_that_of_pods_without_one(world: World) -> None:
    await world.create(builders.priority_class("usual", value=7, globalDefault=True))
    spec = (await world.create(builders.pod()))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


@pytest.mark.parametrize(
    ("metadata", "shown"),
    [
        pytest.param({"name": "p"}, "p", id="by name"),
        pytest.param({"generateName": "web-"}, "web-", id="by prefix"),
        pytest.param({}, "Unknown", id="without either"),
    ],
)
async def test_class_must_exist(world: World, metadata: Object, shown: str) -> None:
    pod = {**builders.pod(spec={"priorityClassName": "nope"}), "metadata": metadata}
    message = f'pods "{shown}" is forbidden: no PriorityClass with name nope was found'
    with refusal(403, message):
        await world.create(pod)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param(
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority "
            "admission controller computed 0 from the given PriorityClass name",
            id="a number",
        ),
        pytest.param(
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given "
            "PriorityClass name",
            id="a policy",
        ),
    ],
)
async def test_users_do_not_give(world: World, spec: Object, why: str) -> None:
    with refusal(403, f'pods "p" is forbidden: {why}'):
        await world.create(builders.pod(spec=spec))


async def test_users_may_give_what_would_be_computed(world: World) -> None:
    spec = {"priorityClassName": "system-node-critical", "priority": 2_000_001_000}
    assert await world.create(builders.pod(spec=spec))


async def test_update_without_a_priority_keeps_it(world: World) -> None:
    before = await world.create(builders.pod())

    def change(obj: Object) -> None:
        del obj["spec"]["priority"], obj["spec"]["preemptionPolicy"]

    assert await world.change(PODS, "p", change) == before


# -- nodes and namespaces ---------------------------------------------------


@pytest.mark.parametrize(
    ("taints", "want"),
    [
        pytest.param([], [{"key": NOT_READY, "effect": "NoSchedule"}], id="is added"),
        pytest.param(
            [{"key": NOT_READY, "effect": "NoSchedule", "value": "x"}],
            [{"key": NOT_READY, "effect": "NoSchedule", "value": "x"}],
            id="is there",
        ),
        pytest.param(
            [{"key": NOT_READY, "effect": "NoExecute"}],
            [
                {"key": NOT_READY, "effect": "NoExecute"},
                {"key": NOT_READY, "effect": "NoSchedule"},
            ],
            id="is added to that of another effect",
        ),
    ],
)
async def test_taint_of_a_new_node(world: World, taints: list[Object], want: list[Object]) -> None:
    node = await world.create(builders.node(taints=taints))
    assert node["spec"]["taints"] == want


async def test_taint_is_not_added_to_a_node_that_is_there(world: World) -> None:
    await world.create(builders.node())

    def change(obj: Object) -> None:
        del obj["spec"]["taints"]

    assert "taints" not in (await world.change(NODES, "n", change))["spec"]


async def test_refusal_in_an_ending_namespace_names_the_prefix(world: World) -> None:
    await world.create(builders.namespace("ns"))
    await world.delete(NAMESPACES, "ns")
    message = (
        'configmaps "web-" is forbidden: unable to create new content in namespace ns '
        "because it is being terminated"
    )
    with refusal(403, message):
        await world.create(builders.config_map("", generateName="web-"), namespace="ns")


async def test_namespace_that_only_speaks_of_deletion_lives(world: World) -> None:
    await world.create(builders.namespace("ns", annotations={"note": '"deletionTimestamp"'}))
    assert await world.create(builders.config_map(), namespace="ns")
