# SPDX-License-Identifier: Apache-2.0
"""Nodes of a zone are tainted one at a time, at the rate of the zone."""

from refloat.controllers.node_lifecycle.token_bucket import TokenBucket


def test_one_is_given_at_once_and_then_at_its_rate() -> None:
    bucket = TokenBucket(0.1)
    assert [bucket.take(now) for now in (100, 100, 109.9, 110, 111)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert bucket.wait(111) == 9


def test_nothing_is_saved_up() -> None:
    bucket = TokenBucket(0.1)
    assert [bucket.take(now) for now in (0, 1000, 1000)] == [True, True, False]


def test_who_did_not_have_to_wait_need_not_at_another_rate() -> None:
    bucket = TokenBucket(0.1)
    bucket.change(0.01, 5)
    assert [bucket.take(now) for now in (5, 104, 105)] == [True, False, True]


def test_who_had_to_wait_begins_its_wait_anew_at_another_rate() -> None:
    bucket = TokenBucket(0.1)
    bucket.take(0)
    bucket.change(0.01, 5)
    assert [bucket.take(now) for now in (10, 104, 105)] == [False, False, True]


def test_the_same_rate_changes_nothing() -> None:
    bucket = TokenBucket(0.1)
    bucket.take(0)
    bucket.change(0.1, 9)
    assert bucket.take(10)


def test_at_rate_zero_nobody_gets_any_nor_waits() -> None:
    bucket = TokenBucket(0.1)
    bucket.change(0.0, 5)
    assert not bucket.take(1e9)
    assert bucket.wait(1e9) is None
    bucket.change(0.1, 1e9)
    assert not bucket.take(1e9)
    assert bucket.take(1e9 + 10)
