# SPDX-License-Identifier: Apache-2.0
"""The work queue against a model, in any order of events, from many seeds."""

import asyncio
from collections import Counter

from refloat.runtime.queue import Backoff, Queue
from refloat.sim.run import Sim
from tests.virtual import virtual

KEYS = [f"k{n}" for n in range(6)]
ACTIONS = 60
WORKERS = 3
# So that no action falls on the very moment at which a delayed key comes due:
# either order would be right then, and the model has but one.
NEVER_TOGETHER = 0.013


class QueueChecker:
    """Workers of a queue, and what must always be so."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.queue: Queue[str] = Queue("q", clock=sim.clock, backoff=Backoff(0.5, 4))
        self.busy: set[str] = set()
        self.owed: dict[str, float] = {}  # when the key must begin again, at the earliest
        self.later: dict[str, float] = {}  # likewise, for delayed ones: the earliest
        self.begun: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()

    def ask(self, key: str, delay: float = 0.0) -> None:
        self.asked[key] += 1
        now = self.sim.clock.monotonic()
        if self.later.get(key, now) < now:  # the key came due while the key was worked on
            self.owed[key] = self.later.pop(key)
        if delay > 0:
            self.later[key] = min(now + delay, self.later.get(key, now + delay))
        else:
            self.owed[key] = now

    def begin(self, key: str) -> None:
        assert key not in self.busy, f"{key} is worked on twice at once"
        self.busy.add(key)
        self.begun[key] += 1
        for promises in (self.owed, self.later):
            if promises.get(key, float("inf")) <= self.sim.clock.monotonic():
                del promises[key]

    async def work(self) -> None:
        while True:
            key = await self.queue.get()
            self.begin(key)
            try:
                await self.sim.clock.sleep(self.sim.rand.below(4) / 2)
            finally:
                self.busy.discard(key)
                self.queue.done(key)

    def act(self) -> None:
        key, rand = self.sim.rand.choice(KEYS), self.sim.rand
        match rand.below(4):
            case 0 | 1:
                self.ask(key)
                self.queue.add(key)
            case 2:
                delay = rand.below(6) / 2
                self.ask(key, delay)
                self.queue.add_after(key, delay)
            case _:
                self.ask(key, self.queue.add_rate_limited(key))
                if rand.below(2):
                    self.queue.forget(key)


@virtual(seeds=1000)
async def test_every_key_that_is_asked_for_is_worked_on_and_none_twice_at_once(sim: Sim) -> None:
    checker = QueueChecker(sim)
    workers = [asyncio.ensure_future(checker.work()) for _ in range(WORKERS)]
    for _ in range(ACTIONS):
        checker.act()
        if sim.rand.below(10) == 0:  # a worker dies; another comes
            victim = workers.pop(0)
            victim.cancel()
            workers.append(asyncio.ensure_future(checker.work()))
        await sim.clock.sleep(sim.rand.below(3) / 2 + NEVER_TOGETHER)
    await sim.clock.sleep(1000)
    assert checker.owed == {}
    assert checker.later == {}
    assert not checker.busy
    assert len(checker.queue) == 0
    for key in KEYS:
        assert checker.begun[key] <= checker.asked[key]
    for worker in workers:
        assert not worker.done()
        worker.cancel()
    checker.queue.shut_down()
