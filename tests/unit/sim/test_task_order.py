# SPDX-License-Identifier: Apache-2.0
"""What the shuffle permutes, and which promises of asyncio hold."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from refloat.sim.run import Program, Sim, run
from tests.cases import cases
from tests.virtual import seeds, virtual


def orders(program: Program[Any], count: int = 200) -> set[tuple[str, ...]]:
    """The orders of a program's trace that so many seeds give."""

    async def main(sim: Sim) -> tuple[str, ...]:
        await program(sim)
        return tuple(sim.trace.texts)

    return {run(main, seed=seed) for seed in range(count)}


async def _note(sim: Sim, text: str) -> None:
    sim.trace.add(text)


def _noting(sim: Sim, text: str) -> Callable[[object], None]:
    """A callback of a future."""
    return lambda _: sim.trace.add(text)


# -- permuted ----------------------------------------------------------------


async def _new_tasks(sim: Sim) -> None:
    await asyncio.gather(*(_note(sim, name) for name in "abc"))


async def _woken_tasks(sim: Sim) -> None:
    event = asyncio.Event()

    async def wait(name: str) -> None:
        await event.wait()
        sim.trace.add(name)

    async with asyncio.TaskGroup() as group:
        for name in "abc":
            group.create_task(wait(name))
        await sim.clock.sleep(1)
        event.set()


async def _callbacks_of_different_futures(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    for name in "abc":
        future = loop.create_future()
        future.add_done_callback(_noting(sim, name))
        future.set_result(None)
    await sim.clock.sleep(1)


async def _timers_of_one_time(sim: Sim) -> None:
    for name in "abc":
        asyncio.get_running_loop().call_at(1.0, sim.trace.add, name)
    await sim.clock.sleep(2)


async def _sleepers_of_one_time(sim: Sim) -> None:
    async def nap(name: str) -> None:
        await sim.clock.sleep(1)
        sim.trace.add(name)

    await asyncio.gather(*map(nap, "abc"))


async def _a_task_a_timer_and_a_call(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(_note(sim, "a"))
    loop.call_later(0, sim.trace.add, "b")
    loop.call_soon(sim.trace.add, "c")
    await sim.clock.sleep(1)
    await task


@cases(
    "program",
    {
        "tasks that were just created": _new_tasks,
        "tasks that an event woke": _woken_tasks,
        "callbacks of different futures": _callbacks_of_different_futures,
        "timers of one time": _timers_of_one_time,
        "sleepers until one time": _sleepers_of_one_time,
        "a task, a timer and a call": _a_task_a_timer_and_a_call,
    },
)
def test_every_order_comes_under_some_seed(program: Program[None]) -> None:
    assert orders(program) == set(itertools.permutations("abc"))


@pytest.mark.parametrize(
    "program", [_new_tasks, _woken_tasks, _timers_of_one_time, _sleepers_of_one_time]
)
def test_without_shuffling_it_is_first_in_first_out(program: Program[None]) -> None:
    async def main(sim: Sim) -> list[str]:
        await program(sim)
        return sim.trace.texts

    assert all(run(main, seed=seed, shuffle=False) == ["a", "b", "c"] for seed in range(10))


def test_a_race_that_asyncio_hides_shows_under_some_seed_of_a_hundred() -> None:
    async def main(sim: Sim) -> int:
        """Two tasks add one to a number; one reads the number a turn before the write."""
        number = 0

        async def slow() -> None:
            nonlocal number
            copy = number
            await asyncio.sleep(0)
            number = copy + 1

        async def quick() -> None:
            nonlocal number
            await asyncio.sleep(0)
            number += 1

        await asyncio.gather(slow(), quick())
        return number

    in_order = [run(main, seed=seed, shuffle=False) for seed in seeds(100)]
    assert set(in_order) == {2}
    shuffled = [run(main, seed=seed) for seed in range(100)]
    assert set(shuffled) == {1, 2}


def test_a_seed_repeats_its_order() -> None:
    async def main(sim: Sim) -> str:
        await asyncio.gather(*(_note(sim, str(number)) for number in range(50)))
        return sim.trace.digest()

    digests = [run(main, seed=seed) for seed in range(20)]
    assert digests == [run(main, seed=seed) for seed in range(20)]
    assert len(set(digests)) == 20


def test_drawing_chance_does_not_move_the_order() -> None:
    async def main(sim: Sim, draws: int) -> str:
        for _ in range(draws):
            sim.rand.random()
        await _new_tasks(sim)
        return sim.trace.digest()

    for seed in range(20):
        without = run(lambda sim: main(sim, 0), seed=seed)
        assert run(lambda sim: main(sim, 3), seed=seed) == without


# -- kept --------------------------------------------------------------------


@virtual(seeds=200)
async def test_callbacks_of_one_future_keep_their_order(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(3)]

    async def wait(name: str, future: asyncio.Future[None]) -> None:
        await future
        sim.trace.add(name)

    for number, future in enumerate(futures):
        for step in range(4):
            if step % 2:
                asyncio.create_task(wait(f"{number}-{step}", future))  # noqa: RUF006
                await sim.clock.sleep(1)
            else:
                future.add_done_callback(_noting(sim, f"{number}-{step}"))
    for future in futures:
        future.set_result(None)
    await sim.clock.sleep(1)
    for number in range(len(futures)):
        own = [text for text in sim.trace.texts if text.startswith(str(number))]
        assert own == [f"{number}-{step}" for step in range(4)]


@virtual(seeds=200)
async def test_callbacks_of_one_task_keep_their_order(sim: Sim) -> None:
    tasks = [asyncio.create_task(asyncio.sleep(1), name=name) for name in "abc"]
    for task in tasks:
        for step in range(5):
            task.add_done_callback(_noting(sim, f"{task.get_name()}{step}"))
    await sim.clock.sleep(2)
    for name in "abc":
        own = [text for text in sim.trace.texts if text.startswith(name)]
        assert own == [f"{name}{step}" for step in range(5)]


@virtual(seeds=200)
async def test_a_callback_added_before_an_await_runs_before_it_returns(sim: Sim) -> None:
    """`Tasks` relies on this: after an await of a task, `Tasks` has dropped the task."""
    task = asyncio.create_task(_note(sim, "ran"))
    task.add_done_callback(lambda _: sim.trace.add("called back"))
    await task
    assert sim.trace.texts == ["ran", "called back"]


@virtual(seeds=200)
async def test_calls_keep_the_order_in_which_they_were_made_by_whomever(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    numbers: list[int] = []
    ran: list[int] = []

    def call(number: int) -> None:
        numbers.append(number)
        loop.call_soon(ran.append, number)

    async def caller(first: int) -> None:
        for number in range(first, first + 3):
            call(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(caller(first) for first in (0, 10, 20)))
    await asyncio.sleep(0)
    assert ran == numbers


@virtual(seeds=200)
async def test_a_tasks_calls_run_before_its_own_next_step(sim: Sim) -> None:
    loop = asyncio.get_running_loop()

    async def caller() -> None:
        for count in range(1, 5):
            ran: list[int] = []
            for number in range(count):
                loop.call_soon(ran.append, number)
            await asyncio.sleep(0)
            assert ran == list(range(count))

    await asyncio.gather(*(caller() for _ in range(4)))


@virtual(seeds=200)
async def test_all_that_is_ready_runs_once_before_anything_runs_twice(sim: Sim) -> None:
    counts = dict.fromkeys(range(5), 0)

    async def count(number: int) -> None:
        for _ in range(20):
            counts[number] += 1
            assert max(counts.values()) - min(counts.values()) <= 1
            await asyncio.sleep(0)

    await asyncio.gather(*map(count, counts))


@virtual(seeds=200)
async def test_a_cancelled_call_does_not_run(sim: Sim) -> None:
    loop = asyncio.get_running_loop()
    calls = [loop.call_soon(sim.trace.add, str(number)) for number in range(4)]
    calls[1].cancel()
    calls[2].cancel()
    await sim.clock.sleep(1)
    assert sim.trace.texts == ["0", "3"]


def test_tasks_in_a_set_keep_one_order() -> None:
    """asyncio cancels a group from a set, whose order by address would be chance."""

    async def main(sim: Sim) -> list[str]:
        clutter = [object() for _ in range(sim.seed * 1000)]
        tasks = {asyncio.create_task(_note(sim, ""), name=str(number)) for number in range(100)}
        names = [task.get_name() for task in tasks]
        await asyncio.wait(tasks)
        assert len(clutter) == sim.seed * 1000
        return names

    assert len({tuple(run(main, seed=seed, shuffle=False)) for seed in range(10)}) == 1


def test_unnamed_tasks_are_numbered_anew_in_each_run() -> None:
    async def main(sim: Sim) -> str:
        task = asyncio.create_task(_note(sim, ""))
        await task
        return task.get_name()

    work: Callable[[Sim], Coroutine[Any, Any, str]] = main
    assert run(work, seed=1) == run(work, seed=2)
