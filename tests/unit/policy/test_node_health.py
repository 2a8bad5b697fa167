# SPDX-License-Identifier: Apache-2.0
"""When a node is lost, and what is then written (behaviour C3.1-C3.4, C3.6)."""

from datetime import UTC, datetime

import pytest

from refloat.api.core import Node, NodeStatus, Pod, PodSpec, PodStatus
from refloat.api.meta import Object
from refloat.api.structs import Condition, ObjectMeta
from refloat.policy import node_health
from refloat.policy.node_health import DEFAULTS, Health

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
    seen = node_health.first_seen(node(Ready="True"), now=100.0, wall=NOW)
    assert seen == Health(100.0, "b0")
    assert seen.due(DEFAULTS) == 150.0


def test_a_node_that_never_posted_counts_from_its_creation() -> None:
    seen = node_health.first_seen(node(), now=100.0, wall=NOW)
    assert seen == Health(70.0, None)
    assert seen.due(DEFAULTS) == 130.0


def test_a_node_from_the_future_counts_from_now() -> None:
    early = datetime(2025, 1, 1, tzinfo=UTC)
    assert node_health.first_seen(node(), now=100.0, wall=early).probed == 100.0


@pytest.mark.parametrize(
    ("held", "seen", "want"),
    [
        pytest.param("b0", node("b1", Ready="True"), 200.0, id="another heartbeat"),
        pytest.param("b1", node("b0", Ready="True"), 200.0, id="one that goes back, too"),
        pytest.param("b0", node("b0", Ready="True"), 100.0, id="the same heartbeat"),
        pytest.param("b0", node("b0", Ready="False"), 100.0, id="another status, the same beat"),
        pytest.param(None, node("b0", Ready="True"), 200.0, id="the first post"),
        pytest.param("b0", node(), 200.0, id="Ready is gone"),
        pytest.param(None, node("b9", DiskPressure="True"), 100.0, id="only Ready beats"),
    ],
)
def test_which_posts_are_signs_of_life(held: str | None, seen: Node, want: float) -> None:
    """Behaviour C3.2."""
    health = Health(100.0, held)
    health.posted(seen, 200.0)
    assert health.probed == want


@pytest.mark.parametrize(
    ("renewed", "want"),
    [
        pytest.param("2026-01-01T00:00:01.000000Z", 200.0, id="newer"),
        pytest.param("2026-01-01T00:00:00.000000Z", 100.0, id="the same"),
        pytest.param("2025-01-01T00:00:00.000000Z", 100.0, id="older"),
        pytest.param("", 100.0, id="none"),
    ],
)
def test_which_leases_are_signs_of_life(renewed: str, want: float) -> None:
    """Behaviour C3.2."""
    health = Health(100.0, "b0", "2026-01-01T00:00:00.000000Z")
    health.leased(renewed, 200.0)
    assert health.probed == want


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
    told = "Kubelet never posted node status."
    return unknown(name, "NodeStatusNeverUpdated", told, lastHeartbeatTime=CREATED)


EVERY = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(node(), [never(each) for each in EVERY], id="never posted"),
        pytest.param(
            node(Ready="True", MemoryPressure="False", DiskPressure="True", PIDPressure="False"),
            [stopped(each) for each in EVERY],
            id="stopped",
        ),
        pytest.param(
            node(Ready="True", MemoryPressure="Unknown"),
            [stopped("Ready"), never("DiskPressure"), never("PIDPressure")],
            id="some are Unknown, some missing",
        ),
        pytest.param(node(Ready="Unknown", MemoryPressure="False"), [], id="only if Ready changes"),
        pytest.param(
            node(Ready="False", NetworkUnavailable="False"),
            [stopped("Ready"), *(never(each) for each in EVERY[1:])],
            id="NetworkUnavailable is not the node's",
        ),
    ],
)
def test_what_a_lost_node_says(seen: Node, want: list[Object]) -> None:
    """Behaviour C3.4."""
    assert node_health.lost_conditions(seen, now=NOW) == want


def pod(ready: str = "", phase: str = "Running", reason: str = "") -> Pod:
    conditions = (Condition(type="Ready", status=ready),) if ready else None
    return Pod(
        metadata=ObjectMeta(name="p"),
        spec=PodSpec(node_name="n"),
        status=PodStatus(phase=phase, reason=reason, conditions=conditions),
    )


FALSE = {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": STAMP}]}
LOST = {"reason": "NodeLost", "message": "Node n which was running pod p is unresponsive"}


@pytest.mark.parametrize(
    ("seen", "lost", "want"),
    [
        pytest.param(pod("True"), False, FALSE, id="ready"),
        pytest.param(pod("False"), False, None, id="not ready already"),
        pytest.param(pod(), False, None, id="never said (C3.6)"),
        pytest.param(pod("True"), True, {**FALSE, **LOST}, id="ready and lost"),
        pytest.param(pod(), True, LOST, id="never said, and lost"),
        pytest.param(pod("False", reason="NodeLost"), True, None, id="lost already"),
        pytest.param(pod("False", phase="Succeeded"), True, None, id="it is over"),
    ],
)
def test_what_a_pod_of_a_lost_node_says(seen: Pod, lost: bool, want: Object | None) -> None:
    """Behaviour C3.6; KEP-3329 for what is said of a lost node."""
    assert node_health.pod_status(seen, now=NOW, lost=lost) == want
