# SPDX-License-Identifier: Apache-2.0
"""The work queue, step by step; `tests/property/test_queue.py` has any order."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from refloat.runtime import queue as queues
from refloat.runtime.errors import ShutDown
from refloat.runtime.queue import Backoff, Queue
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.sim.run import Sim
from tests.virtual import virtual


def made(sim: Sim, **backoff: float) -> Queue[str]:
    return Queue("q", clock=sim.clock, backoff=Backoff(**backoff))


async def taken(queue: Queue[str], count: int) -> list[str]:
    return [await queue.get() for _ in range(count)]


async def gotten_at(sim: Sim, queue: Queue[str]) -> tuple[str, float]:
    key = await queue.get()
    queue.done(key)
    return key, sim.clock.monotonic()


@virtual()
async def test_keys_come_in_the_order_in_which_they_were_added(sim: Sim) -> None:
    queue = made(sim)
    for key in "cab":
        queue.add(key)
    assert await taken(queue, 3) == ["c", "a", "b"]


@virtual()
async def test_with_a_rank_the_lowest_comes_first_and_equals_in_turn(sim: Sim) -> None:
    queue: Queue[str] = Queue("q", clock=sim.clock, rank=lambda key: int(key[0]))
    for key in ("2a", "1b", "2b", "0c", "1a"):
        queue.add(key)
    assert await taken(queue, 5) == ["0c", "1b", "1a", "2a", "2b"]


@virtual()
async def test_a_rank_counts_for_a_key_that_was_added_while_worked_on(sim: Sim) -> None:
    queue: Queue[str] = Queue("q", clock=sim.clock, rank=lambda key: int(key[0]))
    queue.add("0a")
    assert await queue.get() == "0a"
    for key in ("1b", "0a"):
        queue.add(key)
    queue.done("0a")
    assert await taken(queue, 2) == ["0a", "1b"]


@virtual()
async def test_a_key_that_waits_is_there_once(sim: Sim) -> None:
    queue = made(sim)
    for key in "aabaa":
        queue.add(key)
    assert len(queue) == 2
    assert await taken(queue, 2) == ["a", "b"]
    assert len(queue) == 0


@virtual()
async def test_a_key_that_is_worked_on_is_not_given_out_again(sim: Sim) -> None:
    queue = made(sim)
    queue.add("a")
    await queue.get()
    queue.add("a")
    getter = asyncio.ensure_future(queue.get())
    await sim.clock.sleep(100)
    assert not getter.done()
    queue.done("a")
    assert await getter == "a"


@virtual()
async def test_a_key_that_was_not_added_meanwhile_does_not_come_again(sim: Sim) -> None:
    queue = made(sim)
    queue.add("a")
    queue.done(await queue.get())
    assert len(queue) == 0


@virtual()
async def test_a_busy_key_does_not_starve_others(sim: Sim) -> None:
    queue = made(sim)
    queue.add("busy")
    queue.add("b")
    order = []
    for _ in range(4):
        key = await queue.get()
        queue.add("busy")
        order.append(key)
        queue.done(key)
    assert order == ["busy", "b", "busy", "busy"]


@virtual()
async def test_a_delayed_key_comes_at_its_time(sim: Sim) -> None:
    queue = made(sim)
    queue.add_after("a", 5)
    assert await gotten_at(sim, queue) == ("a", 5)


@pytest.mark.parametrize("delays", [(5, 9), (9, 5), (9, 7, 5, 6)])
@virtual()
async def test_of_several_times_the_earliest_wins(sim: Sim, delays: tuple[int, ...]) -> None:
    queue = made(sim)
    for delay in delays:
        queue.add_after("a", delay)
    assert await gotten_at(sim, queue) == ("a", 5)
    await sim.clock.sleep(100)
    assert len(queue) == 0


@pytest.mark.parametrize("seconds", [0, -1])
@virtual()
async def test_a_key_without_delay_comes_at_once(sim: Sim, seconds: float) -> None:
    queue = made(sim)
    queue.add_after("a", seconds)
    assert await gotten_at(sim, queue) == ("a", 0)


@virtual()
async def test_an_add_does_not_take_a_delayed_one_back(sim: Sim) -> None:
    queue = made(sim)
    queue.add_after("a", 5)
    queue.add("a")
    assert await gotten_at(sim, queue) == ("a", 0)
    assert await gotten_at(sim, queue) == ("a", 5)


@virtual()
async def test_a_delayed_key_that_is_due_while_worked_on_comes_after(sim: Sim) -> None:
    queue = made(sim)
    queue.add("a")
    await queue.get()
    queue.add_after("a", 1)
    await sim.clock.sleep(3)
    queue.done("a")
    assert await gotten_at(sim, queue) == ("a", 3)


@virtual()
async def test_many_delayed_keys_of_one_moment_all_come(sim: Sim) -> None:
    queue = made(sim)
    count = 2 * queues.DUE_PER_TURN + 1
    for n in range(count):
        queue.add_after(str(n), 1)
    assert await taken(queue, count) == [str(n) for n in range(count)]
    assert sim.clock.monotonic() == 1


@virtual()
async def test_times_that_were_overtaken_do_not_pile_up(sim: Sim) -> None:
    queue = made(sim)
    for n in range(10 * queues.STALE_ENTRIES):
        queue.add_after("a", 1e6 - n)
    assert len(queue._heap) <= queues.STALE_ENTRIES + 3


@pytest.mark.parametrize(
    ("failures", "want"),
    [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (5000, 60.0)],
)
def test_back_off_doubles_up_to_its_cap(failures: int, want: float) -> None:
    """behaviour A1.3"""
    assert Backoff(base=1.0, cap=60.0).after(failures) == want


@virtual()
async def test_a_key_that_fails_waits_longer_each_time_until_it_is_forgotten(sim: Sim) -> None:
    queue = made(sim, base=1, cap=60)
    assert [queue.add_rate_limited("a") for _ in range(3)] == [1, 2, 4]
    assert queue.failures("a") == 3
    assert queue.add_rate_limited("b") == 1
    queue.forget("a")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a") == 1


@virtual()
async def test_a_back_off_can_be_made_longer(sim: Sim) -> None:
    queue = made(sim, base=1, cap=60)
    assert queue.add_rate_limited("a", at_least=7) == 7
    assert await gotten_at(sim, queue) == ("a", 7)


@virtual()
async def test_a_getter_waits_for_a_key(sim: Sim) -> None:
    queue = made(sim)
    getters = [asyncio.ensure_future(queue.get()) for _ in range(2)]
    await sim.clock.sleep(1)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*getters)) == ["a", "b"]


@virtual(seeds=20)
async def test_a_key_is_not_lost_with_the_getter_that_was_woken_for_it(sim: Sim) -> None:
    queue = made(sim)
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await sim.clock.sleep(1)
    queue.add("a")
    first.cancel()
    await asyncio.wait([first])
    if first.cancelled():
        assert await second == "a"
    else:
        second.cancel()


@virtual()
async def test_a_getter_that_was_cancelled_takes_no_key(sim: Sim) -> None:
    queue = made(sim)
    getter = asyncio.ensure_future(queue.get())
    await sim.clock.sleep(1)
    getter.cancel()
    queue.add("a")
    assert await queue.get() == "a"


@virtual()
async def test_after_shut_down_nothing_is_taken_in(sim: Sim) -> None:
    queue = made(sim)
    queue.add_after("late", 1)
    queue.add("there")
    queue.shut_down()
    queue.add("a")
    queue.add_after("b", 1)
    queue.add_rate_limited("c")
    assert await queue.get() == "there"
    await sim.clock.sleep(100)
    with pytest.raises(ShutDown, match="queue q is shut down"):
        await queue.get()


@virtual()
async def test_shut_down_ends_all_who_wait(sim: Sim) -> None:
    queue = made(sim)
    getters = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await sim.clock.sleep(1)
    queue.shut_down()
    ends = await asyncio.gather(*getters, return_exceptions=True)
    assert [type(end) for end in ends] == [ShutDown] * 3


@virtual()
async def test_drain_waits_until_all_is_done(sim: Sim) -> None:
    queue = made(sim)
    queue.add("a")
    queue.add("b")
    await queue.get()
    queue.add("a")  # again, while it is worked on
    draining = asyncio.ensure_future(queue.drain())
    await sim.clock.sleep(1)
    queue.done("a")
    assert await taken(queue, 2) == ["b", "a"]
    queue.done("b")
    await sim.clock.sleep(1)
    assert not draining.done()
    queue.done("a")
    await draining


@virtual()
async def test_drain_of_an_empty_queue_ends_at_once(sim: Sim) -> None:
    await made(sim).drain()
    assert sim.clock.monotonic() == 0


@virtual()
async def test_metrics_have_the_names_and_meaning_of_kubernetes(sim: Sim) -> None:
    queue, registry = made(sim), CollectorRegistry()
    QueueMetrics(registry).watch(queue)
    queue.add("a")
    queue.add("a")
    queue.add("b")
    queue.add_after("c", 1000)
    await sim.clock.sleep(2)
    await queue.get()
    await sim.clock.sleep(0.5)
    queue.add("a")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"workqueue_{name}", {"name": "q", **labels})

    assert value("adds_total") == 3
    assert value("retries_total") == 1
    assert value("depth") == 2  # what is to be given out, worked on or not
    assert value("unfinished_work_seconds") == 0.5
    assert value("longest_running_processor_seconds") == 0.5
    assert value("queue_duration_seconds_count") == 1
    assert value("queue_duration_seconds_sum") == 2
    assert value("queue_duration_seconds_bucket", le="1.0") == 0
    assert value("queue_duration_seconds_bucket", le="10.0") == 1
    queue.done("a")
    assert value("work_duration_seconds_sum") == 0.5
    assert value("work_duration_seconds_bucket", le="+Inf") == 1
    assert value("work_duration_seconds_bucket", le="1e-08") == 0
    assert value("longest_running_processor_seconds") == 0


@virtual()
async def test_two_queues_share_the_families_of_one_registry(sim: Sim) -> None:
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)
    for name in ("a", "b"):
        metrics.watch(Queue(name, clock=sim.clock))
    for name in ("a", "b"):
        assert registry.get_sample_value("workqueue_depth", {"name": name}) == 0
