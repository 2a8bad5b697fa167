# SPDX-License-Identifier: Apache-2.0
"""In which order things that are ready at once take their turn.

asyncio's own loop takes turns: all that was ready when a turn began runs once,
first come, first served, and what becomes ready meanwhile belongs to the next
turn. That one order hides every mistake that another would show. `Shuffle`
draws the order within each turn from a seed. It must stay within what
asyncio promises, or else it would show mistakes that nobody made.

Permuted, within one turn:

* the steps of different tasks: tasks that were just created, that gave way
  (`sleep(0)`) or whose futures are done;
* the callbacks of different futures, against each other and against the rest;
* timers that are due at the same time (asyncio calls their order undefined);
* the calls of `call_soon`, as one sequence, against all of these.

Kept:

* turns: what is ready runs once before anything runs twice, so nobody starves
  and two `sleep(0)` outlast whatever was ready before the first;
* the steps of one task, which are never ready twice;
* the callbacks of one future or task, in the order in which they were added,
  with the wake-ups of those who await it among them. A call of `call_soon`
  whose one argument is a finished future cannot be told from those and counts
  as one;
* the calls of `call_soon` among each other, whoever made them: asyncio
  documents that they run in the order of registration;
* a task's calls of `call_soon` and its own step after giving way: first the
  calls, then the step. `asyncio.timeout(0)` relies on it;
* timers of different times (the loop's matter): the earlier runs first, and
  all that follows from it at that instant runs before the later.

Tried and dropped: drawing the next callback from all that are ready, with no
turns. It delays a task for as long as chance will have it, which no loop
does, and what is found so is mostly not a mistake.
"""

import asyncio
import types
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

from refloat.base.rand import Rand


class _Probe:
    """As much of a loop as it takes to see how a task asks for its step."""

    step: type

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *, context: Context) -> None:
        self.step = type(callback)


def _step_type() -> Any:
    """The type of the callback that is a step of a task; asyncio does not name it."""

    async def nothing() -> None:
        pass

    probe: Any = _Probe()
    work = nothing()
    task: Any = asyncio.Task(work, loop=probe)
    task._log_destroy_pending = False  # noqa: SLF001 - it is never going to run
    work.close()
    step = probe.step
    assert step is not types.MethodType, "asyncio runs without its accelerator"
    return step


STEP = _step_type()

_CALLS = object()  # the lane of all that came through `call_soon`


class Ready(asyncio.Handle):
    """A callback that is ready to run, and what its place depends on."""

    __slots__ = ("lane", "origin")

    lane: object
    """Callbacks of one lane keep their order; None has a lane to itself."""

    origin: object
    """The task that a step belongs to or that made a call, else None."""

    _loop: asyncio.AbstractEventLoop

    def place(self, callback: Any, args: Sequence[Any]) -> None:
        """Note what asked for this callback."""
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
        """The same callbacks in an order that asyncio could have had.

        Each draws a number and they run by these; within a lane the numbers
        are dealt out anew in ascending order.
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
        """Let no task step before the calls that it made."""
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
