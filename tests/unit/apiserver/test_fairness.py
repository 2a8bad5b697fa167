# SPDX-License-Identifier: Apache-2.0
"""Users share what there is not enough of."""

import asyncio

import pytest

from refloat.apiserver.fairness import FairShare, Full, Turns
from tests.clocks import rest


def share(total: int = 4, *, per_user: int = 4, waiting: int = 10) -> FairShare:
    return FairShare(total, per_user=per_user, waiting=waiting)


def waits(shared: FairShare, user: str, order: list[str], amount: int = 1) -> "asyncio.Task[None]":
    async def take() -> None:
        await shared.take(user, amount)
        order.append(user)

    return asyncio.ensure_future(take())


async def test_what_comes_free_goes_to_the_user_that_holds_the_least() -> None:
    shared = share()
    order: list[str] = []
    for _ in range(4):
        await shared.take("greedy")
    tasks = [waits(shared, "greedy", order) for _ in range(3)]
    await rest()
    tasks.append(waits(shared, "modest", order))
    await rest()
    shared.give("greedy")
    await rest()
    assert order == ["modest"]
    for _ in range(3):
        shared.give("greedy")
    await asyncio.gather(*tasks)
    assert shared.used == 4


async def test_a_user_whose_queue_is_full_is_refused_and_others_are_not() -> None:
    shared = share(1, per_user=1, waiting=2)
    order: list[str] = []
    await shared.take("a")
    tasks = [waits(shared, "a", order) for _ in range(2)]
    await rest()
    with pytest.raises(Full):
        await shared.take("a")
    tasks.append(waits(shared, "b", order))
    await rest()
    for user in ("a", "b", "a", "a"):
        shared.give(user)
        await rest()
    await asyncio.gather(*tasks)
    assert order == ["b", "a", "a"] or order == ["a", "b", "a"]
    assert shared.used == 0


async def test_users_with_full_queues_take_turns_at_a_single_place() -> None:
    shared = share(1, per_user=1, waiting=3)
    order: list[str] = []
    await shared.take("a")
    tasks = [waits(shared, user, order) for user in ("a", "a", "a", "b", "b", "b")]
    await rest()
    shared.give("a")
    for turn in range(5):
        await rest()
        shared.give(order[turn])
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "a", "b", "a", "b"]


async def test_a_user_that_never_stops_asking_does_not_keep_a_single_place() -> None:
    shared = share(1, per_user=1, waiting=3)
    order: list[str] = []
    await shared.take("busy")
    tasks = [waits(shared, "busy", order) for _ in range(3)]
    await rest()
    tasks.append(waits(shared, "other", order))
    await rest()
    shared.give("busy")
    for turn in range(4):
        await rest()
        if order[turn] == "other":
            break
        tasks.append(waits(shared, "busy", order))  # the queue is full again
        await rest()
        shared.give("busy")
    assert order == ["busy", "other"]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_user_cannot_have_more_than_its_share() -> None:
    shared = share(4, per_user=3)
    for _ in range(3):
        assert shared.try_take("a")
    assert not shared.try_take("a")
    assert shared.try_take("b")


async def test_a_large_request_is_not_passed_by_small_ones_for_ever() -> None:
    shared = share(10, per_user=8)
    order: list[str] = []
    await shared.take("a", 5)
    large = waits(shared, "b", order, 8)
    await rest()
    assert not shared.try_take("c", 1)
    shared.give("a", 5)
    await large
    assert shared.try_take("c", 1)


async def test_a_waiter_of_a_full_share_does_not_hold_up_others() -> None:
    shared = share(4, per_user=1)
    order: list[str] = []
    await shared.take("a")
    again = waits(shared, "a", order)
    await rest()
    assert shared.try_take("b")
    shared.give("a")
    await again


async def test_who_leaves_while_waiting_takes_nothing_along() -> None:
    shared = share(1, per_user=1)
    order: list[str] = []
    await shared.take("a")
    leaver, stayer = waits(shared, "b", order), waits(shared, "c", order)
    await rest()
    leaver.cancel()
    await rest()
    shared.give("a")
    await stayer
    shared.give("c")
    assert (shared.used, order) == (0, ["c"])


async def test_what_was_granted_to_one_who_left_at_that_moment_is_given_on() -> None:
    shared = share(1, per_user=1)
    order: list[str] = []
    await shared.take("a")
    leaver, stayer = waits(shared, "b", order), waits(shared, "c", order)
    await rest()
    shared.give("a")  # to b, which does not know yet
    leaver.cancel()
    await stayer
    assert order == ["c"]


async def test_two_that_leave_at_one_moment_take_nothing_along() -> None:
    shared = share(1, per_user=1)
    order: list[str] = []
    await shared.take("a")
    leavers = [waits(shared, user, order) for user in ("b", "c", "b")]
    stayer = waits(shared, "d", order)
    await rest()
    for leaver in leavers:
        leaver.cancel()
    shared.give("a")
    await stayer
    assert (shared.used, order) == (1, ["d"])


async def test_requests_of_a_busy_user_do_not_delay_the_first_of_another() -> None:
    turns = Turns(per_turn=4)
    order: list[str] = []

    async def begin(user: str) -> None:
        await turns.begin(user)
        order.append(user)

    await asyncio.gather(*(begin("busy") for _ in range(40)), begin("other"))
    assert len(order) == 41
    assert order.index("other") <= 5


async def test_what_fits_into_a_turn_does_not_wait() -> None:
    turns = Turns(per_turn=4)
    for _ in range(4):
        turn = turns.begin("a")
        with pytest.raises(StopIteration):
            turn.send(None)
