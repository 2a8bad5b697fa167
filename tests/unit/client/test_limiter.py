# SPDX-License-Identifier: Apache-2.0
"""When a request may go out."""

import asyncio
from typing import cast

import pytest

from refloat.base.clock import Clock
from refloat.client.limiter import Limiter
from tests.unit.client.clocks import ManualClock


async def test_a_burst_goes_out_at_once_and_the_rest_at_the_rate() -> None:
    clock = ManualClock()
    limiter = Limiter(clock, qps=10, burst=5)
    for _ in range(8):
        await limiter.acquire()
    assert clock.slept == pytest.approx([0.1, 0.1, 0.1])


async def test_a_pause_gives_back_no_more_than_a_burst() -> None:
    clock = ManualClock()
    limiter = Limiter(clock, qps=10, burst=2)
    clock.advance(1000)
    for _ in range(3):
        await limiter.acquire()
    assert clock.slept == pytest.approx([0.1])


async def test_zero_is_unlimited() -> None:
    clock = ManualClock()
    limiter = Limiter(clock, qps=0, burst=1)
    for _ in range(100):
        await limiter.acquire()
    assert clock.slept == []


class _Frozen(ManualClock):
    """Whose sleepers never wake."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.Event().wait()


async def test_those_who_wait_are_served_in_order_and_who_leaves_gives_its_turn_back() -> None:
    clock = _Frozen()
    limiter = Limiter(cast("Clock", clock), qps=1, burst=1)
    await limiter.acquire()
    waiting = [asyncio.ensure_future(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    assert clock.slept == [1, 2, 3]
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    last = asyncio.ensure_future(limiter.acquire())
    await asyncio.sleep(0)
    assert clock.slept[-1] == 1
    last.cancel()
