# SPDX-License-Identifier: Apache-2.0
"""Which taints a node has because of its conditions (behaviour C3.7, C3.8)."""

from refloat.api.core import Node, NodeSpec, NodeStatus, Taint
from refloat.api.structs import Condition
from refloat.policy.node import node_taints
from tests.cases import cases

P = "node.kubernetes.io/"


def node(*taints: str, unschedulable: bool = False, **conditions: str) -> Node:
    """Taints as `key:effect`."""
    present = tuple(
        Taint(key=P + key, effect=effect) for key, effect in (each.split(":") for each in taints)
    )
    result = tuple(Condition(type=name, status=status) for name, status in conditions.items())
    return Node(
        spec=NodeSpec(taints=present or None, unschedulable=unschedulable),
        status=NodeStatus(conditions=result or None),
    )


@cases(
    "seen add remove",
    {
        "never posted: nothing": (node(), [], []),
        "a new node's own goes": (node("not-ready:NoSchedule"), [], ["not-ready"]),
        "ready": (node(Ready="True"), [], []),
        "not ready": (node(Ready="False"), ["not-ready"], []),
        "unreachable": (node(Ready="Unknown"), ["unreachable"], []),
        "one for the other": (
            node("not-ready:NoSchedule", Ready="Unknown"),
            ["unreachable"],
            ["not-ready"],
        ),
        "as it should be": (node("unreachable:NoSchedule", Ready="Unknown"), [], []),
        "other effects are not meant": (node("unreachable:NoExecute", Ready="True"), [], []),
        "pressures": (
            node(MemoryPressure="True", DiskPressure="True", PIDPressure="True"),
            ["memory-pressure", "disk-pressure", "pid-pressure"],
            [],
        ),
        "no pressure": (node(MemoryPressure="Unknown", DiskPressure="False"), [], []),
        "no network": (node(NetworkUnavailable="True"), ["network-unavailable"], []),
        "cordoned": (node(unschedulable=True), ["unschedulable"], []),
        "uncordoned": (node("unschedulable:NoSchedule"), [], ["unschedulable"]),
        "a stranger's stays": (node("other:NoSchedule", Ready="True"), [], []),
    },
)
def test_no_schedule_follows_the_conditions(seen: Node, add: list[str], remove: list[str]) -> None:
    """Behaviour C3.7."""
    assert node_taints.no_schedule(seen) == ([P + key for key in add], [P + key for key in remove])


@cases(
    "seen add remove",
    {
        "never posted": (node(), [], []),
        "ready": (node(Ready="True"), [], []),
        "lifting is not this": (node("unreachable:NoExecute", Ready="True"), [], []),
        "not ready": (node(Ready="False"), ["not-ready"], []),
        "unreachable": (node(Ready="Unknown"), ["unreachable"], []),
        "there already": (node("unreachable:NoExecute", Ready="Unknown"), [], []),
        "one for the other": (
            node("unreachable:NoExecute", Ready="False"),
            ["not-ready"],
            ["unreachable"],
        ),
        "cut off between the two writes (C3.11)": (
            node("unreachable:NoExecute", "not-ready:NoExecute", Ready="False"),
            [],
            ["unreachable"],
        ),
        "other effect": (node("unreachable:NoSchedule", Ready="Unknown"), ["unreachable"], []),
    },
)
def test_no_execute_follows_ready(seen: Node, add: list[str], remove: list[str]) -> None:
    """Behaviour C3.8."""
    assert node_taints.no_execute(seen) == ([P + key for key in add], [P + key for key in remove])


def test_a_taint_that_is_added_comes_last_with_its_time() -> None:
    current = (
        Taint(key="a", effect="NoSchedule", time_added="t0"),
        Taint(key="b", effect="NoExecute"),
    )
    assert node_taints.added(current, ["a", "c"], "NoSchedule", now="t1") == (
        *current,
        Taint(key="c", effect="NoSchedule", time_added="t1"),
    )


def test_a_taint_is_removed_with_its_effect_only() -> None:
    taints = (Taint(key="a", effect="NoSchedule"), Taint(key="a", effect="NoExecute"))
    assert node_taints.without(taints, ["a"], "NoExecute") == taints[:1]
