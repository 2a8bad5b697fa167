# SPDX-License-Identifier: Apache-2.0
"""asyncio on the virtual loop keeps its promises in every order."""

import asyncio
import contextvars

import pytest

from refloat.sim.run import Sim
from tests.virtual import virtual


@virtual(seeds=20)
async def test_a_timeout_cancels_its_body_on_time(sim: Sim) -> None:
    with pytest.raises(TimeoutError):
        async with sim.clock.timeout(2.5):
            await sim.clock.sleep(60)
    assert sim.clock.monotonic() == 2.5
    async with sim.clock.timeout(None):
        await sim.clock.sleep(60)
    async with sim.clock.timeout(1):
        await sim.clock.sleep(0.5)


@virtual(seeds=50)
async def test_a_timeout_of_zero_cancels_before_the_body_goes_on(sim: Sim) -> None:
    async def go_on() -> None:
        async with sim.clock.timeout(0):
            await asyncio.sleep(0)
            sim.trace.add("went on")

    with pytest.raises(TimeoutError):
        await go_on()
    assert not sim.trace.lines


@virtual(seeds=20)
async def test_wait_for_times_out(sim: Sim) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), 3)
    assert await asyncio.wait_for(asyncio.sleep(1, "done"), 3) == "done"
    assert sim.clock.monotonic() == 4.0


@virtual(seeds=20)
async def test_a_queue_keeps_its_order(sim: Sim) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=3)

    async def produce() -> None:
        for number in range(50):
            await queue.put(number)
            if number % 7 == 0:
                await sim.clock.sleep(1)

    producer = asyncio.create_task(produce())
    assert [await queue.get() for _ in range(50)] == list(range(50))
    await producer


@virtual(seeds=50)
async def test_a_lock_has_one_holder_and_is_fair(sim: Sim) -> None:
    lock = asyncio.Lock()
    starts: list[int] = []
    holders: list[int] = []

    async def hold(number: int) -> None:
        for _ in range(5):
            starts.append(number)
            async with lock:
                holders.append(number)
                await asyncio.sleep(0)
                assert holders[-1] == number
            await asyncio.sleep(0)

    await asyncio.gather(*(hold(number) for number in range(5)))
    assert holders == starts


@virtual(seeds=50)
async def test_a_semaphore_is_never_overdrawn(sim: Sim) -> None:
    semaphore = asyncio.Semaphore(3)
    inside = 0

    async def enter() -> None:
        nonlocal inside
        async with semaphore:
            inside += 1
            assert inside <= 3
            await sim.clock.sleep(1)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(12)))
    assert sim.clock.monotonic() == 4.0


@virtual(seeds=20)
async def test_an_event_wakes_all_and_a_condition_as_many_as_asked(sim: Sim) -> None:
    event, condition = asyncio.Event(), asyncio.Condition()
    order: list[str] = []

    async def on_event() -> None:
        await event.wait()
        order.append("event")

    async def on_condition() -> None:
        async with condition:
            await condition.wait()
            order.append("condition")

    async with asyncio.TaskGroup() as group:
        for work in (on_event, on_condition, on_event, on_condition):
            group.create_task(work())
        await sim.clock.sleep(1)
        event.set()
        await sim.clock.sleep(1)
        assert order == ["event", "event"]
        for count in (3, 4):
            async with condition:
                condition.notify()
            await sim.clock.sleep(1)
            assert len(order) == count


@virtual(seeds=50)
async def test_a_task_group_cancels_the_rest_when_one_fails(sim: Sim) -> None:
    order: list[int] = []

    async def wait(number: int) -> None:
        try:
            await sim.clock.sleep(100)
        finally:
            order.append(number)

    async def fail() -> None:
        await sim.clock.sleep(1)
        raise LookupError("found nothing")

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(wait(number))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as error:
        await all_of_them()
    assert error.group_contains(LookupError)
    assert sorted(order) == list(range(5))
    assert sim.clock.monotonic() == 1.0


@virtual(seeds=20)
async def test_gather_wait_and_shield_behave(sim: Sim) -> None:
    async def nap(seconds: float) -> float:
        await sim.clock.sleep(seconds)
        return seconds

    assert list(await asyncio.gather(nap(3), nap(1), nap(2))) == [3, 1, 2]
    naps = [asyncio.create_task(nap(seconds)) for seconds in (5, 4)]
    done, pending = await asyncio.wait(naps, return_when=asyncio.FIRST_COMPLETED)
    assert ([task.result() for task in done], len(pending)) == ([4], 1)
    inner = naps[0]
    outer = asyncio.ensure_future(asyncio.shield(inner))
    await asyncio.sleep(0)
    outer.cancel()
    assert await inner == 5
    assert sim.clock.monotonic() == 8.0


@virtual()
async def test_contexts_are_those_of_the_caller(sim: Sim) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    values: list[str] = []

    async def child() -> None:
        values.append(variable.get())
        variable.set("child's")

    variable.set("parent's")
    await asyncio.create_task(child())
    asyncio.get_running_loop().call_later(1, lambda: values.append(variable.get()))
    await sim.clock.sleep(2)
    await asyncio.create_task(child(), context=contextvars.Context())
    assert values == ["parent's", "parent's", "unset"]
    assert variable.get() == "parent's"


@virtual(seeds=20)
async def test_a_cancellation_arrives_where_the_task_waits(sim: Sim) -> None:
    async def wait() -> str:
        try:
            await sim.clock.sleep(100)
        except asyncio.CancelledError:
            await sim.clock.sleep(2)
            return "cleaned up"
        return "slept"

    task = asyncio.create_task(wait())
    await sim.clock.sleep(1)
    task.cancel()
    assert await task == "cleaned up"
    assert sim.clock.monotonic() == 3.0
