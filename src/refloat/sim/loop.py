# SPDX-License-Identifier: Apache-2.0
"""An event loop of virtual time: same seed, same history.

When nothing is ready it jumps to the next timer, so hours pass in
milliseconds and a step takes no time at all. Among what is ready the order is
drawn from a seed; `order` says which orders there are and why. Everything of
asyncio that needs no operating system works on it unchanged.

It must not touch the real world, nor let simulated code do so: threads,
sockets, processes and signals are refused (`guard` refuses what does not come
by asyncio). It must not leave anything to chance either:

* Tasks are numbered, and hash by their numbers. asyncio keeps them in sets and
  goes through these when it cancels (`TaskGroup`); by address, as tasks hash
  otherwise, each process would have an order of its own.
* The garbage collector runs at fixed steps. By itself it runs when it has
  counted enough allocations, which differs with the smallest change.
* What stays by address, and must not be gone through in simulated code: sets of
  futures that are no tasks, and `asyncio.as_completed` of bare coroutines.
* An async generator that the collector finds is an error: see `generators`.
* An exception that asyncio would log and forget is an error, unless an
  exception handler is set.

A run is bounded in steps and in virtual time, and one in which nobody can ever
go on is a `Deadlock` that says who waits where.
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
from refloat.sim import errors, guard, order, waits
from refloat.sim.generators import Generator, Generators

Args = TypeVarTuple("Args")

# Young garbage is collected this often, which is some milliseconds of work,
# and all of it after this many young collections, some seconds.
COLLECT_STEPS = 16_384
COLLECT_ALL_STEPS = 32 * COLLECT_STEPS

# Cancelled timers stay in the heap until they are this many and the majority.
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
        self.serial = serial  # first, for the base class puts it into a set
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self.serial


class _Timer(asyncio.TimerHandle):
    """A call at a time, which knows whether it still waits in the heap."""

    __slots__ = ("queued",)

    queued: bool


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio loop without a selector, a clock of the wall's, or chance."""

    # Attributes of the base class that asyncio does not declare to type checkers.
    _closed: bool
    _stopping: bool
    _task_factory: object

    def __init__(self, rand: Rand | None, *, seed: int = 0, bounds: Bounds | None = None) -> None:
        """Draw the order from `rand`, or be first in, first out; `seed` is for reports."""
        super().__init__()
        self.seed = seed
        self.bounds = bounds or Bounds()
        self.steps = 0
        self.generators = Generators()
        self._now = 0.0
        self._jumped_at_step = 0
        self._shuffle = order.Shuffle(rand) if rand is not None else None
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
        """Virtual seconds since the loop was made."""
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
        """A timer says that it was cancelled; asyncio's own name for this."""
        if not isinstance(handle, _Timer) or not handle.queued:
            return
        self._cancelled_timers += 1
        if self._cancelled_timers > max(MAX_CANCELLED, len(self._timers) // 2):
            # The one that is being cancelled does not yet say so.
            self._timers = [
                entry
                for entry in self._timers
                if not entry[2].cancelled() and entry[2] is not handle
            ]
            heapq.heapify(self._timers)
            handle.queued = False
            self._cancelled_timers = 0

    def _next_timer(self) -> float | None:
        """When the next timer is due; for ever is no time to jump to."""
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)[2].queued = False
            self._cancelled_timers -= 1
        return timers[0][0] if timers and timers[0][0] < math.inf else None

    def _take_due(self, when: float) -> None:
        """Make ready the timers of one time; those of a later one wait for a later turn."""
        timers = self._timers
        while timers and timers[0][0] == when:
            timer = heapq.heappop(timers)[2]
            timer.queued = False
            if timer.cancelled():
                self._cancelled_timers -= 1
            else:
                self._ready.append(timer)

    def _jump(self, when: float) -> None:
        if when > self.bounds.seconds:
            raise errors.OutOfTime(
                f"the next timer is at {when} s, beyond the bound of {self.bounds.seconds} s"
                f"{self._whence()}; these tasks were left:\n{waits.report(self.pending())}"
            )
        self._now = when
        self._jumped_at_step = self.steps

    # -- what is ready -----------------------------------------------------

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = order.Ready(callback, args, self, context)
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
        # Names of asyncio's own count on from one loop to the next.
        if options.get("name") is None:
            options["name"] = f"Task-{self._serial}"
        return Task(coro, loop=self, serial=self._serial, **options)

    def _run_once(self) -> None:
        """One turn; asyncio's own name for it."""
        due = self._next_timer()
        if not self._ready and not self._stopping:
            if due is None:
                raise self._deadlock()
            if due > self._now:
                self._jump(due)
        if due is not None and due <= self._now:
            self._take_due(due)
        turn, self._ready = self._ready, []
        if self._shuffle is not None and len(turn) > 1:
            turn = self._shuffle.arrange(turn)
        self._run_turn(turn)
        self.steps += len(turn)
        if self.steps >= self._next_check:
            self._check()
        if self._failure is not None:
            self.raise_failure()

    def _run_turn(self, turn: list[asyncio.Handle]) -> None:
        rest = iter(turn)
        try:
            for handle in rest:
                if not handle._cancelled:  # noqa: SLF001 - a call would be a tenth of a step
                    handle._run()  # noqa: SLF001 - as every loop does
        except BaseException:
            self._ready[:0] = rest
            raise

    def _check(self) -> None:
        """What need not be looked at each turn: the bound, and garbage."""
        if self.steps >= self.bounds.steps:
            raise errors.OutOfSteps(
                f"{self.steps} steps, the last {self.steps - self._jumped_at_step} of them "
                f"at one instant{self._whence()}; these tasks were left:\n"
                f"{waits.report(self.pending())}"
            )
        gc.collect(2 if self.steps >= self._next_full_collection else 1)
        if self.steps >= self._next_full_collection:
            self._next_full_collection = self.steps + COLLECT_ALL_STEPS
        self._next_check = min(self.bounds.steps, self.steps + COLLECT_STEPS)

    # -- running -----------------------------------------------------------

    def run_forever(self) -> None:
        """Run until stopped, with the real world out of reach."""
        collects = gc.isenabled()
        gc.disable()
        try:
            with guard.raised(self.refuse):
                super().run_forever()
        finally:
            if collects:
                gc.enable()

    def collect(self) -> None:
        """Find all garbage of this run; what was left in it may end the run."""
        gc.collect(1 if self.steps < COLLECT_STEPS else 2)  # the run's own is still young

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def pending(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, in the order of their creation."""
        return sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, "serial", 0))

    def grant(self, steps: int) -> None:
        """Allow for so many steps from now, also when none were left: to wind up."""
        self.bounds = replace(self.bounds, steps=self.steps + steps)
        self._next_check = min(self.bounds.steps, self.steps + COLLECT_STEPS)

    def _deadlock(self) -> errors.Deadlock:
        left = self.pending()
        return errors.Deadlock(
            f"nothing is ready and no timer is set{self._whence()}; "
            f"{len(left)} tasks wait:\n{waits.report(left)}"
        )

    def _whence(self) -> str:
        return f" (seed {self.seed}, {self._now} s, {self.steps} steps)"

    # -- what ends a run ---------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the run with this error after the current turn; the first one counts."""
        if self._failure is None:
            self._failure = error

    def raise_failure(self) -> None:
        """Raise the error that ends the run, if there is one."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def refuse(self, what: str) -> NoReturn:
        """End the run because simulated code tried what is not simulated."""
        error = errors.Unsimulated(
            f"{what}: simulated code may use no thread, socket, process, signal or real time"
            f"{self._whence()}"
        )
        self.fail(error)
        raise error

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught, and nobody asked to be told of, ends the run."""
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
            f"async generator {what}, was not closed by whoever used it: "
            f"close it with contextlib.aclosing(){self._whence()}"
        )

    async def shutdown_asyncgens(self) -> None:
        """Close those that are still open, one after the other."""
        for agen in self.generators.open():
            try:
                await agen.aclose()
            except Exception as error:
                message = "an error occurred during closing of an asynchronous generator"
                self.call_exception_handler(
                    {"message": message, "exception": error, "asyncgen": agen}
                )


# All that asyncio does with the operating system.
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
