# SPDX-License-Identifier: Apache-2.0
"""The queue and the workers of controllers, under many orders and in virtual time."""

import asyncio
from collections import Counter

from prometheus_client import CollectorRegistry

from refloat.runtime.controller import Controller, Instruments
from refloat.runtime.errors import ShutDown
from refloat.runtime.queue import Queue
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim.run import Sim
from tests.virtual import virtual

KEYS = ("a", "b", "c")


@virtual(seeds=300)
async def test_no_key_is_lost_or_worked_on_twice_at_once(sim: Sim) -> None:
    queue: Queue[str] = Queue("test", clock=sim.clock)
    newest = Counter[str]()  # the newest state of each key
    last = Counter[str]()  # the state that its last work saw
    busy: list[str] = []

    async def work() -> None:
        while True:
            try:
                key = await queue.get()
            except ShutDown:
                return
            assert key not in busy
            busy.append(key)
            last[key] = newest[key]
            await sim.clock.sleep(sim.rand.choice([0.0, 1.0]))
            busy.remove(key)
            queue.done(key)

    async def change() -> None:
        for _ in range(10):
            key = sim.rand.choice(KEYS)
            newest[key] += 1
            if sim.rand.below(2):
                queue.add(key)
            else:
                queue.add_after(key, sim.rand.choice([0.0, 1.0, 2.0]))
            await sim.clock.sleep(sim.rand.choice([0.0, 1.0]))

    workers = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.gather(change(), change())
    await sim.clock.sleep(60)
    await queue.drain()
    await asyncio.gather(*workers)
    assert last == newest


class _Failing:
    """Fails some times, then asks for another look, then is done."""

    def __init__(self, sim: Sim, failures: int) -> None:
        self._sim = sim
        self._left = failures

    async def reconcile(self, key: str) -> Result:
        self._sim.trace.add(key)
        await self._sim.clock.sleep(0)
        self._left -= 1
        if self._left >= 0:
            raise LookupError(key)
        return Result(requeue_after=1000.0) if self._left == -1 else DONE


@virtual(seeds=20)
async def test_back_off_grows_to_the_second_whatever_the_order(sim: Sim) -> None:
    registry = CollectorRegistry()
    instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
    controller = Controller(
        "test", _Failing(sim, failures=8), clock=sim.clock, instruments=instruments
    )
    controller.queue.add("a")
    controller.start()
    await sim.clock.sleep(3600)
    assert await controller.stop()
    waits = [0, 1, 2, 4, 8, 16, 32, 60, 60, 1000]
    assert [when for when, _ in sim.trace.lines] == [sum(waits[: n + 1]) for n in range(10)]
