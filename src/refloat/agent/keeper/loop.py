# SPDX-License-Identifier: Apache-2.0
"""What the keeper waits for: descriptors, timers and the ends of children.

All timers go through one timer of the kernel on the clock that does not stop
while the machine sleeps, so a deadline that passed meanwhile is met on waking.
"""

import contextlib
import heapq
import itertools
import os
import select
import signal
from collections.abc import Callable

from refloat.agent.keeper import linux

Step = Callable[[], object]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Timer:
    """A step to be taken at a time; it can be taken back."""

    __slots__ = ("step", "when")

    def __init__(self, when: float, step: Step) -> None:
        self.when = when
        self.step: Step | None = step

    def cancel(self) -> None:
        self.step = None


class Loop:
    """Calls back, one at a time, until told to stop."""

    def __init__(
        self, on_signal: Callable[[int], object], on_failure: Callable[[Exception], object]
    ) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], object]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._armed: float | None = None
        self._on_failure = on_failure
        self._running = True
        self._timer = linux.timer()
        self.watch(self._timer, READ, lambda _: self._expired())
        self._wake_on_signals(on_signal)

    def _wake_on_signals(self, on_signal: Callable[[int], object]) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for each in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(each, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def woken(_: int) -> None:
            with contextlib.suppress(BlockingIOError):
                for number in sorted(set(os.read(reader, 4096))):
                    on_signal(number)

        self.watch(reader, READ, woken)

    def watch(self, descriptor: int, events: int, ready: Callable[[int], object]) -> None:
        """Call back with the events whenever there are some, until `forget`."""
        if descriptor in self._ready:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._ready[descriptor] = ready

    def forget(self, descriptor: int) -> None:
        if self._ready.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, when: float, step: Step) -> Timer:
        when = min(when, linux.LAST_MOMENT)
        timer = Timer(when, step)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        self._arm()
        return timer

    def after(self, seconds: float, step: Step) -> Timer:
        return self.at(linux.now() + seconds, step)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            for descriptor, events in self._epoll.poll():
                ready = self._ready.get(descriptor)
                if ready is not None:
                    self.guarded(ready, events)

    def guarded(self, call: Callable[..., object], *arguments: object) -> None:
        """A mistake in one container's life must not end those of all others."""
        try:
            call(*arguments)
        except Exception as error:
            self._on_failure(error)

    def _expired(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        self._armed = None
        now = linux.now()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.step is not None:
                self.guarded(timer.step)
        self._arm()

    def _arm(self) -> None:
        while self._timers and self._timers[0][2].step is None:
            heapq.heappop(self._timers)
        due = self._timers[0][0] if self._timers else None
        if due != self._armed:
            linux.arm(self._timer, due)
            self._armed = due
