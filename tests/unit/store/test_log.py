# SPDX-License-Identifier: Apache-2.0
"""The log alone; the contract suite covers the log as a part of a store."""

import pytest

from refloat.store.contract import Entry, Event
from refloat.store.log import Log, after_all


def created(revision: int, key: str, value: bytes = b"") -> Event:
    return Event(revision, key, Entry(key, value, revision, revision), None)


def updated(revision: int, previous: Event, value: bytes) -> Event:
    assert previous.entry is not None
    entry = Entry(previous.key, value, previous.entry.created, revision)
    return Event(revision, previous.key, entry, previous.entry)


@pytest.mark.parametrize(
    ("prefix", "want"),
    [("", ""), ("a", "b"), ("a/", "a0"), ("az", "a{"), ("a\U0010ffff", "b"), ("\U0010ffff", "")],
)
def test_the_end_of_a_prefix(prefix: str, want: str) -> None:
    assert after_all(prefix) == want


def test_bytes_are_counted_as_live_or_superseded() -> None:
    log = Log(compacted=5, base=[Entry("base", b"1234", 3, 3)])
    one = created(6, "a", b"12")
    two = updated(7, one, b"123")
    log.apply([one, two])
    assert (log.live_bytes, log.superseded_bytes) == (7, 2)
    log.apply([Event(8, "a", None, two.entry)])
    assert (log.live_bytes, log.superseded_bytes) == (4, 5)
    log.forget(7)
    assert (log.live_bytes, log.superseded_bytes) == (4, 3)
    log.forget(8)
    assert (log.live_bytes, log.superseded_bytes) == (4, 0)


@pytest.mark.parametrize(
    ("kept_bytes", "want"), [(100, 0), (60, 0), (59, 2), (50, 2), (49, 3), (30, 3), (29, 4), (0, 4)]
)
def test_the_least_is_forgotten_that_keeps_old_versions_small(kept_bytes: int, want: int) -> None:
    log = Log()
    one = created(1, "a", b"x" * 10)
    two = updated(2, one, b"x" * 20)
    three = updated(3, two, b"x" * 30)
    log.apply([one, two, three, updated(4, three, b"x" * 40)])
    assert log.superseded_bytes == 60
    assert log.revision_within(kept_bytes) == want


def test_replaying_ends_in_the_same_state_as_applying() -> None:
    events = [created(1, "b"), created(2, "a"), created(3, "c")]
    events.append(Event(4, "b", None, events[0].entry))
    applied, replayed = Log(), Log()
    applied.apply(events)
    replayed.replay(events)
    assert applied.page("") == replayed.page("")
    assert [e.key for e in replayed.page("").entries] == ["a", "c"]


def test_a_revision_out_of_turn_is_impossible() -> None:
    with pytest.raises(AssertionError):
        Log().apply([created(2, "a")])
