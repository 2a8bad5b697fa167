# SPDX-License-Identifier: Apache-2.0
"""behaviour A10: what was done and not yet seen."""

from collections.abc import Callable

import pytest

from refloat.runtime.expectations import EXPIRY_SECONDS, Expectations, FinalizerExpectations
from tests.cases import cases
from tests.clocks import ManualClock

Step = Callable[[Expectations[str]], None]


def create(count: int) -> Step:
    return lambda known: known.expect_creations("k", count)


def delete(count: int) -> Step:
    return lambda known: known.expect_deletions("k", count)


def created(expectations: Expectations[str]) -> None:
    expectations.creation_observed("k")


def deleted(expectations: Expectations[str]) -> None:
    expectations.deletion_observed("k")


def forget(expectations: Expectations[str]) -> None:
    expectations.forget("k")


CASES = {
    "none recorded": ([], True),
    "two creations expected": ([create(2)], False),
    "one of two seen": ([create(2), created], False),
    "both seen": ([create(2), created, created], True),
    "more than expected: below zero is fine": ([create(1), created, created], True),
    "a deletion expected": ([delete(1)], False),
    "deletion seen": ([delete(1), deleted], True),
    "several events for one pod": ([delete(2), deleted, deleted, deleted], True),
    "a creation is no deletion": ([delete(1), created], False),
    "a deletion is no creation": ([create(1), deleted], False),
    "deletions replace creations": ([create(5), delete(1), deleted], True),
    "creations replace deletions": ([delete(5), create(1), created], True),
    "the same again replaces too": ([create(1), created, create(1)], False),
    "what was seen before does not count": ([created, create(1)], False),
    "forgotten": ([create(1), forget], True),
    "none to create": ([create(0)], True),
}


@cases("steps want_satisfied", CASES)
def test_satisfied(steps: list[Step], want_satisfied: bool) -> None:
    expectations: Expectations[str] = Expectations(ManualClock())
    for step in steps:
        step(expectations)
    assert expectations.satisfied("k") is want_satisfied
    assert expectations.satisfied("other")


@pytest.mark.parametrize(
    ("seconds", "want_satisfied"),
    [(EXPIRY_SECONDS - 1, False), (EXPIRY_SECONDS, False), (EXPIRY_SECONDS + 0.001, True)],
)
async def test_expectations_expire_after_five_minutes(seconds: float, want_satisfied: bool) -> None:
    """behaviour A1.8"""
    clock = ManualClock()
    expectations: Expectations[str] = Expectations(clock)
    expectations.expect_creations("k", 1)
    await clock.advance(seconds)
    assert expectations.satisfied("k") is want_satisfied


async def test_expecting_anew_starts_the_five_minutes_anew() -> None:
    clock = ManualClock()
    expectations: Expectations[str] = Expectations(clock)
    expectations.expect_creations("k", 1)
    await clock.advance(200)
    expectations.expect_creations("k", 1)
    await clock.advance(200)
    assert not expectations.satisfied("k")


def test_finalizers_are_expected_by_uid_until_seen() -> None:
    """behaviour A10.4"""
    expectations: FinalizerExpectations[str] = FinalizerExpectations()
    expectations.expect_removed("k", ["a", "b"])
    expectations.expect_removed("k", ["c"])
    expectations.removal_observed("k", "a")
    expectations.removal_observed("k", "unknown")
    expectations.removal_observed("other", "b")
    assert expectations.expected("k") == {"b", "c"}
    assert expectations.expected("other") == frozenset()


def test_finalizer_expectations_can_be_forgotten() -> None:
    expectations: FinalizerExpectations[str] = FinalizerExpectations()
    expectations.expect_removed("k", ["a"])
    expectations.forget("k")
    assert expectations.expected("k") == frozenset()


def test_nothing_is_kept_for_keys_without_finalizer_expectations() -> None:
    expectations: FinalizerExpectations[str] = FinalizerExpectations()
    expectations.expect_removed("k", [])
    expectations.expect_removed("l", ["a"])
    expectations.removal_observed("l", "a")
    assert expectations._pending == {}
