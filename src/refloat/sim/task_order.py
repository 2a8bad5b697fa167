# SPDX-License-Identifier: Apache-2.0
"""Draws the order of callbacks that are ready at once.

asyncio's own loop runs in turns: each callback that is ready when a turn begins runs
once, first in, first out. Callbacks that become ready meanwhile belong to the next turn.
That one order hides bugs that another order shows. `Shuffle` draws the order within
each turn from a seed. The order must keep the promises of asyncio, because code may rely
on them.

Permuted, within one turn:

* the steps of different tasks: tasks that were just created, that gave way
  (`sleep(0)`) or whose futures are done;
* the callbacks of different futures, against each other and against the rest;
* timers that are due at the same time (asyncio calls their order undefined);
* the calls of `call_soon`, as one sequence, against all of these.

Kept:

* turns: each ready callback runs once before any runs twice, so no task starves, and
  after two `sleep(0)` all callbacks that were ready before the first have run;
* the steps of one task, which are never ready twice;
* the callbacks of one future or task, in the order of their registration, together
  with the wake-ups of tasks that await the future. A call of `call_soon` with a
  finished future as its one argument looks the same and counts as one of them;
* the calls of `call_soon` among each other: asyncio documents that they run in the
  order of registration;
* a task's calls of `call_soon` and its own step after a `sleep(0)`: first the calls,
  then the step. `asyncio.timeout(0)` relies on this order;
* timers of different times (in the loop): the earlier timer runs first, and all its
  consequences at that instant run before the later timer.

Tried and dropped: to draw the next callback from all ready ones, without turns. Chance
can then delay a task for any time, which no loop does, and most findings were no bugs.
"""

import asyncio
import types
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

from refloat.base.rand import Rand


class _Probe:
    """A minimal loop that records how a task schedules its step."""

    step: type

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *, context: Context) -> None:
        self.step = type(callback)


def _step_type() -> Any:
    """The type of a task's step callback, for which asyncio has no name."""

    async def nothing() -> None:
        pass

    probe: Any = _Probe()
    work = nothing()
    task: Any = asyncio.Task(work, loop=probe)
    task._log_destroy_pending = False  # noqa: SLF001 - the task never runs
    work.close()
    step = probe.step
    assert step is not types.MethodType, "asyncio runs without its accelerator"
    return step


STEP = _step_type()

_CALLS = object()  # the lane of all calls of `call_soon`


class Ready(asyncio.Handle):
    """A ready callback, with the facts that its place in the order depends on."""

    __slots__ = ("lane", "origin")

    lane: object
    """Callbacks of one lane keep their order; None: no lane."""

    origin: object
    """The task of a step, or the task that made a call; else None."""

    _loop: asyncio.AbstractEventLoop

    def place(self, callback: Any, args: Sequence[Any]) -> None:
        """Set lane and origin."""
        if type(callback) is STEP:
            self.lane, self.origin = None, callback.__self__
        elif len(args) == 1 and isinstance(args[0], asyncio.Future) and args[0].done():
            self.lane, self.origin = args[0], None
        else:
            self.lane, self.origin = _CALLS, asyncio.current_task(self._loop)


class Shuffle:
    """Draws the order of each turn."""

    def __init__(self, rand: Rand) -> None:
        self._random = rand.random

    def arrange(self, turn: list[asyncio.Handle]) -> list[asyncio.Handle]:
        """The same callbacks in an order that asyncio allows.

        Each callback draws a number, and the numbers give the order. Within a lane the numbers
        are sorted.
        """
        random = self._random
        draws = [random() for _ in turn]
        lanes: dict[object, list[int]] = {}
        for index, handle in enumerate(turn):
            if type(handle) is Ready and handle.lane is not None:
                lanes.setdefault(handle.lane, []).append(index)
        for indexes in lanes.values():
            if len(indexes) > 1:
                ascending = sorted([draws[index] for index in indexes])
                for index, draw in zip(indexes, ascending, strict=True):
                    draws[index] = draw
        if _CALLS in lanes:
            self._hold_back(turn, draws, lanes[_CALLS])
        return [turn[index] for index in sorted(range(len(turn)), key=draws.__getitem__)]

    def _hold_back(self, turn: list[asyncio.Handle], draws: list[float], calls: list[int]) -> None:
        """Put the step of a task after the calls of that task."""
        last: dict[object, float] = {}
        for index in calls:
            call = turn[index]
            assert isinstance(call, Ready)
            if call.origin is not None:
                last[call.origin] = draws[index]
        if not last:
            return
        for index, handle in enumerate(turn):
            if type(handle) is Ready and handle.lane is None and handle.origin in last:
                floor = last[handle.origin]
                if draws[index] < floor:
                    draws[index] = floor + (1.0 - floor) * self._random()
