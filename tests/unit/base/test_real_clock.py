# SPDX-License-Identifier: Apache-2.0
"""The machine's own time."""

import asyncio
import time

import pytest

from refloat.base.clock import RealClock


def test_the_time_runs_on_while_the_machine_sleeps() -> None:
    """CLOCK_BOOTTIME counts it, and only Linux has another one that does not."""
    unstopped = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(unstopped)
    seen = RealClock().monotonic()
    assert before <= seen <= time.clock_gettime(unstopped)


async def test_a_call_comes_at_its_time_and_not_before() -> None:
    clock, called = RealClock(), asyncio.Event()
    when = clock.monotonic() + 0.02
    clock.call_at(when, called.set)
    await called.wait()
    assert clock.monotonic() >= when - 0.002  # a loop's timers have a grain


async def test_a_time_that_has_passed_is_now() -> None:
    clock, called = RealClock(), asyncio.Event()
    clock.call_at(clock.monotonic() - 100, called.set)
    await called.wait()


async def test_a_timeout_ends_what_takes_too_long() -> None:
    clock = RealClock()
    with pytest.raises(TimeoutError):
        async with clock.timeout(0.001):
            await asyncio.Event().wait()
