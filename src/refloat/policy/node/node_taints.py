# SPDX-License-Identifier: Apache-2.0
"""Which taints a node has because of its conditions (behaviour C3.7, C3.8, C3.11).

Taints are one list that is written as a whole, so each change is a function from a list to a list,
which the writer applies to the newest list. The node lifecycle controller decides when to write.
"""

from collections.abc import Collection, Iterable
from typing import TypeAlias

from refloat.api import structs
from refloat.api.core import Node, Taint
from refloat.policy.scheduling.tolerations import NO_EXECUTE, NO_SCHEDULE

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_OF_CONDITION = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}

_OURS = {UNSCHEDULABLE, *_OF_CONDITION.values()}

Taints: TypeAlias = tuple[Taint, ...]

Swap: TypeAlias = tuple[list[str], list[str]]
"""The keys of taints to add, and of those to remove then."""


def of(node: Node) -> Taints:
    return node.spec.taints or ()


def no_schedule(node: Node) -> Swap:
    """The NoSchedule taints to add and to remove, so that they match the conditions."""
    pairs = [(each.type, each.status) for each in node.status.conditions or ()]
    expected = [_OF_CONDITION[each] for each in pairs if each in _OF_CONDITION]
    if node.spec.unschedulable:
        expected.append(UNSCHEDULABLE)
    present = [each.key for each in of(node) if each.effect == NO_SCHEDULE and each.key in _OURS]
    return (
        [key for key in dict.fromkeys(expected) if key not in present],
        [key for key in present if key not in expected],
    )


def no_execute(node: Node) -> Swap:
    """The same for NoExecute: not ready and unreachable exclude each other (C3.8).

    Nothing for a node that is ready: another decision removes the taints.
    """
    ready = structs.find(node.status.conditions, "Ready")
    key = None if ready is None else _OF_CONDITION.get(("Ready", ready.status))
    if key is None:
        return [], []
    present = no_execute_held(node)
    return [key] if key not in present else [], [each for each in present if each != key]


def no_execute_held(node: Node) -> list[str]:
    """The keys of the NoExecute taints that a node has because it is not ready."""
    keys = {each.key for each in of(node) if each.effect == NO_EXECUTE}
    return [key for key in (UNREACHABLE, NOT_READY) if key in keys]


def added(taints: Taints, keys: Iterable[str], effect: str, *, now: str) -> Taints:
    """The taints with these added at `now`, a timestamp; existing ones stay unchanged."""
    present = {each.key for each in taints if each.effect == effect}
    new = [Taint(key=key, effect=effect, time_added=now) for key in keys if key not in present]
    return (*taints, *new)


def without(taints: Taints, keys: Collection[str], effect: str) -> Taints:
    return tuple(each for each in taints if each.effect != effect or each.key not in keys)
