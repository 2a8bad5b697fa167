# SPDX-License-Identifier: Apache-2.0
"""When compaction is due, by age; the other limits are in the contract suite."""

from refloat.store.compaction import MARKS, Compaction, Policy
from refloat.store.contract import Entry, Event
from refloat.store.log import Log


def grow(log: Log, count: int = 1) -> None:
    for revision in range(log.revision + 1, log.revision + count + 1):
        key = str(revision)
        log.apply([Event(revision, key, Entry(key, b"", revision, revision), None)])


def test_nothing_is_due_at_first() -> None:
    log = Log()
    grow(log, 10)
    assert Policy(Compaction()).due(1e9, log) <= 0


def test_a_change_is_due_when_its_age_has_passed_and_soon_after() -> None:
    policy, log = Policy(Compaction(age=300)), Log()
    revisions: dict[int, int] = {}
    for now in range(2000):
        grow(log)
        revisions[log.revision] = now
        due = policy.due(float(now), log)
        if due > 0:
            assert now - revisions[due] >= 300
        if now > 310:
            assert now - revisions[due + 1] <= 300 + 300 / MARKS + 1


def test_asking_often_needs_no_more_memory() -> None:
    policy, log = Policy(Compaction(age=300)), Log()
    for tick in range(10_000):
        grow(log)
        policy.due(tick / 10, log)
    assert len(policy._marks) <= MARKS + 2


def test_a_quiet_store_is_compacted_to_its_end() -> None:
    policy, log = Policy(Compaction(age=300)), Log()
    grow(log, 5)
    policy.due(0.0, log)
    assert policy.due(299.0, log) <= 0
    assert policy.due(300.0, log) == 5
