# SPDX-License-Identifier: Apache-2.0
"""How fast nodes are tainted, from how many are well (behaviour C3.12-C3.15)."""

from refloat.api.core import Node
from refloat.api.structs import ObjectMeta
from refloat.policy.node import disruption_mode
from refloat.policy.node.disruption_mode import DEFAULTS, Count, State, ZonePlan
from tests.cases import cases

NORMAL: State = "Normal"
PARTIAL: State = "PartialDisruption"
FULL: State = "FullDisruption"
INITIAL: State = "Initial"


@cases(
    "ready not_ready want",
    {
        "the only one is down": (0, 1, FULL),
        "all are down": (0, 90, FULL),
        "all are well": (1, 0, NORMAL),
        "two are too few to tell": (1, 2, NORMAL),
        "60 %": (2, 3, PARTIAL),
        "55 % is enough": (9, 11, PARTIAL),
        "54.5 % is not": (10, 12, NORMAL),
    },
)
def test_the_state_of_a_zone(ready: int, not_ready: int, want: State) -> None:
    """Behaviour C3.13."""
    assert disruption_mode.state_of(Count(ready, not_ready), DEFAULTS) == want


@cases(
    "state size want",
    {
        "normal": (NORMAL, 500, 0.1),
        "much of a large zone": (PARTIAL, 51, 0.01),
        "much of a small zone": (PARTIAL, 50, 0.0),
        "a whole zone": (FULL, 5, 0.1),
    },
)
def test_the_rate_of_a_zone(state: State, size: int, want: float) -> None:
    """Behaviour C3.14."""
    assert disruption_mode.rate_of(state, size, DEFAULTS) == want


@cases(
    "before counts want",
    {
        "no nodes": ({}, {}, ZonePlan({})),
        "first seen": ({}, {"a": Count(3, 0)}, ZonePlan({"a": NORMAL}, {"a": 0.1})),
        "as before": ({"a": NORMAL}, {"a": Count(3, 1)}, ZonePlan({"a": NORMAL})),
        "much goes down": ({"a": NORMAL}, {"a": Count(2, 3)}, ZonePlan({"a": PARTIAL}, {"a": 0.0})),
        "one zone goes down": (
            {"a": NORMAL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count(3, 0)},
            ZonePlan({"a": FULL, "b": NORMAL}, {"a": 0.1}),
        ),
        "all is down": (
            {"a": FULL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count(0, 3)},
            ZonePlan({"a": FULL, "b": FULL}, {"a": 0.0, "b": 0.0}, all_down=True, enters=True),
        ),
        "all is down at the start": (
            {},
            {"a": Count(0, 3)},
            ZonePlan({"a": FULL}, {"a": 0.0}, all_down=True, enters=True),
        ),
        "all stays down": ({"a": FULL}, {"a": Count(0, 3)}, ZonePlan({"a": FULL}, all_down=True)),
        "a new zone is down too": (
            {"a": FULL},
            {"a": Count(0, 3), "b": Count(0, 1)},
            ZonePlan({"a": FULL, "b": FULL}, {"a": 0.0, "b": 0.0}, all_down=True, enters=True),
        ),
        "something is well again": (
            {"a": FULL, "b": FULL},
            {"a": Count(0, 3), "b": Count(1, 2)},
            ZonePlan({"a": FULL, "b": NORMAL}, {"a": 0.1, "b": 0.1}, leaves=True),
        ),
        "a new zone is well: the old one keeps its rate, as in Kubernetes": (
            {"a": FULL},
            {"a": Count(0, 3), "b": Count(3, 0)},
            ZonePlan({"a": FULL, "b": NORMAL}, {"b": 0.1}),
        ),
        "another zone took its place": (
            {"a": FULL},
            {"a": Count(), "b": Count(3, 0)},
            ZonePlan({"b": NORMAL}, {"b": 0.1}),
        ),
        "all nodes are gone": ({"a": FULL}, {"a": Count()}, ZonePlan({})),
        "a zone without nodes does not count: the rest was down before": (
            {"a": FULL, "b": NORMAL},
            {"a": Count(0, 3), "b": Count()},
            ZonePlan({"a": FULL}, all_down=True),
        ),
    },
)
def test_what_changes(before: dict[str, State], counts: dict[str, Count], want: ZonePlan) -> None:
    """Behaviour C3.15."""
    assert disruption_mode.plan(before, counts, DEFAULTS) == want


@cases(
    "labels want",
    {
        "none": ({}, ""),
        "zone alone": ({"topology.kubernetes.io/zone": "z"}, ":\0:z"),
        "region alone": ({"topology.kubernetes.io/region": "r"}, "r:\0:"),
        "the old label counts more": (
            {
                "topology.kubernetes.io/zone": "z",
                "failure-domain.beta.kubernetes.io/zone": "old",
                "topology.kubernetes.io/region": "r",
            },
            "r:\0:old",
        ),
    },
)
def test_the_zone_of_a_node(labels: dict[str, str], want: str) -> None:
    """Behaviour C3.12."""
    assert disruption_mode.zone_of(Node(metadata=ObjectMeta(labels=labels))) == want
