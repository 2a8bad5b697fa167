# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pass looks at: those that changed or are lost, and no others."""

from datetime import UTC, datetime

from refloat.api.coordination import Lease, LeaseSpec
from refloat.api.core import Node, NodeStatus
from refloat.api.structs import Condition, ObjectMeta
from refloat.controllers.node_lifecycle.book import Book
from refloat.policy.node_health import DEFAULTS

WALL = datetime(2026, 1, 1, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


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


def book(*nodes: Node, now: float = 0.0) -> Book:
    made = Book(DEFAULTS)
    for each in nodes:
        made.saw(each, now=now, wall=WALL)
    return made


def test_a_node_that_is_new_or_has_changed_is_looked_at_once() -> None:
    made = book(node("a"), node("b"))
    assert made.take(0) == ["a", "b"]
    made.saw(node("b", beat="b1"), now=3, wall=WALL)
    assert made.take(5) == ["b"]
    assert made.take(10) == []


def test_a_node_that_beats_is_not_looked_at() -> None:
    made = book(node())
    made.take(0)
    for second in range(10, 50, 10):
        made.renewed(lease(second), second)
        assert made.take(second) == []
    assert made.take(85) == []
    assert made.take(90) == ["n"]


def test_a_lost_node_is_looked_at_once_until_something_happens() -> None:
    made = book(node())
    made.take(0)
    assert made.take(50) == ["n"]
    assert made.take(55) == []
    made.renewed(lease(1), 56)
    assert made.take(60) == []
    assert made.take(106) == ["n"]


def test_one_whose_look_failed_comes_again() -> None:
    made = book(node())
    made.take(0)
    made.again("n")
    assert made.take(5) == ["n"]


def test_one_that_is_gone_does_not_come_again() -> None:
    made = book(node())
    made.gone(node())
    made.again("n")
    assert made.take(100) == []
    assert made.take_gone() == {"n": "u"}
    assert made.take_gone() == {}


def test_another_node_of_the_name_has_its_own_grace() -> None:
    made = book(node())
    made.take(0)
    made.gone(node())
    made.saw(node(uid="other"), now=40, wall=WALL)
    assert made.take(40) == ["n"]
    assert made.take(50) == []
    assert not made.is_lost("n", 89)
    assert made.take(90) == ["n"]
    assert made.is_lost("n", 90)


def test_the_first_post_may_bring_the_end_nearer() -> None:
    """Sixty seconds for who never posted, fifty after that (behaviour C3.1)."""
    made = book(node(beat=None))
    made.take(0)
    made.saw(node(beat="b0"), now=1, wall=WALL)
    made.take(5)
    assert made.take(50) == []
    assert made.take(51) == ["n"]


def test_when_silence_counts_anew_nobody_is_lost() -> None:
    """Behaviour C3.15."""
    made = book(node("a"), node("b"))
    made.take(0)
    made.take(50)
    made.begin_anew(60)
    assert made.take(100) == []
    assert made.take(110) == ["a", "b"]


def test_a_lease_without_a_node_is_overlooked() -> None:
    made = book()
    made.renewed(lease(1, "stranger"), 5)
    assert "stranger" not in made
    assert made.take(100) == []


def test_nothing_is_kept_of_nodes_that_come_and_go() -> None:
    made = Book(DEFAULTS)
    for number in range(100):
        made.saw(node(uid=str(number)), now=number, wall=WALL)
        made.gone(node(uid=str(number)))
    made.take_gone()
    assert made.take(1000) == []
    assert made._heap == []
