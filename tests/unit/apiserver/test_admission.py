# SPDX-License-Identifier: Apache-2.0
"""What is decided about a write beyond the object itself."""

from refloat.api.meta import Object
from tests import builders
from tests.apiserver_fixture import NAMESPACES, NODES, PODS, ServerFixture
from tests.cases import cases
from tests.refusals import refusal

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def added(*keys: str) -> list[Object]:
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in keys
    ]


@cases(
    "present missing",
    {
        "both, in order": ([], [NOT_READY, UNREACHABLE]),
        "none for who tolerates everything": ([{"operator": "Exists"}], []),
        "none for every NoExecute": ([{"operator": "Exists", "effect": "NoExecute"}], []),
        "both for another effect": (
            [{"operator": "Exists", "effect": "NoSchedule"}],
            [NOT_READY, UNREACHABLE],
        ),
        "operator and value do not count": (
            [{"key": NOT_READY, "operator": "Equal", "value": "x", "effect": "NoExecute"}],
            [UNREACHABLE],
        ),
        "each on its own": ([{"key": UNREACHABLE, "operator": "Exists"}], [NOT_READY]),
        "a key with another effect": (
            [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}],
            [NOT_READY, UNREACHABLE],
        ),
    },
)
async def test_tolerations_are_added(
    world: ServerFixture, present: list[Object], missing: list[str]
) -> None:
    """behaviour C4.1, C4.2"""
    pod = await world.create(builders.pod(spec={"tolerations": present}))
    assert pod["spec"]["tolerations"] == present + added(*missing)


async def test_tolerations_are_added_again_by_an_update(world: ServerFixture) -> None:
    """behaviour C4.1"""
    before = await world.create(builders.pod())

    def change(obj: Object) -> None:
        del obj["spec"]["tolerations"]

    after = await world.change(PODS, "p", change)
    assert after == before


async def test_tolerations_are_not_added_to_a_subresource(world: ServerFixture) -> None:
    """behaviour C4.1"""
    before = await world.create(builders.pod())
    pod = before["spec"]["tolerations"]
    after = await world.set_status(PODS, "p", phase="Running")
    assert after["spec"]["tolerations"] == pod


# -- priorities -------------------------------------------------------------


async def test_pod_without_a_class_has_priority_zero(world: ServerFixture) -> None:
    spec = (await world.create(builders.pod()))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert "priorityClassName" not in spec


async def test_class_gives_priority_and_policy(world: ServerFixture) -> None:
    await world.create(builders.priority_class("low", value=-5, preemptionPolicy="Never"))
    spec = (await world.create(builders.pod(spec={"priorityClassName": "low"})))["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (-5, "Never")


async def test_default_class_is_that_of_pods_without_one(world: ServerFixture) -> None:
    await world.create(builders.priority_class("usual", value=7, globalDefault=True))
    spec = (await world.create(builders.pod()))["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)


@cases(
    "metadata pod_name",
    {
        "by name": ({"name": "p"}, "p"),
        "by prefix": ({"generateName": "web-"}, "web-"),
        "without either": ({}, "Unknown"),
    },
)
async def test_class_must_exist(world: ServerFixture, metadata: Object, pod_name: str) -> None:
    pod = {**builders.pod(spec={"priorityClassName": "nope"}), "metadata": metadata}
    message = f'pods "{pod_name}" is forbidden: no PriorityClass with name nope was found'
    with refusal(403, message):
        await world.create(pod)


@cases(
    "spec why",
    {
        "a number": (
            {"priority": 5},
            (
                "the integer value of priority (5) must not be provided in pod spec; priority "
                "admission controller computed 0 from the given PriorityClass name"
            ),
        ),
        "a policy": (
            {"preemptionPolicy": "Never"},
            (
                "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
                "priority admission controller computed PreemptLowerPriority from the given "
                "PriorityClass name"
            ),
        ),
    },
)
async def test_users_do_not_give(world: ServerFixture, spec: Object, why: str) -> None:
    with refusal(403, f'pods "p" is forbidden: {why}'):
        await world.create(builders.pod(spec=spec))


async def test_users_may_give_what_would_be_computed(world: ServerFixture) -> None:
    spec = {"priorityClassName": "system-node-critical", "priority": 2_000_001_000}
    assert await world.create(builders.pod(spec=spec))


async def test_update_without_a_priority_keeps_it(world: ServerFixture) -> None:
    before = await world.create(builders.pod())

    def change(obj: Object) -> None:
        del obj["spec"]["priority"], obj["spec"]["preemptionPolicy"]

    assert await world.change(PODS, "p", change) == before


# -- nodes and namespaces ---------------------------------------------------


@cases(
    "taints want",
    {
        "is added": ([], [{"key": NOT_READY, "effect": "NoSchedule"}]),
        "is there": (
            [{"key": NOT_READY, "effect": "NoSchedule", "value": "x"}],
            [{"key": NOT_READY, "effect": "NoSchedule", "value": "x"}],
        ),
        "is added to that of another effect": (
            [{"key": NOT_READY, "effect": "NoExecute"}],
            [{"key": NOT_READY, "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"}],
        ),
    },
)
async def test_taint_of_a_new_node(
    world: ServerFixture, taints: list[Object], want: list[Object]
) -> None:
    node = await world.create(builders.node(taints=taints))
    assert node["spec"]["taints"] == want


async def test_taint_is_not_added_to_a_node_that_is_there(world: ServerFixture) -> None:
    await world.create(builders.node())

    def change(obj: Object) -> None:
        del obj["spec"]["taints"]

    assert "taints" not in (await world.change(NODES, "n", change))["spec"]


async def test_refusal_in_an_ending_namespace_names_the_prefix(world: ServerFixture) -> None:
    await world.create(builders.namespace("ns"))
    await world.delete(NAMESPACES, "ns")
    message = (
        'configmaps "web-" is forbidden: unable to create new content in namespace ns '
        "because it is being terminated"
    )
    with refusal(403, message):
        await world.create(builders.config_map("", generateName="web-"), namespace="ns")


async def test_namespace_that_only_speaks_of_deletion_lives(world: ServerFixture) -> None:
    await world.create(builders.namespace("ns", annotations={"note": '"deletionTimestamp"'}))
    assert await world.create(builders.config_map(), namespace="ns")
