# SPDX-License-Identifier: Apache-2.0
"""The budget bounds how many pods Refloat marks Failed in a window."""

from datetime import timedelta

import pytest

from refloat.controllers.failure_recovery.budget_ledger import BudgetLedger
from refloat.policy.recovery.failure_recovery import Budget
from tests.cases import cases

THREE_A_MINUTE = Budget(3, timedelta(minutes=1))


def spend(ledger: BudgetLedger, now: float) -> bool:
    """Take a slot and spend it at once, if there is one."""
    if not ledger.take(now):
        return False
    ledger.spend(now)
    return True


def test_without_a_budget_there_is_no_bound() -> None:
    ledger = BudgetLedger(None)
    assert all(spend(ledger, 0.0) for _ in range(10_000))


def test_a_budget_is_kept_in_every_window() -> None:
    ledger = BudgetLedger(THREE_A_MINUTE)
    assert [spend(ledger, at) for at in (0.0, 10.0, 20.0, 30.0)] == [True, True, True, False]
    assert ledger.wait(30.0) == 30.0
    assert not spend(ledger, 59.0)
    assert spend(ledger, 60.0)
    assert ledger.wait(60.0) == 10.0


def test_a_write_that_takes_long_counts_from_its_end() -> None:
    ledger = BudgetLedger(Budget(1, timedelta(minutes=1)))
    assert ledger.take(0.0)
    assert ledger.wait(1.0) is None
    assert not ledger.take(100.0)
    ledger.spend(100.0)
    assert ledger.wait(100.0) == 60.0


def test_what_did_not_happen_is_given_back() -> None:
    ledger = BudgetLedger(THREE_A_MINUTE, [1.0, 1.0])
    assert ledger.take(2.0)
    assert not ledger.take(3.0)
    ledger.give_back()
    assert ledger.take(3.0)


def test_what_another_process_spent_counts() -> None:
    ledger = BudgetLedger(THREE_A_MINUTE, [-10.0, -20.0, -70.0])
    assert spend(ledger, 0.0)
    assert ledger.wait(0.0) == 40.0


def test_another_budget_does_not_give_back_what_is_spent_or_taken() -> None:
    ledger = BudgetLedger(THREE_A_MINUTE)
    assert spend(ledger, 0.0)
    assert ledger.take(10.0)
    ledger.change(Budget(2, timedelta(minutes=2)), 20.0, [])
    assert not ledger.take(20.0)
    ledger.spend(30.0)
    assert ledger.wait(30.0) == 90.0


@pytest.mark.parametrize("old", [THREE_A_MINUTE, None], ids=["another budget", "no budget"])
def test_a_new_budget_counts_a_slot_that_was_just_spent(old: Budget | None) -> None:
    """No pod may show it yet: the watch comes later than the answer."""
    ledger = BudgetLedger(old)
    assert spend(ledger, 7.0)
    ledger.change(Budget(1, timedelta(hours=1)), 7.0, [])
    assert not ledger.take(7.0)
    assert ledger.wait(7.0) == 3600.0


def test_a_slot_that_was_just_spent_and_is_seen_counts_once() -> None:
    ledger = BudgetLedger(None)
    assert spend(ledger, 7.0)
    ledger.change(Budget(2, timedelta(hours=1)), 7.5, [7.0])
    assert spend(ledger, 7.5)


@cases(
    "old want",
    {
        "what is in the old window is known already": (THREE_A_MINUTE, 2),
        "without a budget nothing was": (None, 3),
    },
)
def test_a_longer_look_back_counts_what_can_be_seen(old: Budget | None, want: int) -> None:
    ledger = BudgetLedger(old, [-100.0])
    ledger.change(Budget(9, timedelta(hours=1)), 0.0, [-3000.0, -100.0, -30.0])
    assert [spend(ledger, 0.0) for _ in range(9)].count(True) == 9 - want


def test_more_than_a_budget_was_spent_when_it_was_greater() -> None:
    ledger = BudgetLedger(Budget(1, timedelta(minutes=1)), [20.0, 0.0, 10.0])
    assert ledger.wait(30.0) == 50.0
