# SPDX-License-Identifier: Apache-2.0
"""behaviour A10: what was done and not yet seen."""

from collections.abc import Callable

import pytest

from refloat.runtime.expectations import EXPIRY_SECONDS, Expectations, FinalizerExpectations
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


CASES = [
    pytest.param([], True, id="none recorded"),
    pytest.param([create(2)], False, id="two creations expected"),
    pytest.param([create(2), created], False, id="one of two seen"),
    pytest.param([create(2), created, created], True, id="both seen"),
    pytest.param([create(1), created, created], True, id="more than expected: below zero is fine"),
    pytest.param([delete(1)], False, id="a deletion expected"),
    pytest.param([delete(1), deleted], True, id="deletion seen"),
    pytest.param([delete(2), deleted, deleted, deleted], True, id="several events for one pod"),
    pytest.param([delete(1), created], False, id="a creation is no deletion"),
    pytest.param([create(1), deleted], False, id="a deletion is no creation"),
    pytest.param([create(5), delete(1), deleted], True, id="deletions replace creations"),
    pytest.param([delete(5), create(1), created], True, id="creations replace deletions"),
    pytest.param([create(1), created, create(1)], False, id="the same again replaces too"),
    pytest.param([created, create(1)], False, id="what was seen before does not count"),
    pytest.param([create(1), forget], True, id="forgotten"),
    pytest.param([create(0)], True, id="none to create"),
]


@pytest.mark.parametrize(("steps", "want_satisfied"), CASES)
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
