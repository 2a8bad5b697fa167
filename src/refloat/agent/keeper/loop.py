# SPDX-License-Identifier: Apache-2.0
"""The event loop of the keeper: descriptors, timers and signals.

All timers use one kernel timer on CLOCK_BOOTTIME. So a deadline that passes while the
machine is suspended takes effect when the machine resumes.
"""

import contextlib
import heapq
import itertools
import os
import select
import signal
from collections.abc import Callable

from refloat.agent.keeper import syscalls

Step = Callable[[], object]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Timer:
    """A step at a time, until `cancel`."""

    __slots__ = ("step", "when")

    def __init__(self, when: float, step: Step) -> None:
        self.when = when
        self.step: Step | None = step

    def cancel(self) -> None:
        self.step = None


class Loop:
    """Runs callbacks, one at a time, until `stop`."""

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
        self._timer = syscalls.timer()
        self.watch(self._timer, READ, lambda _: self._expired())
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for each in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(each, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def read_signals(_: int) -> None:
            with contextlib.suppress(BlockingIOError):
                for number in sorted(set(os.read(reader, 4096))):
                    on_signal(number)

        self.watch(reader, READ, read_signals)

    def watch(self, descriptor: int, events: int, ready: Callable[[int], object]) -> None:
        """Call `ready` with the events of a descriptor, until `forget`."""
        if descriptor in self._ready:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)
        self._ready[descriptor] = ready

    def forget(self, descriptor: int) -> None:
        if self._ready.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, when: float, step: Step) -> Timer:
        when = min(when, syscalls.LAST_MOMENT)
        timer = Timer(when, step)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        self._arm()
        return timer

    def after(self, seconds: float, step: Step) -> Timer:
        return self.at(syscalls.now() + seconds, step)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            for descriptor, events in self._epoll.poll():
                ready = self._ready.get(descriptor)
                if ready is not None:
                    self.guarded(ready, events)

    def guarded(self, call: Callable[..., object], *arguments: object) -> None:
        """Report an exception instead of raising: a bug must not end all containers."""
        try:
            call(*arguments)
        except Exception as error:
            self._on_failure(error)

    def _expired(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._timer, 8)
        self._armed = None
        now = syscalls.now()
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
            syscalls.arm(self._timer, due)
            self._armed = due
