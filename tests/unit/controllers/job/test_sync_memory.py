# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a Job between two syncs, and when it is forgotten."""

import pytest

from refloat.controllers.job import sync_memory
from refloat.controllers.job.sync_memory import SyncMemory
from tests.clocks import ManualClock
from tests.unit.policy.builders import pod


@pytest.fixture
def remembered() -> SyncMemory:
    return SyncMemory(ManualClock())


def test_settled_pods_are_looked_at_once(remembered: SyncMemory) -> None:
    assert [remembered.looks_at_settled("a") for _ in range(3)] == [True, False, False]


def test_settled_pods_are_looked_at_again_when_one_may_have_changed(remembered: SyncMemory) -> None:
    remembered.looks_at_settled("a")
    remembered.looks_at_settled("b")
    remembered.look_again("a")
    assert (remembered.looks_at_settled("a"), remembered.looks_at_settled("b")) == (True, False)


def test_nothing_is_kept_of_a_job_that_is_gone(remembered: SyncMemory) -> None:
    remembered.looks_at_settled("a")
    remembered.retire("a", [pod("x")])
    remembered.forget("a")
    assert remembered.looks_at_settled("a")
    assert not remembered.is_retired("a", "pod-x")


def test_a_deleted_pods_name_is_known_for_its_own_job(remembered: SyncMemory) -> None:
    remembered.retire("a", [pod("x")])
    assert remembered.is_retired("a", "pod-x")
    assert not remembered.is_retired("a", "pod-y")
    assert not remembered.is_retired("b", "pod-x")


def test_names_of_deleted_pods_have_a_bound(
    remembered: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_memory, "MAX_RETIRED", 2)
    for name in "xyz":
        remembered.retire("a", [pod(name)])
    assert [remembered.is_retired("a", f"pod-{name}") for name in "xyz"] == [False, False, True]
