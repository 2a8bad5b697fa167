# SPDX-License-Identifier: Apache-2.0
"""When a request may go out."""

import asyncio

import pytest

from refloat.client.limiter import Limiter
from tests.clocks import ManualClock


async def test_a_burst_goes_out_at_once_and_the_rest_at_the_rate() -> None:
    clock = ManualClock(jumps=True)
    limiter = Limiter(clock, qps=10, burst=5)
    for _ in range(8):
        await limiter.acquire()
    assert clock.sleeps == pytest.approx([0.1, 0.1, 0.1])


async def test_a_pause_gives_back_no_more_than_a_burst() -> None:
    clock = ManualClock(jumps=True)
    limiter = Limiter(clock, qps=10, burst=2)
    await clock.advance(1000)
    for _ in range(3):
        await limiter.acquire()
    assert clock.sleeps == pytest.approx([0.1])


async def test_zero_is_unlimited() -> None:
    clock = ManualClock(jumps=True)
    limiter = Limiter(clock, qps=0, burst=1)
    for _ in range(100):
        await limiter.acquire()
    assert clock.sleeps == []


async def test_those_who_wait_are_served_in_order_and_who_leaves_gives_its_turn_back() -> None:
    clock = ManualClock()
    limiter = Limiter(clock, qps=1, burst=1)
    await limiter.acquire()
    waiting = [asyncio.ensure_future(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    assert clock.sleeps == [1, 2, 3]
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    last = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    assert clock.sleeps[-1] == 1
    last.cancel()
