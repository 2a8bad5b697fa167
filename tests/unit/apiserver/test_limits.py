# SPDX-License-Identifier: Apache-2.0
"""Counting what is going on, and refusing what would be too much."""

import pytest

from refloat.api import errors
from refloat.apiserver import limits
from refloat.apiserver.limits import InFlight, Limits, RequestKind


@pytest.mark.parametrize(
    ("verb", "want"),
    [
        ("get", "readOnly"),
        ("list", "readOnly"),
        ("watch", "watch"),
        ("create", "mutating"),
        ("update", "mutating"),
        ("patch", "mutating"),
        ("delete", "mutating"),
        ("deletecollection", "mutating"),
    ],
)
def test_a_verb_counts_against_one_bound(verb: str, want: RequestKind) -> None:
    assert limits.kind_of(verb) == want


def test_kubernetes_numbers_are_the_default() -> None:
    bounds = Limits()
    assert (bounds.body_bytes, bounds.read_only, bounds.mutating) == (3145728, 400, 200)
    assert bounds.idle_seconds == 90


@pytest.mark.parametrize("kind", ["readOnly", "mutating", "watch"])
def test_as_many_as_allowed_enter_and_no_more(kind: RequestKind) -> None:
    in_flight = InFlight(Limits(read_only=2, mutating=2, watchers=2))
    in_flight.enter(kind)
    in_flight.enter(kind)
    with pytest.raises(errors.StatusError) as refused:
        in_flight.enter(kind)
    assert (refused.value.code, refused.value.retry_after) == (429, 1)
    assert str(refused.value) == "Too many requests, please try again later."
    assert in_flight.counts[kind] == 2


def test_who_leaves_makes_room() -> None:
    in_flight = InFlight(Limits(mutating=1))
    for _ in range(3):
        in_flight.enter("mutating")
        in_flight.leave("mutating")
    assert in_flight.counts["mutating"] == 0


def test_one_kind_does_not_take_the_room_of_another() -> None:
    in_flight = InFlight(Limits(read_only=1, mutating=1, watchers=1))
    for kind in in_flight.counts:
        in_flight.enter(kind)
    assert set(in_flight.counts.values()) == {1}
