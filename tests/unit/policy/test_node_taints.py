# SPDX-License-Identifier: Apache-2.0
"""Which taints a node has because of its conditions (behaviour C3.7, C3.8)."""

import pytest

from refloat.api.core import Node, NodeSpec, NodeStatus, Taint
from refloat.api.structs import Condition
from refloat.policy import node_taints

P = "node.kubernetes.io/"


def node(*taints: str, unschedulable: bool = False, **conditions: str) -> Node:
    """Taints as `key:effect`."""
    held = tuple(
        Taint(key=P + key, effect=effect) for key, effect in (each.split(":") for each in taints)
    )
    found = tuple(Condition(type=name, status=status) for name, status in conditions.items())
    return Node(
        spec=NodeSpec(taints=held or None, unschedulable=unschedulable),
        status=NodeStatus(conditions=found or None),
    )


@pytest.mark.parametrize(
    ("seen", "add", "remove"),
    [
        pytest.param(node(), [], [], id="never posted: nothing"),
        pytest.param(node("not-ready:NoSchedule"), [], ["not-ready"], id="a new node's own goes"),
        pytest.param(node(Ready="True"), [], [], id="ready"),
        pytest.param(node(Ready="False"), ["not-ready"], [], id="not ready"),
        pytest.param(node(Ready="Unknown"), ["unreachable"], [], id="unreachable"),
        pytest.param(
            node("not-ready:NoSchedule", Ready="Unknown"),
            ["unreachable"],
            ["not-ready"],
            id="one for the other",
        ),
        pytest.param(node("unreachable:NoSchedule", Ready="Unknown"), [], [], id="as it should be"),
        pytest.param(
            node("unreachable:NoExecute", Ready="True"), [], [], id="other effects are not meant"
        ),
        pytest.param(
            node(MemoryPressure="True", DiskPressure="True", PIDPressure="True"),
            ["memory-pressure", "disk-pressure", "pid-pressure"],
            [],
            id="pressures",
        ),
        pytest.param(
            node(MemoryPressure="Unknown", DiskPressure="False"), [], [], id="no pressure"
        ),
        pytest.param(node(NetworkUnavailable="True"), ["network-unavailable"], [], id="no network"),
        pytest.param(node(unschedulable=True), ["unschedulable"], [], id="cordoned"),
        pytest.param(node("unschedulable:NoSchedule"), [], ["unschedulable"], id="uncordoned"),
        pytest.param(node("other:NoSchedule", Ready="True"), [], [], id="a stranger's stays"),
    ],
)
def test_no_schedule_follows_the_conditions(seen: Node, add: list[str], remove: list[str]) -> None:
    """Behaviour C3.7."""
    assert node_taints.no_schedule(seen) == ([P + key for key in add], [P + key for key in remove])


@pytest.mark.parametrize(
    ("seen", "add", "remove"),
    [
        pytest.param(node(), [], [], id="never posted"),
        pytest.param(node(Ready="True"), [], [], id="ready"),
        pytest.param(node("unreachable:NoExecute", Ready="True"), [], [], id="lifting is not this"),
        pytest.param(node(Ready="False"), ["not-ready"], [], id="not ready"),
        pytest.param(node(Ready="Unknown"), ["unreachable"], [], id="unreachable"),
        pytest.param(node("unreachable:NoExecute", Ready="Unknown"), [], [], id="there already"),
        pytest.param(
            node("unreachable:NoExecute", Ready="False"),
            ["not-ready"],
            ["unreachable"],
            id="one for the other",
        ),
        pytest.param(
            node("unreachable:NoExecute", "not-ready:NoExecute", Ready="False"),
            [],
            ["unreachable"],
            id="cut off between the two writes (C3.11)",
        ),
        pytest.param(
            node("unreachable:NoSchedule", Ready="Unknown"), ["unreachable"], [], id="other effect"
        ),
    ],
)
def test_no_execute_follows_ready(seen: Node, add: list[str], remove: list[str]) -> None:
    """Behaviour C3.8."""
    assert node_taints.no_execute(seen) == ([P + key for key in add], [P + key for key in remove])


def test_a_taint_that_is_added_comes_last_with_its_time() -> None:
    held = (
        Taint(key="a", effect="NoSchedule", time_added="t0"),
        Taint(key="b", effect="NoExecute"),
    )
    assert node_taints.added(held, ["a", "c"], "NoSchedule", now="t1") == (
        *held,
        Taint(key="c", effect="NoSchedule", time_added="t1"),
    )


def test_a_taint_is_removed_with_its_effect_only() -> None:
    held = (Taint(key="a", effect="NoSchedule"), Taint(key="a", effect="NoExecute"))
    assert node_taints.without(held, ["a"], "NoExecute") == held[:1]
