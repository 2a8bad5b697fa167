# SPDX-License-Identifier: Apache-2.0
"""How long a pod stays on a tainted node (behaviour C2.3-C2.7)."""

import pytest

from refloat.api.core import Taint, Toleration
from refloat.policy import taint_timers
from refloat.policy.taint_timers import CANCEL, EVICT, KEEP, Step


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


@pytest.mark.parametrize(
    ("taints", "tolerations", "counting", "want"),
    [
        pytest.param([], [], True, CANCEL, id="no taint ends a countdown (C2.8)"),
        pytest.param([A], [], False, EVICT, id="untolerated goes now (C2.4)"),
        pytest.param([A], None, False, EVICT, id="no tolerations at all"),
        pytest.param([A], [], True, EVICT, id="untolerated ends a countdown too (C2.4)"),
        pytest.param([A, B], [toleration("a")], False, EVICT, id="one of two untolerated"),
        pytest.param([A], [toleration("a")], False, CANCEL, id="for ever (C2.5)"),
        pytest.param([A], [toleration("a")], True, CANCEL, id="for ever ends a countdown"),
        pytest.param([A], [toleration("a", 30)], False, Step("start", 30), id="for a while"),
        pytest.param(
            [A, B],
            [toleration("a", 30), toleration("b", 20)],
            False,
            Step("start", 20),
            id="the least counts (C2.5)",
        ),
        pytest.param(
            [A, B],
            [toleration("a", 30), toleration("b")],
            False,
            Step("start", 30),
            id="for ever is more than any",
        ),
        pytest.param(
            [A], [toleration("a", 30), toleration("a", 5)], False, Step("start", 30), id="C2.3"
        ),
        pytest.param(
            [A], [toleration("a", 30), toleration("c", 5)], False, Step("start", 30), id="unused"
        ),
        pytest.param([A], [toleration("a", 0)], False, Step("start", 0), id="zero is now"),
        pytest.param([A], [toleration("a", -7)], False, Step("start", 0), id="below zero is zero"),
        pytest.param([A], [toleration("a", 5)], True, KEEP, id="shorter changes nothing (C2.7)"),
        pytest.param([A], [toleration("a", 0)], True, KEEP, id="not even zero (C2.7)"),
        pytest.param([A], [toleration("a", 900)], True, KEEP, id="longer neither (C2.7)"),
        pytest.param(
            [taint("a", "x")],
            [toleration("a", 5, operator="Equal", value="y")],
            False,
            EVICT,
            id="another value",
        ),
    ],
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
