# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pass looks at: those that changed or are lost, and no others."""

from datetime import UTC, datetime

from refloat.api.coordination import Lease, LeaseSpec
from refloat.api.core import Node, NodeStatus
from refloat.api.structs import Condition, ObjectMeta
from refloat.controllers.node_lifecycle.node_records import NodeRecords
from refloat.policy.node.node_health import DEFAULTS
from refloat.runtime.lease_observer import LeaseObserver
from tests.clocks import ManualClock

WALL = datetime(2026, 1, 1, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


class SetClock(ManualClock):
    """A clock that a test sets."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


CLOCK = SetClock()


def node(name: str = "n", *, uid: str = "u", beat: str | None = "b0") -> Node:
    posted = Condition(type="Ready", status="True", last_heartbeat_time=beat)
    return Node(
        metadata=ObjectMeta(name=name, uid=uid, creation_timestamp=CREATED),
        status=NodeStatus(conditions=None if beat is None else (posted,)),
    )


def lease(number: int, name: str = "n") -> Lease:
    return Lease(
        metadata=ObjectMeta(name=name, namespace="kube-node-lease"),
        spec=LeaseSpec(renew_time=f"2026-01-01T00:00:{number:02}.000000Z"),
    )


def records(*nodes: Node, now: float = 0.0) -> NodeRecords:
    tracker = NodeRecords(DEFAULTS, LeaseObserver(CLOCK, by_renew_time=True))
    for each in nodes:
        tracker.observe_node(each, now=now, wall=WALL)
    return tracker


def renew(made: NodeRecords, number: int, name: str = "n", *, now: float) -> None:
    CLOCK.seconds = now
    made.observe_lease(lease(number, name))


def test_a_node_that_is_new_or_has_changed_is_looked_at_once() -> None:
    tracker = records(node("a"), node("b"))
    assert tracker.take(0) == ["a", "b"]
    tracker.observe_node(node("b", beat="b1"), now=3, wall=WALL)
    assert tracker.take(5) == ["b"]
    assert tracker.take(10) == []


def test_a_node_that_beats_is_not_looked_at() -> None:
    tracker = records(node())
    tracker.take(0)
    for second in range(10, 50, 10):
        renew(tracker, second, now=second)
        assert tracker.take(second) == []
    assert tracker.take(85) == []
    assert tracker.take(90) == ["n"]


def test_a_lost_node_is_looked_at_once_until_something_happens() -> None:
    tracker = records(node())
    tracker.take(0)
    assert tracker.take(50) == ["n"]
    assert tracker.take(55) == []
    renew(tracker, 1, now=56)
    assert tracker.take(60) == []
    assert tracker.take(106) == ["n"]


def test_one_whose_look_failed_comes_again() -> None:
    tracker = records(node())
    tracker.take(0)
    tracker.requeue("n")
    assert tracker.take(5) == ["n"]


def test_one_that_is_gone_does_not_come_again() -> None:
    tracker = records(node())
    tracker.remove_node(node())
    tracker.requeue("n")
    assert tracker.take(100) == []
    assert tracker.take_removed() == {"n": "u"}
    assert tracker.take_removed() == {}


def test_another_node_of_the_name_has_its_own_grace() -> None:
    tracker = records(node())
    tracker.take(0)
    tracker.remove_node(node())
    tracker.observe_node(node(uid="other"), now=40, wall=WALL)
    assert tracker.take(40) == ["n"]
    assert tracker.take(50) == []
    assert not tracker.is_lost("n", 89)
    assert tracker.take(90) == ["n"]
    assert tracker.is_lost("n", 90)


def test_the_first_post_may_bring_the_end_nearer() -> None:
    """Sixty seconds for who never posted, fifty after that (behaviour C3.1)."""
    tracker = records(node(beat=None))
    tracker.take(0)
    tracker.observe_node(node(beat="b0"), now=1, wall=WALL)
    tracker.take(5)
    assert tracker.take(50) == []
    assert tracker.take(51) == ["n"]


def test_when_silence_counts_anew_nobody_is_lost() -> None:
    """Behaviour C3.15."""
    tracker = records(node("a"), node("b"))
    tracker.take(0)
    tracker.take(50)
    tracker.restart_silence(60)
    assert tracker.take(100) == []
    assert tracker.take(110) == ["a", "b"]


def test_a_lease_without_a_node_is_overlooked() -> None:
    tracker = records()
    renew(tracker, 1, "stranger", now=5)
    assert "stranger" not in tracker
    assert tracker.take(100) == []


def test_nothing_is_kept_of_nodes_that_come_and_go() -> None:
    tracker = records()
    for number in range(100):
        tracker.observe_node(node(uid=str(number)), now=number, wall=WALL)
        tracker.remove_node(node(uid=str(number)))
    tracker.take_removed()
    assert tracker.take(1000) == []
    assert tracker._heap == []
