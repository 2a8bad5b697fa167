# SPDX-License-Identifier: Apache-2.0
"""Runs a program in virtual time, from one seed to its end.

A program is given all that it may have of time and chance in a `Sim`. When it
returns, what it started and left is cancelled, in the order in which it was
started; when it fails, the error says how to see it again.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from refloat.base.rand import Rand
from refloat.sim.clock import VirtualClock
from refloat.sim.loop import Bounds, VirtualLoop
from refloat.sim.trace import Trace

T = TypeVar("T")

# What is left of a run that failed gets this many steps to end in.
WIND_UP_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Sim:
    """What a simulated program is given."""

    seed: int
    clock: VirtualClock
    rand: Rand
    trace: Trace


Program: TypeAlias = Callable[[Sim], Coroutine[Any, Any, T]]


def stream(seed: int, purpose: str) -> Rand:
    """A source of chance of its own, so that one use of chance does not move another."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return Rand(int.from_bytes(digest[:16], "big"))


def run(main: Program[T], *, seed: int, shuffle: bool = True, bounds: Bounds | None = None) -> T:
    """The program's result; raises its error, or a `SimulationError`.

    Without `shuffle` the order is asyncio's own, first in, first out.
    """
    chance = stream(seed, "order") if shuffle else None
    loop = VirtualLoop(chance, seed=seed, bounds=bounds)
    clock = VirtualClock(loop)
    sim = Sim(seed, clock, stream(seed, "program"), Trace(loop.time))
    try:
        result = loop.run_until_complete(main(sim))
        _end(loop)
    except BaseException as error:
        error.add_note(f"simulated with seed {seed}: {loop.steps} steps, {loop.time()} s")
        _abandon(loop)
        raise
    finally:
        loop.close()
    return result


def _end(loop: VirtualLoop) -> None:
    """Cancel what the program left, and insist that it closed what it opened."""
    _cancel_all(loop)
    loop.collect()
    loop.raise_failure()
    for generator in loop.generators.open():
        raise loop.leaked(loop.generators.describe(generator))


def _cancel_all(loop: VirtualLoop) -> None:
    left = loop.pending()
    if not left:
        return
    for task in left:
        task.cancel()
    ended = asyncio.gather(*left, return_exceptions=True)
    for outcome in loop.run_until_complete(ended):
        if isinstance(outcome, Exception):
            raise outcome


def _abandon(loop: VirtualLoop) -> None:
    """End what is left of a failed run; that it fails too is no news."""
    loop.grant(WIND_UP_STEPS)
    with contextlib.suppress(Exception):
        _cancel_all(loop)
    with contextlib.suppress(Exception):
        loop.run_until_complete(loop.shutdown_asyncgens())
    for task in loop.pending():
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
