# SPDX-License-Identifier: Apache-2.0
"""Conditions, as in behaviour 0.5."""

from typing import Any

from refloat.api import conditions, structs

THEN = "2026-01-01T00:00:00Z"
NOW = "2026-01-01T00:01:00Z"


def condition(status: str = "True", reason: str = "Why", **more: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": status, "reason": reason, **more}


def test_an_absent_condition_is_appended_with_the_time() -> None:
    items = [{"type": "Other", "status": "True"}]
    assert conditions.upsert(items, condition(), now=NOW)
    assert items == [{"type": "Other", "status": "True"}, condition(lastTransitionTime=NOW)]


def test_a_new_status_is_a_transition() -> None:
    items = [condition("False", lastTransitionTime=THEN)]
    assert conditions.upsert(items, condition("True"), now=NOW)
    assert items == [condition("True", lastTransitionTime=NOW)]


def test_a_new_reason_alone_is_no_transition() -> None:
    items = [condition(reason="Old", lastTransitionTime=THEN)]
    assert conditions.upsert(items, condition(reason="New"), now=NOW)
    assert items == [condition(reason="New", lastTransitionTime=THEN)]


def test_the_same_again_changes_nothing() -> None:
    items = [condition(lastTransitionTime=THEN)]
    assert not conditions.upsert(items, condition(), now=NOW)
    assert items == [condition(lastTransitionTime=THEN)]


def test_a_condition_that_is_not_there_is_not_true() -> None:
    assert conditions.find([], "Ready") is None
    assert not conditions.is_true([], "Ready")


def test_an_unknown_condition_is_not_true() -> None:
    assert not conditions.is_true([condition("Unknown")], "Ready")


def test_the_first_of_two_conditions_counts() -> None:
    assert not conditions.is_true([condition("False"), condition("True")], "Ready")


def test_an_object_without_status_has_no_conditions() -> None:
    assert conditions.of({"metadata": {}}) == []
    assert conditions.of({"metadata": {}, "status": {"conditions": [condition()]}}) == [condition()]


def test_changed_conditions_keep_their_places_and_new_ones_come_last() -> None:
    items = tuple(structs.Condition(type=each) for each in ("Memory", "Ready"))
    changed = [{"type": "Disk"}, {"type": "Ready"}, {"type": "Memory"}]
    assert conditions.merged(items, changed) == {
        "$setElementOrder/conditions": [{"type": "Memory"}, {"type": "Ready"}, {"type": "Disk"}],
        "conditions": [{"type": "Memory"}, {"type": "Ready"}, {"type": "Disk"}],
    }
