# SPDX-License-Identifier: Apache-2.0
"""The virtual loop: jumps in time, unchanged asyncio, clear errors."""

import asyncio
import gc
import math
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from refloat.base.clock import Clock
from refloat.sim import errors
from refloat.sim.clock import EPOCH, VirtualClock
from refloat.sim.loop import COLLECT_STEPS, MAX_CANCELLED, Bounds, VirtualLoop
from refloat.sim.run import Sim, run, stream
from tests.virtual import virtual

# -- time ------------------------------------------------------------------


def test_hours_pass_in_milliseconds() -> None:
    async def main(sim: Sim) -> float:
        for _ in range(24 * 29):
            await sim.clock.sleep(3600)
        return sim.clock.monotonic()

    began = time.perf_counter()
    assert run(main, seed=1) == 29 * 86_400.0
    assert time.perf_counter() - began < 1.0


@virtual()
async def test_the_clock_tells_the_loops_time(sim: Sim) -> None:
    clock: Clock = sim.clock
    assert clock.now() == EPOCH
    await clock.sleep(90.5)
    assert clock.now() == EPOCH + timedelta(seconds=90.5)
    assert clock.monotonic() == asyncio.get_running_loop().time() == 90.5


@virtual()
async def test_work_takes_no_time(sim: Sim) -> None:
    for _ in range(100):
        await asyncio.sleep(0)
    assert sim.clock.monotonic() == 0.0


@virtual(seeds=20)
async def test_timers_run_by_their_time_and_never_early(sim: Sim) -> None:
    async def sleeper(seconds: float) -> None:
        await sim.clock.sleep(seconds)
        assert sim.clock.monotonic() == seconds
        sim.trace.add(str(seconds))

    naps = [5.0, 1.0, 3.0, 2.0, 4.0]
    await asyncio.gather(*map(sleeper, naps))
    assert sim.trace.texts == [str(nap) for nap in sorted(naps)]


@virtual(seeds=20)
async def test_overdue_timers_run_in_the_order_of_their_times(sim: Sim) -> None:
    await sim.clock.sleep(10)
    ran: list[int] = []
    for when in (5, 3, 4):
        asyncio.get_running_loop().call_at(when, ran.append, when)
    await sim.clock.sleep(1)
    assert ran == [3, 4, 5]
    assert sim.clock.monotonic() == 11.0


@virtual()
async def test_a_cancelled_timer_neither_runs_nor_moves_time(sim: Sim) -> None:
    timer = sim.clock.call_at(100.0, lambda: sim.trace.add("ran"))
    timer.cancel()
    await sim.clock.sleep(1)
    assert sim.clock.monotonic() == 1.0
    assert not sim.trace.lines


@virtual()
async def test_a_timer_can_be_cancelled_again_after_it_ran(sim: Sim) -> None:
    for _ in range(3 * MAX_CANCELLED):
        timer = sim.clock.call_at(sim.clock.monotonic(), lambda: None)
        await sim.clock.sleep(1)
        timer.cancel()
        timer.cancel()
    await sim.clock.sleep(1)


@virtual()
async def test_cancelled_timers_do_not_pile_up(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    timers = [loop.call_later(50 + n, sim.trace.add, str(n)) for n in range(10)]
    for _ in range(100 * MAX_CANCELLED):
        loop.call_later(10, sim.trace.add, "cancelled").cancel()
    assert len(loop._timers) < 3 * MAX_CANCELLED
    await sim.clock.sleep(100)
    assert sim.trace.texts == [str(n) for n in range(len(timers))]


@virtual()
async def test_a_timer_without_a_time_is_refused(sim: Sim) -> None:
    with pytest.raises(ValueError, match="needs a time"):
        asyncio.get_running_loop().call_later(math.nan, print)


# -- a loop among loops ------------------------------------------------------


def test_a_task_factory_is_used() -> None:
    async def main(sim: Sim) -> str:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, work, **_: asyncio.Task(work, loop=loop))
        return type(await _itself()).__module__

    async def _itself() -> object:
        task: asyncio.Task[object] = asyncio.create_task(asyncio.sleep(0))
        await task
        return task

    assert run(main, seed=1) == "_asyncio"


def test_an_asyncio_runner_can_drive_it() -> None:
    async def main() -> float:
        await asyncio.sleep(100)
        return asyncio.get_running_loop().time()

    loop = VirtualLoop(stream(1, "order"))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(main()) == 100.0


def test_stop_ends_a_run_after_the_turn() -> None:
    loop = VirtualLoop(None)
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    loop.call_soon(loop.stop)
    loop.call_soon(ran.append, 2)
    loop.call_later(1, ran.append, 3)
    loop.run_forever()
    assert ran == [1, 2]
    assert loop.time() == 0.0
    loop.close()


def test_stopping_an_idle_loop_is_no_deadlock() -> None:
    loop = VirtualLoop(None)
    loop.stop()
    loop.run_forever()
    loop.close()


def test_what_an_interrupt_left_over_runs_later() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    loop = VirtualLoop(None)
    ran: list[int] = []
    loop.call_soon(ran.append, 1)
    loop.call_soon(interrupt)
    loop.call_soon(ran.append, 2)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert ran == [1]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert ran == [1, 2]
    loop.close()


def test_a_closed_loop_takes_nothing() -> None:
    loop = VirtualLoop(None)
    loop.close()
    for ask in (loop.call_soon, lambda call: loop.call_later(1, call)):
        with pytest.raises(RuntimeError, match="closed"):
            ask(print)


# -- ends --------------------------------------------------------------------


def test_a_deadlock_says_who_waits_where() -> None:
    async def consumer(queue: asyncio.Queue[int]) -> None:
        await queue.get()

    async def main(sim: Sim) -> None:
        await sim.clock.sleep(12.5)
        await asyncio.create_task(consumer(asyncio.Queue()), name="consumer")

    with pytest.raises(errors.Deadlock) as error:
        run(main, seed=7)
    text = str(error.value)
    assert "seed 7, 12.5 s" in text
    assert "2 tasks wait" in text
    assert "sim/test_loop.py" in text
    assert "main, for task consumer" in text
    assert "  consumer: " in text
    assert "asyncio/queues.py" in text
    assert "0x" not in text, "an address would differ from run to run"


def test_sleeping_for_ever_is_a_deadlock() -> None:
    async def main(sim: Sim) -> None:
        await sim.clock.sleep(math.inf)

    with pytest.raises(errors.Deadlock):
        run(main, seed=1)


def test_a_spinning_task_runs_out_of_steps() -> None:
    async def main(sim: Sim) -> None:
        await sim.clock.sleep(3)
        while True:
            await asyncio.sleep(0)

    with pytest.raises(errors.OutOfSteps, match=r"(?s)at one instant \(seed 5, 3.0 s.*main"):
        run(main, seed=5, bounds=Bounds(steps=1000))


def test_a_ticking_program_runs_out_of_time() -> None:
    async def main(sim: Sim) -> None:
        while True:
            await sim.clock.sleep(10)

    with pytest.raises(errors.OutOfTime, match=r"at 3610.0 s, beyond.*3600.*seed 5"):
        run(main, seed=5, bounds=Bounds(seconds=3600))


def test_an_exception_says_its_seed() -> None:
    async def main(sim: Sim) -> None:
        await sim.clock.sleep(3)
        raise LookupError("found nothing")

    with pytest.raises(LookupError, match="found nothing") as error:
        run(main, seed=42)
    assert error.value.__notes__ == ["simulated with seed 42: 4 steps, 3.0 s"]


def test_an_exception_in_a_callback_ends_the_run() -> None:
    async def main(sim: Sim) -> None:
        asyncio.get_running_loop().call_soon(int, "no number")
        await sim.clock.sleep(3)

    with pytest.raises(errors.Unhandled, match="no number") as error:
        run(main, seed=1)
    assert isinstance(error.value.__cause__, ValueError)


def test_a_task_that_nobody_asked_how_it_ended_ends_the_run() -> None:
    async def fail() -> None:
        raise LookupError("found nothing")

    async def main(sim: Sim) -> None:
        asyncio.create_task(fail())  # noqa: RUF006 - that is the mistake
        await sim.clock.sleep(3)

    with pytest.raises(errors.Unhandled, match=r"never retrieved.*found nothing"):
        run(main, seed=1)


@virtual()
async def test_an_exception_handler_is_told_instead(sim: Sim) -> None:
    messages: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: messages.append(repr(context["exception"])))
    loop.call_soon(int, "no number")
    await sim.clock.sleep(1)
    assert len(messages) == 1
    assert "no number" in messages[0]


def test_what_the_program_left_is_cancelled_in_the_order_of_its_start() -> None:
    async def wait(sim: Sim, number: int) -> None:
        try:
            await sim.clock.sleep(math.inf)
        finally:
            sim.trace.add(f"{number} ended")

    async def main(sim: Sim) -> Sim:
        for number in range(10):
            asyncio.create_task(wait(sim, number), name=f"w{number}")  # noqa: RUF006
        await sim.clock.sleep(1)
        return sim

    sim = run(main, seed=1, shuffle=False)
    assert sim.trace.lines == [(1.0, f"{number} ended") for number in range(10)]


def test_a_task_that_ignores_its_cancellation_is_a_deadlock() -> None:
    async def stay(event: asyncio.Event) -> None:
        while True:
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue

    async def main(sim: Sim) -> None:
        asyncio.create_task(stay(asyncio.Event()), name="stubborn")  # noqa: RUF006
        await sim.clock.sleep(1)

    with pytest.raises(errors.Deadlock, match="stubborn"):
        run(main, seed=1)
    gc.collect()


# -- garbage -------------------------------------------------------------------


async def _numbers() -> AsyncIterator[int]:
    try:
        for number in range(10):
            yield number
    finally:
        await asyncio.sleep(0)


def test_a_generator_that_is_dropped_halfway_ends_the_run() -> None:
    async def main(sim: Sim) -> None:
        async for _ in _numbers():
            break
        await sim.clock.sleep(1)

    with pytest.raises(errors.Leaked, match=r"_numbers, first used at sim/test_loop.py:\d+ .*main"):
        run(main, seed=1)


def test_a_generator_that_is_open_at_the_end_is_an_error() -> None:
    generators: list[AsyncIterator[int]] = []

    async def main(sim: Sim) -> None:
        generators.append(_numbers())
        await anext(generators[0])

    with pytest.raises(errors.Leaked, match="_numbers"):
        run(main, seed=1)


@virtual()
async def test_a_generator_that_was_closed_or_read_to_its_end_is_none(sim: Sim) -> None:
    assert [number async for number in _numbers()] == list(range(10))
    halfway = _numbers()
    await anext(halfway)
    await halfway.aclose()  # type: ignore[attr-defined]
    _numbers()
    for _ in range(1000):
        assert len([number async for number in _numbers()]) == 10


def test_a_generator_in_a_cycle_is_found_at_the_end() -> None:
    async def main(sim: Sim) -> None:
        cycle: list[object] = []
        numbers = _numbers()
        cycle += [cycle, numbers]
        await anext(numbers)

    with pytest.raises(errors.Leaked, match="_numbers"):
        run(main, seed=1)


def test_garbage_is_collected_at_fixed_steps_and_not_in_between() -> None:
    class Cycle:
        def __init__(self, sim: Sim) -> None:
            self.itself = self
            self.sim = sim

        def __del__(self) -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            self.sim.trace.add(f"collected after {loop.steps} steps")

    async def main(sim: Sim, noise: int) -> list[str]:
        garbage: list[list[int]] = []  # enough of them to make the collector run by itself
        for _ in range(50):
            Cycle(sim)
        for _ in range(2 * COLLECT_STEPS):
            await asyncio.sleep(0)
            garbage.extend([] for _ in range(noise))
        return sim.trace.texts

    assert gc.isenabled()
    want = [f"collected after {COLLECT_STEPS} steps"] * 50
    assert run(lambda sim: main(sim, 0), seed=1) == want
    assert run(lambda sim: main(sim, 7), seed=1) == want
    assert gc.isenabled()


def test_a_virtual_clock_can_begin_at_another_date() -> None:
    loop = VirtualLoop(None)
    later = EPOCH + timedelta(days=400)
    assert VirtualClock(loop, later).now() == later
    loop.close()
