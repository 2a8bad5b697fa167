# SPDX-License-Identifier: Apache-2.0
"""The clock of the tests is a clock."""

import asyncio
from datetime import timedelta

import pytest

from refloat.base.clock import Clock
from tests.clocks import START, ManualClock, rest


async def test_time_passes_only_when_told() -> None:
    clock: Clock = ManualClock()
    assert (clock.now(), clock.monotonic()) == (START, 0.0)
    assert isinstance(clock, ManualClock)
    await clock.advance(90)
    assert (clock.now(), clock.monotonic()) == (START + timedelta(seconds=90), 90.0)


async def test_sleepers_wake_in_the_order_of_their_time() -> None:
    clock = ManualClock()
    woken: list[tuple[float, float]] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.monotonic()))

    tasks = [asyncio.ensure_future(sleep(each)) for each in (3.0, 1.0, 2.0)]
    await clock.advance(2.5)
    assert woken == [(1.0, 1.0), (2.0, 2.0)]
    await clock.advance(1)
    assert woken[-1] == (3.0, 3.0)
    await asyncio.gather(*tasks)


async def test_timeout_ends_what_takes_too_long() -> None:
    clock = ManualClock()

    async def wait() -> None:
        async with clock.timeout(5):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await clock.advance(4)
    assert not task.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await task


async def test_timeout_lets_what_is_quick_be() -> None:
    clock = ManualClock()
    async with clock.timeout(5):
        pass
    await clock.advance(10)


async def test_call_that_was_taken_back_does_not_come() -> None:
    clock = ManualClock()
    called: list[str] = []
    clock.call_at(1, lambda: called.append("kept"))
    clock.call_at(1, lambda: called.append("taken back")).cancel()
    await clock.advance(2)
    assert called == ["kept"]


async def test_jumping_clock_sleeps_at_once() -> None:
    clock = ManualClock(jumps=True)
    await clock.sleep(0.5)
    await rest()
    assert (clock.sleeps, clock.monotonic()) == ([0.5], 0.5)
