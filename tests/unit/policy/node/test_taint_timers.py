# SPDX-License-Identifier: Apache-2.0
"""How long a pod stays on a tainted node (behaviour C2.3-C2.7)."""

from refloat.api.core import Taint, Toleration
from refloat.policy.node import taint_timers
from refloat.policy.node.taint_timers import CANCEL, EVICT, KEEP, Step
from tests.cases import cases


def taint(key: str, value: str = "", effect: str = "NoExecute") -> Taint:
    return Taint(key=key, value=value, effect=effect)


def toleration(key: str, seconds: int | None = None, **more: str) -> Toleration:
    return Toleration(
        key=key, operator=more.pop("operator", "Exists"), toleration_seconds=seconds, **more
    )


A, B = taint("a"), taint("b")


def test_force_eviction_is_another_controllers_business() -> None:
    """KEP-36"""
    assert taint_timers.executing([A, taint("c", effect="ForceEviction")]) == (A,)


@cases(
    "taints tolerations counting want",
    {
        "no taint ends a countdown (C2.8)": ([], [], True, CANCEL),
        "untolerated goes now (C2.4)": ([A], [], False, EVICT),
        "no tolerations at all": ([A], None, False, EVICT),
        "untolerated ends a countdown too (C2.4)": ([A], [], True, EVICT),
        "one of two untolerated": ([A, B], [toleration("a")], False, EVICT),
        "for ever (C2.5)": ([A], [toleration("a")], False, CANCEL),
        "for ever ends a countdown": ([A], [toleration("a")], True, CANCEL),
        "for a while": ([A], [toleration("a", 30)], False, Step("start", 30)),
        "the least counts (C2.5)": (
            [A, B],
            [toleration("a", 30), toleration("b", 20)],
            False,
            Step("start", 20),
        ),
        "for ever is more than any": (
            [A, B],
            [toleration("a", 30), toleration("b")],
            False,
            Step("start", 30),
        ),
        "C2.3": ([A], [toleration("a", 30), toleration("a", 5)], False, Step("start", 30)),
        "unused": ([A], [toleration("a", 30), toleration("c", 5)], False, Step("start", 30)),
        "zero is now": ([A], [toleration("a", 0)], False, Step("start", 0)),
        "below zero is zero": ([A], [toleration("a", -7)], False, Step("start", 0)),
        "shorter changes nothing (C2.7)": ([A], [toleration("a", 5)], True, KEEP),
        "not even zero (C2.7)": ([A], [toleration("a", 0)], True, KEEP),
        "longer neither (C2.7)": ([A], [toleration("a", 900)], True, KEEP),
        "another value": (
            [taint("a", "x")],
            [toleration("a", 5, operator="Equal", value="y")],
            False,
            EVICT,
        ),
    },
)
def test_what_becomes_of_a_pod(
    taints: list[Taint], tolerations: list[Toleration] | None, counting: bool, want: Step
) -> None:
    assert taint_timers.decide(taints, tolerations, counting=counting) == want


def test_only_no_execute_counts() -> None:
    """Behaviour C2.1."""
    every = [taint("a", effect=each) for each in ("NoSchedule", "PreferNoSchedule", "NoExecute")]
    assert taint_timers.executing(every) == (every[2],)
    assert taint_timers.executing(None) == ()
