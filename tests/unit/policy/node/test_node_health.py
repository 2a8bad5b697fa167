# SPDX-License-Identifier: Apache-2.0
"""When a node is lost, and what is then written (behaviour C3.1-C3.4, C3.6)."""

from datetime import UTC, datetime

import pytest

from refloat.api.core import Node, NodeStatus, Pod
from refloat.api.meta import Object
from refloat.api.structs import Condition, ObjectMeta
from refloat.policy.node import node_health
from refloat.policy.node.node_health import DEFAULTS, Health
from tests.cases import cases
from tests.unit.policy import builders
from tests.unit.policy.builders import condition

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
STAMP = "2026-01-01T12:00:00Z"
CREATED = "2026-01-01T11:59:30Z"


def node(beat: str = "b0", **statuses: str) -> Node:
    conditions = tuple(
        Condition(type=name, status=status, last_heartbeat_time=beat)
        for name, status in statuses.items()
    )
    meta = ObjectMeta(name="n", creation_timestamp=CREATED)
    return Node(metadata=meta, status=NodeStatus(conditions=conditions or None))


def test_a_node_that_posted_counts_from_when_it_is_seen() -> None:
    health = node_health.first_seen(node(Ready="True"), now=100.0, wall=NOW)
    assert health == Health(100.0, "b0")
    assert health.due(DEFAULTS) == 150.0


def test_a_node_that_never_posted_counts_from_its_creation() -> None:
    health = node_health.first_seen(node(), now=100.0, wall=NOW)
    assert health == Health(70.0, None)
    assert health.due(DEFAULTS) == 130.0


def test_a_node_from_the_future_counts_from_now() -> None:
    early = datetime(2025, 1, 1, tzinfo=UTC)
    assert node_health.first_seen(node(), now=100.0, wall=early).probed == 100.0


@cases(
    "held seen want",
    {
        "another heartbeat": ("b0", node("b1", Ready="True"), 200.0),
        "one that goes back, too": ("b1", node("b0", Ready="True"), 200.0),
        "the same heartbeat": ("b0", node("b0", Ready="True"), 100.0),
        "another status, the same beat": ("b0", node("b0", Ready="False"), 100.0),
        "the first post": (None, node("b0", Ready="True"), 200.0),
        "Ready is gone": ("b0", node(), 200.0),
        "only Ready beats": (None, node("b9", DiskPressure="True"), 100.0),
    },
)
def test_which_posts_are_signs_of_life(held: str | None, seen: Node, want: float) -> None:
    """Behaviour C3.2."""
    assert Health(100.0, held).after_status(seen, 200.0).probed == want


@pytest.mark.parametrize(("renewed", "want"), [(99.0, 150.0), (120.0, 170.0)])
def test_latest_of_status_and_lease_is_the_last_sign_of_life(renewed: float, want: float) -> None:
    assert Health(100.0, "b0").due(DEFAULTS, renewed) == want
    assert not Health(100.0, "b0").is_lost(DEFAULTS, want - 0.1, renewed)
    assert Health(100.0, "b0").is_lost(DEFAULTS, want, renewed)


@pytest.mark.parametrize(("now", "want"), [(149.9, False), (150.0, True), (151.0, True)])
def test_a_node_is_lost_when_its_grace_is_over(now: float, want: bool) -> None:
    assert Health(100.0, "b0").is_lost(DEFAULTS, now) is want


def unknown(name: str, reason: str, message: str, **more: str) -> Object:
    return {
        "type": name,
        "status": "Unknown",
        "lastTransitionTime": STAMP,
        "reason": reason,
        "message": message,
        **more,
    }


def stopped(name: str) -> Object:
    return unknown(name, "NodeStatusUnknown", "Kubelet stopped posting node status.")


def never(name: str) -> Object:
    expected = "Kubelet never posted node status."
    return unknown(name, "NodeStatusNeverUpdated", expected, lastHeartbeatTime=CREATED)


EVERY = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@cases(
    "seen want",
    {
        "never posted": (node(), [never(each) for each in EVERY]),
        "stopped": (
            node(Ready="True", MemoryPressure="False", DiskPressure="True", PIDPressure="False"),
            [stopped(each) for each in EVERY],
        ),
        "some are Unknown, some missing": (
            node(Ready="True", MemoryPressure="Unknown"),
            [stopped("Ready"), never("DiskPressure"), never("PIDPressure")],
        ),
        "only if Ready changes": (node(Ready="Unknown", MemoryPressure="False"), []),
        "NetworkUnavailable is not the node's": (
            node(Ready="False", NetworkUnavailable="False"),
            [stopped("Ready"), *(never(each) for each in EVERY[1:])],
        ),
    },
)
def test_what_a_lost_node_says(seen: Node, want: list[Object]) -> None:
    """Behaviour C3.4."""
    assert node_health.lost_conditions(seen, now=NOW) == want


def pod(ready: str = "", phase: str = "Running", reason: str = "") -> Pod:
    conditions = [condition("Ready", ready)] if ready else []
    return builders.pod("u", phase, name="p", reason=reason, conditions=conditions)


FALSE = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": STAMP}]}
LOST = {"reason": "NodeLost", "message": "Node n which was running pod p is unresponsive"}


@cases(
    "seen lost want",
    {
        "ready": (pod("True"), False, FALSE),
        "not ready already": (pod("False"), False, None),
        "never said (C3.6)": (pod(), False, None),
        "ready and lost": (pod("True"), True, {**FALSE, **LOST}),
        "never said, and lost": (pod(), True, LOST),
        "lost already": (pod("False", reason="NodeLost"), True, None),
        "it is over": (pod("False", phase="Succeeded"), True, None),
    },
)
def test_what_a_pod_of_a_lost_node_says(seen: Pod, lost: bool, want: Object | None) -> None:
    """Behaviour C3.6; KEP-3329 for the reason on pods of a lost node."""
    assert node_health.pod_status(seen, now=NOW, is_lost=lost) == want
