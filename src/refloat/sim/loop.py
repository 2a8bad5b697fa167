# SPDX-License-Identifier: Apache-2.0
"""An event loop of virtual time: the same seed gives the same history.

When no callback is ready, the loop jumps to the next timer, so hours pass in
milliseconds, and a step takes no virtual time. The loop draws the order of ready
callbacks from a seed (`task_order`). All of asyncio that needs no operating system works
unchanged.

The loop refuses threads, sockets, processes and signals (`guard` refuses those outside
asyncio). The loop leaves nothing to chance:

* Tasks have numbers, and hash by their numbers. asyncio keeps tasks in sets and iterates
  over these sets when it cancels (`TaskGroup`). Tasks usually hash by address, so the
  order would differ between processes.
* The garbage collector runs at fixed steps. Usually it runs after a number of
  allocations, which differs with the smallest change.
* Some sets stay in the order of addresses, and simulated code must not iterate over them:
  sets of futures that are no tasks, and `asyncio.as_completed` of bare coroutines.
* An async generator that the collector finds is an error (`unclosed_generators`).
* An exception that asyncio would only log is an error, unless there is an exception
  handler.

A run has a bound of steps and of virtual time. A run in which no task can continue ends
with a `Deadlock`, which lists where each task waits.
"""

import asyncio
import gc
import heapq
import math
import threading
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVarTuple

from refloat.base.rand import Rand
from refloat.sim import deadlock_report, errors, guard, task_order
from refloat.sim.unclosed_generators import Generator, Generators

Args = TypeVarTuple("Args")

# Steps between two collections of young garbage (some milliseconds), and of all garbage
# (some seconds).
COLLECT_STEPS = 16_384
COLLECT_ALL_STEPS = 32 * COLLECT_STEPS

# The loop removes cancelled timers from the heap when more than this many are the majority.
MAX_CANCELLED = 128


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a simulation may go."""

    steps: int = 10_000_000
    """Callbacks that may run: ten million, about a minute of real time."""

    seconds: float = 30 * 86_400.0
    """Virtual seconds that may pass: thirty days, more than any timer of Kubernetes."""


class Task(asyncio.Task[Any]):
    """A task with a number, which is its hash."""

    __slots__ = ("serial",)

    def __init__(self, work: Any, *, loop: "VirtualLoop", serial: int, **options: Any) -> None:
        self.serial = serial  # first, because the base class puts the task into a set
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self.serial


class _Timer(asyncio.TimerHandle):
    """A call at a time; `queued`: whether the heap still has the timer."""

    __slots__ = ("queued",)

    queued: bool


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without a selector, a wall clock or chance."""

    # Attributes of the base class that asyncio does not declare to type checkers.
    _closed: bool
    _stopping: bool
    _task_factory: object

    def __init__(self, rand: Rand | None, *, seed: int = 0, bounds: Bounds | None = None) -> None:
        """Draw the order from `rand`; without it first in, first out. `seed` is for reports."""
        super().__init__()
        self.seed = seed
        self.bounds = bounds or Bounds()
        self.steps = 0
        self.generators = Generators()
        self._now = 0.0
        self._jumped_at_step = 0
        self._shuffle = task_order.Shuffle(rand) if rand is not None else None
        self._ready: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, _Timer]] = []
        self._cancelled_timers = 0
        self._serial = 0
        self._thread = threading.get_ident()
        self._failure: BaseException | None = None
        self._next_check = min(self.bounds.steps, COLLECT_STEPS)
        self._next_full_collection = COLLECT_ALL_STEPS

    # -- time --------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the creation of the loop."""
        return self._now

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if math.isnan(when):
            raise ValueError("a timer needs a time")
        timer = _Timer(when, callback, args, self, context)
        timer.queued = True
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Count a cancelled timer. The name is asyncio's own."""
        if not isinstance(handle, _Timer) or not handle.queued:
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > max(MAX_CANCELLED, len(self._timers) // 2):
            # `handle.cancelled()` is still False here.
            self._timers = [
                entry
                for entry in self._timers
                if not entry[2].cancelled() and entry[2] is not handle
            ]
            heapq.heapify(self._timers)
            handle.queued = False
            self._cancelled_timers = 0

    def _take_timers(self, when: float) -> None:
        """Make the timers of one time ready; later timers wait for a later turn."""
        timers = self._timers
        while timers and timers[0][0] == when:
            timer = heapq.heappop(timers)[2]
            timer.queued = False
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                self._ready.append(timer)

    def _jump(self, when: float | None) -> None:
        """Go on to the time of the next timer; the loop never waits."""
        if when is None:
            tasks = self.pending()
            raise errors.Deadlock(
                f"nothing is ready and no timer is set{self._whence()}; "
                f"{len(tasks)} tasks wait:\n{deadlock_report.report(tasks)}"
            )
        if when <= self._now:
            return
        if when > self.bounds.seconds:
            raise errors.OutOfTime(
                f"the next timer is at {when} s, beyond the bound of {self.bounds.seconds} s"
                f"{self._whence()}; these tasks were left:\n"
                f"{deadlock_report.report(self.pending())}"
            )
        self._now = when
        self._jumped_at_step = self.steps

    # -- what is ready -----------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = task_order.Ready(callback, args, self, context)
        if self._shuffle is not None:
            handle.place(callback, args)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            self.refuse("call_soon_threadsafe from another thread")
        return self.call_soon(callback, *args, context=context)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        if self._closed or self._task_factory is not None:
            return super().create_task(coro, **options)
        self._serial += 1
        # asyncio's own names count on from one loop to the next.
        if options.get("name") is None:
            options["name"] = f"Task-{self._serial}"
        return Task(coro, loop=self, serial=self._serial, **options)

    def _run_once(self) -> None:
        """Run one turn. The name is asyncio's own."""
        # The loop never jumps to an infinite time.
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)[2].queued = False
            self._cancelled_timers -= 1
        due = timers[0][0] if timers and timers[0][0] < math.inf else None
        if not self._ready and not self._stopping:
            self._jump(due)
        if due is not None and due <= self._now:
            self._take_timers(due)
        turn, self._ready = self._ready, []
        if self._shuffle is not None and len(turn) > 1:
            turn = self._shuffle.arrange(turn)
        rest = iter(turn)
        try:
            for handle in rest:
                if not handle._cancelled:  # noqa: SLF001 - a call would be a tenth of a step
                    handle._run()  # noqa: SLF001 - as every loop does
        except BaseException:
            self._ready[:0] = rest
            raise
        self.steps += len(turn)
        if self.steps >= self._next_check:
            self._check()
        if self._failure is not None:
            self.raise_failure()

    def _check(self) -> None:
        """Check the bound of steps, and collect garbage; not each turn."""
        if self.steps >= self.bounds.steps:
            raise errors.OutOfSteps(
                f"{self.steps} steps, the last {self.steps - self._jumped_at_step} of them "
                f"at one instant{self._whence()}; these tasks were left:\n"
                f"{deadlock_report.report(self.pending())}"
            )
        gc.collect(2 if self.steps >= self._next_full_collection else 1)
        if self.steps >= self._next_full_collection:
            self._next_full_collection = self.steps + COLLECT_ALL_STEPS
        self._next_check = min(self.bounds.steps, self.steps + COLLECT_STEPS)

    # -- running -----------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`; `guard` refuses the real world."""
        collects = gc.isenabled()
        gc.disable()
        try:
            with guard.raised(self.refuse):
                super().run_forever()
        finally:
            if collects:
                gc.enable()

    def collect(self) -> None:
        """Collect all garbage of this run; an open async generator in the garbage is an error."""
        gc.collect(1 if self.steps < COLLECT_STEPS else 2)  # garbage of a short run is young

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def pending(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, in the order of their creation."""
        return sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, "serial", 0))

    def grant(self, steps: int) -> None:
        """Allow more steps, even after the bound, to end the tasks of a failed run."""
        self.bounds = replace(self.bounds, steps=self.steps + steps)
        self._next_check = min(self.bounds.steps, self.steps + COLLECT_STEPS)

    def _whence(self) -> str:
        return f" (seed {self.seed}, {self._now} s, {self.steps} steps)"

    # -- what ends a run ---------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the run with this error after the current turn; only the first error counts."""
        if self._failure is None:
            self._failure = error

    def raise_failure(self) -> None:
        """Raise the error that ends the run, if there is one."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def refuse(self, what: str) -> NoReturn:
        """End the run because simulated code used the real world."""
        error = errors.Unsimulated(
            f"{what}: simulated code may use no thread, socket, process, signal or real time"
            f"{self._whence()}"
        )
        self.fail(error)
        raise error

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run after an exception that no code caught."""
        if self._closed:
            super().default_exception_handler(context)
            return
        cause = context.get("exception")
        error = errors.Unhandled(f"{context['message']}: {cause!r}{self._whence()}")
        error.__cause__ = cause
        self.fail(error)

    # -- async generators; the names of the hooks are asyncio's own ----------

    def _asyncgen_firstiter_hook(self, agen: Generator) -> None:
        self.generators.begin(agen)

    def _asyncgen_finalizer_hook(self, agen: Generator) -> None:
        if not self._closed:
            self.fail(self.leaked(self.generators.orphan(agen)))

    def leaked(self, what: str) -> errors.Leaked:
        return errors.Leaked(
            f"async generator {what}, was not closed: "
            f"close it with contextlib.aclosing(){self._whence()}"
        )

    async def shutdown_asyncgens(self) -> None:
        """Close all open generators, one after the other."""
        for agen in self.generators.open():
            try:
                await agen.aclose()
            except Exception as error:
                message = "an error occurred during closing of an asynchronous generator"
                self.call_exception_handler(
                    {"message": message, "exception": error, "asyncgen": agen}
                )


# The methods with which asyncio uses the operating system.
REFUSED = (
    "add_reader",
    "add_signal_handler",
    "add_writer",
    "connect_accepted_socket",
    "connect_read_pipe",
    "connect_write_pipe",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "create_unix_connection",
    "create_unix_server",
    "getaddrinfo",
    "getnameinfo",
    "remove_reader",
    "remove_signal_handler",
    "remove_writer",
    "run_in_executor",
    "sendfile",
    "set_default_executor",
    "sock_accept",
    "sock_connect",
    "sock_recv",
    "sock_recv_into",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_tls",
    "subprocess_exec",
    "subprocess_shell",
)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refused(self: VirtualLoop, *_args: Any, **_options: Any) -> NoReturn:
        self.refuse(name)

    return refused


for _name in REFUSED:
    setattr(VirtualLoop, _name, _refusal(_name))
