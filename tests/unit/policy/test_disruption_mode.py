# SPDX-License-Identifier: Apache-2.0
"""How fast nodes are tainted, from how many are well (behaviour C3.12-C3.15)."""

import pytest

from refloat.api.core import Node
from refloat.api.structs import ObjectMeta
from refloat.policy import disruption_mode
from refloat.policy.disruption_mode import DEFAULTS, Bucket, Count, Plan, State

NORMAL: State = "Normal"
PARTIAL: State = "PartialDisruption"
FULL: State = "FullDisruption"
INITIAL: State = "Initial"


@pytest.mark.parametrize(
    ("ready", "not_ready", "want"),
    [
        pytest.param(0, 1, FULL, id="the only one is down"),
        pytest.param(0, 90, FULL, id="all are down"),
        pytest.param(1, 0, NORMAL, id="all are well"),
        pytest.param(1, 2, NORMAL, id="two are too few to tell"),
        pytest.param(2, 3, PARTIAL, id="60 %"),
        pytest.param(9, 11, PARTIAL, id="55 % is enough"),
        pytest.param(10, 12, NORMAL, id="54.5 % is not"),
    ],
)
def test_the_state_of_a_zone(ready: int, not_ready: int, want: State) -> None:
    """Behaviour C3.13."""
    assert disruption_mode.state_of(Count(ready, not_ready), DEFAULTS) == want


@pytest.mark.parametrize(
    ("state", "size", "want"),
    [
        pytest.param(NORMAL, 500, 0.1, id="normal"),
        pytest.param(PARTIAL, 51, 0.01, id="much of a large zone"),
        pytest.param(PARTIAL, 50, 0.0, id="much of a small zone"),
        pytest.param(FULL, 5, 0.1, id="a whole zone"),
    ],
)
def test_the_rate_of_a_zone(state: State, size: int, want: float) -> None:
    """Behaviour C3.14."""
    assert disruption_mode.rate_of(state, size, DEFAULTS) == want


@pytest.mark.parametrize(
    ("before", "counts", "want"),
    [
        pytest.param({}, {}, Plan({}), id="no nodes"),
        pytest.param({}, {"a": Count(3, 0)}, Plan({"a": NORMAL}, {"a": 0.1}), id="first seen"),
        pytest.param({"a": NORMAL}, {"a": Count(3, 1)}, Plan({"a": NORMAL}), id="as before"),
        pytest.param(
            {"a": NORMAL},
            {"a": Count(2, 3)},
            Plan({"a": PARTIAL}, {"a": 0.0}),
            id="much goes down",
        ),
        pytest.param(
            {"a": NORMAL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count(3, 0)},
            Plan({"a": FULL, "b": NORMAL}, {"a": 0.1}),
            id="one zone goes down",
        ),
        pytest.param(
            {"a": FULL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count(0, 3)},
            Plan({"a": FULL, "b": FULL}, {"a": 0.0, "b": 0.0}, all_down=True, enters=True),
            id="all is down",
        ),
        pytest.param(
            {},
            {"a": Count(0, 3)},
            Plan({"a": FULL}, {"a": 0.0}, all_down=True, enters=True),
            id="all is down at the start",
        ),
        pytest.param(
            {"a": FULL},
            {"a": Count(0, 3)},
            Plan({"a": FULL}, all_down=True),
            id="all stays down",
        ),
        pytest.param(
            {"a": FULL},
            {"a": Count(0, 3), "b": Count(0, 1)},
            Plan({"a": FULL, "b": FULL}, {"a": 0.0, "b": 0.0}, all_down=True, enters=True),
            id="a new zone is down too",
        ),
        pytest.param(
            {"a": FULL, "b": FULL},
            {"a": Count(0, 3), "b": Count(1, 2)},
            Plan({"a": FULL, "b": NORMAL}, {"a": 0.1, "b": 0.1}, leaves=True),
            id="something is well again",
        ),
        pytest.param(
            {"a": FULL},
            {"a": Count(0, 3), "b": Count(3, 0)},
            Plan({"a": FULL, "b": NORMAL}, {"b": 0.1}),
            id="a new zone is well: the old one keeps its rate, as in Kubernetes",
        ),
        pytest.param(
            {"a": FULL},
            {"a": Count(), "b": Count(3, 0)},
            Plan({"b": NORMAL}, {"b": 0.1}),
            id="another zone took its place",
        ),
        pytest.param({"a": FULL}, {"a": Count()}, Plan({}), id="all nodes are gone"),
        pytest.param(
            {"a": FULL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count()},
            Plan({"a": FULL}, all_down=True),
            id="a zone without nodes does not count: the rest was down before",
        ),
    ],
)
def test_what_changes(before: dict[str, State], counts: dict[str, Count], want: Plan) -> None:
    """Behaviour C3.15."""
    assert disruption_mode.plan(before, counts, DEFAULTS) == want


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"topology.kubernetes.io/zone": "z"}, ":\0:z", id="zone alone"),
        pytest.param({"topology.kubernetes.io/region": "r"}, "r:\0:", id="region alone"),
        pytest.param(
            {
                "topology.kubernetes.io/zone": "z",
                "failure-domain.beta.kubernetes.io/zone": "old",
                "topology.kubernetes.io/region": "r",
            },
            "r:\0:old",
            id="the old label counts more",
        ),
    ],
)
def test_the_zone_of_a_node(labels: dict[str, str], want: str) -> None:
    """Behaviour C3.12."""
    assert disruption_mode.zone_of(Node(metadata=ObjectMeta(labels=labels))) == want


def test_one_is_given_at_once_and_then_at_its_rate() -> None:
    bucket = Bucket(0.1)
    assert [bucket.take(now) for now in (100, 100, 109.9, 110, 111)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert bucket.wait(111) == 9


def test_nothing_is_saved_up() -> None:
    bucket = Bucket(0.1)
    assert [bucket.take(now) for now in (0, 1000, 1000)] == [True, True, False]


def test_who_did_not_have_to_wait_need_not_at_another_rate() -> None:
    bucket = Bucket(0.1)
    bucket.change(0.01, 5)
    assert [bucket.take(now) for now in (5, 104, 105)] == [True, False, True]


def test_who_had_to_wait_begins_its_wait_anew_at_another_rate() -> None:
    bucket = Bucket(0.1)
    bucket.take(0)
    bucket.change(0.01, 5)
    assert [bucket.take(now) for now in (10, 104, 105)] == [False, False, True]


def test_the_same_rate_changes_nothing() -> None:
    bucket = Bucket(0.1)
    bucket.take(0)
    bucket.change(0.1, 9)
    assert bucket.take(10)


def test_at_rate_zero_nobody_gets_any_nor_waits() -> None:
    bucket = Bucket(0.1)
    bucket.change(0.0, 5)
    assert not bucket.take(1e9)
    assert bucket.wait(1e9) is None
    bucket.change(0.1, 1e9)
    assert not bucket.take(1e9)
    assert bucket.take(1e9 + 10)
