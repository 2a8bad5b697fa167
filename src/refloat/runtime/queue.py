# SPDX-License-Identifier: Apache-2.0
"""A work queue of keys, with the names and the meaning of Kubernetes' work queues.

A waiting key is in the queue once, however often it is added. While a worker has
a key, no other worker gets the key; if the key is added meanwhile, it comes again
afterwards. Keys come in the order of their adds, so a busy key cannot block the
others; or by rank, if the queue has one.

A queue belongs to one event loop and takes no locks. `controller` knows what a
key means; `queue_metrics` reads the counts.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from refloat.base.clock import Clock, Handle
from refloat.runtime.errors import ShutDown
from refloat.runtime.queue_metrics import Durations

K = TypeVar("K", bound=Hashable)

# Delayed keys that come due in one turn of the event loop: about 5 ms, so that a
# hundred thousand keys of one moment do not block the loop.
DUE_PER_TURN = 5_000

# The queue drops stale entries of the heap when they are more than the valid ones,
# and more than this number: below, a rebuild costs more than the entries.
STALE_ENTRIES = 1_000

# A larger power of 2 is above any cap, and soon above the largest float.
_LARGEST_EXPONENT = 62


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait of a key after the nth failure in a row: base * 2^(n-1), at most cap."""

    base: float = 1.0  # seconds; what Kubernetes' Job controller has
    cap: float = 60.0  # seconds; likewise

    def after(self, failures: int) -> float:
        """The wait after so many failures, at least one."""
        return min(self.cap, self.base * 2.0 ** min(failures - 1, _LARGEST_EXPONENT))


class _Ranked(Generic[K]):
    """Keys of the lowest rank first, and among equal ranks the first to come.

    A key keeps the rank of the moment at which it came.
    """

    def __init__(self, rank: Callable[[K], int]) -> None:
        self._rank = rank
        self._heap: list[tuple[int, int, K]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._heap)

    def append(self, key: K) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self._rank(key), self._order, key))

    def popleft(self) -> K:
        return heapq.heappop(self._heap)[2]


class Queue(Generic[K]):
    """A work queue; `get` a key, work on it, and always call `done` after."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        backoff: Backoff | None = None,
        rank: Callable[[K], int] | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._ready: deque[K] | _Ranked[K] = deque() if rank is None else _Ranked(rank)
        self._dirty: dict[K, float] = {}  # waits for a worker -> since when
        self._processing: dict[K, float] = {}  # with a worker -> since when
        self._getters: deque[asyncio.Future[None]] = deque()
        self._waiting: dict[K, float] = {}  # delayed -> until when
        self._heap: list[tuple[float, int, K]] = []  # delayed keys, and stale entries
        self._order = 0  # keys need not be comparable
        self._alarm: Handle | None = None
        self._alarm_at = 0.0
        self._failures: dict[K, int] = {}
        self._closed = False
        self._drained: asyncio.Event | None = None
        self.adds = 0
        self.retries = 0
        self.latency = Durations()
        self.work = Durations()

    def __len__(self) -> int:
        """The keys that wait for a worker, as workqueue_depth counts."""
        return len(self._dirty)

    def add(self, key: K) -> None:
        """Add the key, unless it waits already."""
        if self._closed or key in self._dirty:
            return
        self.adds += 1
        self._dirty[key] = self._clock.monotonic()
        if key not in self._processing:
            self._ready.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key later; of several times the earliest wins.

        An `add` meanwhile does not cancel this.
        """
        if self._closed:
            return
        self.retries += 1  # of delayed adds, as Kubernetes counts them
        if seconds <= 0:
            self.add(key)
            return
        when = self._clock.monotonic() + seconds
        if (earlier := self._waiting.get(key)) is not None and earlier <= when:
            return
        self._waiting[key] = when
        self._order += 1
        heapq.heappush(self._heap, (when, self._order, key))
        if len(self._heap) > 2 * len(self._waiting) + STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._arm()

    def add_rate_limited(self, key: K, *, at_least: float = 0.0) -> float:
        """Add the key after its back-off, which grows until `forget`; returns the wait."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        wait = max(at_least, self._backoff.after(failures))
        self.add_after(key, wait)
        return wait

    def forget(self, key: K) -> None:
        """The key succeeded: its back-off starts anew."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """The rate-limited adds of the key since the last `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; raises `ShutDown` after the last one."""
        while not self._ready:
            if self._closed:
                raise ShutDown(f"queue {self.name} is shut down")
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # 1. A key came and woke this getter. 2. The getter was cancelled before
                # it ran. 3. No other getter would take the key, so wake the next one.
                if getter.done() and not getter.cancelled():
                    if self._ready:
                        self._wake()
                else:
                    with contextlib.suppress(ValueError):  # `_wake` has removed it already
                        self._getters.remove(getter)
                raise
        key = self._ready.popleft()
        now = self._clock.monotonic()
        self.latency.observe(now - self._dirty.pop(key))
        self._processing[key] = now
        return key

    def done(self, key: K) -> None:
        """The worker has finished with the key, with or without success."""
        self.work.observe(self._clock.monotonic() - self._processing.pop(key))
        if key in self._dirty:
            self._ready.append(key)
            self._wake()
        elif self._drained is not None and not self._busy():
            self._drained.set()

    def shut_down(self) -> None:
        """Refuse further keys and drop delayed ones; workers still get the waiting keys."""
        self._closed = True
        self._waiting.clear()
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for _ in range(len(self._getters)):
            self._wake()

    async def drain(self) -> None:
        """Shut down, and wait until all waiting and running keys are done."""
        self.shut_down()
        if self._busy():
            self._drained = self._drained or asyncio.Event()
            await self._drained.wait()

    def running(self) -> list[float]:
        """For each key with a worker, the seconds so far."""
        now = self._clock.monotonic()
        return [now - since for since in self._processing.values()]

    def _busy(self) -> bool:
        return bool(self._dirty or self._processing)

    def _wake(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _arm(self) -> None:
        """Set the alarm for the first entry of the heap."""
        if not self._heap:
            return
        first = self._heap[0][0]
        if self._alarm is not None:
            if self._alarm_at <= first:
                return
            self._alarm.cancel()
        self._alarm_at = first
        self._alarm = self._clock.call_at(first, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        for _ in range(DUE_PER_TURN):
            # An event loop's timer may ring a moment early, so check the time.
            if not self._heap or self._heap[0][0] > now:
                break
            when, _, key = heapq.heappop(self._heap)
            if self._waiting.get(key) == when:
                del self._waiting[key]
                self.add(key)
        self._arm()
