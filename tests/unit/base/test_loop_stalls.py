# SPDX-License-Identifier: Apache-2.0
"""The meter of event-loop stalls, on loops that are held up on purpose."""

import asyncio
import time

from refloat.base import loop_stalls
from refloat.base.loop_stalls import StallMeter


def busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def measured(hold: float, *, working: bool) -> tuple[StallMeter, list[float]]:
    """A meter that has seen the loop held up for so long."""
    seen: list[float] = []
    meter = StallMeter(seen.append)
    meter.start()
    await asyncio.sleep(2 * loop_stalls.TICK_SECONDS)
    (busy if working else time.sleep)(hold)
    await asyncio.sleep(2 * loop_stalls.TICK_SECONDS)
    meter.stop()
    return meter, seen


async def test_work_that_holds_the_loop_is_a_stall_of_our_own() -> None:
    meter, seen = await measured(0.1, working=True)
    assert meter.worst >= meter.worst_busy >= 0.1 - 2 * loop_stalls.TICK_SECONDS
    assert max(seen) == meter.worst


async def test_a_machine_that_is_elsewhere_is_no_stall_of_our_own() -> None:
    meter, _ = await measured(0.1, working=False)
    assert meter.worst >= 0.1 - 2 * loop_stalls.TICK_SECONDS
    assert meter.worst_busy < 0.05


async def test_a_stopped_meter_leaves_no_timer() -> None:
    meter, seen = await measured(0.0, working=True)
    before = len(seen)
    time.sleep(0.05)
    await asyncio.sleep(0)
    assert len(seen) == before
    meter.stop()
