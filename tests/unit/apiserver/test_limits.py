# SPDX-License-Identifier: Apache-2.0
"""Counting what is going on, and refusing what would be too much."""

import asyncio

import pytest

from refloat.api import errors, kinds
from refloat.apiserver import identity, limits
from refloat.apiserver.limits import InFlight, Limits, RequestKind
from refloat.apiserver.routes import Target
from tests.cases import cases
from tests.clocks import ManualClock

CLOCK = ManualClock()


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
async def test_as_many_as_allowed_enter_and_no_more(kind: RequestKind) -> None:
    in_flight = InFlight(Limits(read_only=2, mutating=2, watchers=2, waiting=0))
    await in_flight.enter(kind, "a", CLOCK)
    await in_flight.enter(kind, "b", CLOCK)
    with pytest.raises(errors.StatusError) as error:
        await in_flight.enter(kind, "c", CLOCK)
    assert (error.value.code, error.value.retry_after) == (429, 1)
    assert str(error.value) == "Too many requests, please try again later."
    assert in_flight.counts[kind] == 2


async def test_who_leaves_makes_room() -> None:
    in_flight = InFlight(Limits(mutating=1))
    for _ in range(3):
        await in_flight.enter("mutating", "a", CLOCK)
        in_flight.leave("mutating", "a")
    assert in_flight.counts["mutating"] == 0


async def test_one_kind_does_not_take_the_room_of_another() -> None:
    in_flight = InFlight(Limits(read_only=1, mutating=1, watchers=1))
    for kind in in_flight.counts:
        await in_flight.enter(kind, "a", CLOCK)
    assert set(in_flight.counts.values()) == {1}


async def test_one_user_leaves_a_quarter_of_the_places_to_others() -> None:
    in_flight = InFlight(Limits(read_only=8, waiting=0))
    for _ in range(6):
        await in_flight.enter("readOnly", "a", CLOCK)
    with pytest.raises(errors.StatusError):
        await in_flight.enter("readOnly", "a", CLOCK)
    await in_flight.enter("readOnly", "b", CLOCK)


async def test_a_request_waits_for_a_place_and_not_for_ever() -> None:
    clock = ManualClock()
    in_flight = InFlight(Limits(read_only=1))
    await in_flight.enter("readOnly", "a", clock)
    late = asyncio.ensure_future(in_flight.enter("readOnly", "b", clock))
    await clock.advance(14.0)
    assert not late.done()
    await clock.advance(2.0)
    with pytest.raises(errors.StatusError, match="Too many requests"):
        await late
    in_flight.leave("readOnly", "a")
    await in_flight.enter("readOnly", "a", clock)  # no place was lost


LEASE = Target(kinds.of("leases", "coordination.k8s.io"), "kube-node-lease", "n1")
STATUS = Target(kinds.of("nodes"), "", "n1", "status")


@cases(
    "user target verb want",
    {
        "a node's lease": (identity.node("n1"), LEASE, "update", True),
        "a node's status": (identity.node("n1"), STATUS, "patch", True),
        "a list": (identity.node("n1"), LEASE, "list", False),
        "another user": (identity.ADMIN, LEASE, "update", False),
        "a pod": (identity.node("n1"), Target(kinds.of("pods"), "a", "b"), "get", False),
    },
)
def test_only_a_node_that_says_that_it_lives_is_urgent(
    user: identity.Identity, target: Target, verb: str, want: bool
) -> None:
    assert limits.is_urgent(user, target, verb) is want
