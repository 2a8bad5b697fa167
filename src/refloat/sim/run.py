# SPDX-License-Identifier: Apache-2.0
"""Runs a program in virtual time, from a seed.

The `Sim` has all sources of time and chance for the program. When the program returns,
`run` cancels the remaining tasks in the order of their start. When the program fails,
the error has the seed to repeat the run.
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

# Steps for the end of the remaining tasks of a failed run.
WIND_UP_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class Sim:
    """Time, chance and trace of a simulated program."""

    seed: int
    clock: VirtualClock
    rand: Rand
    trace: Trace


Program: TypeAlias = Callable[[Sim], Coroutine[Any, Any, T]]


def stream(seed: int, purpose: str) -> Rand:
    """A separate source of chance for each purpose, so that they do not affect each other."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return Rand(int.from_bytes(digest[:16], "big"))


def run(main: Program[T], *, seed: int, shuffle: bool = True, bounds: Bounds | None = None) -> T:
    """Returns the program's result; raises the program's error, or a `SimulationError`.

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
    """Cancel the remaining tasks; an open async generator is an error."""
    _cancel_all(loop)
    loop.collect()
    loop.raise_failure()
    for generator in loop.generators.open():
        raise loop.leaked(loop.generators.describe(generator))


def _cancel_all(loop: VirtualLoop) -> None:
    tasks = loop.pending()
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    results = asyncio.gather(*tasks, return_exceptions=True)
    for outcome in loop.run_until_complete(results):
        if isinstance(outcome, Exception):
            raise outcome


def _abandon(loop: VirtualLoop) -> None:
    """End the remaining tasks of a failed run, and ignore their errors."""
    loop.grant(WIND_UP_STEPS)
    with contextlib.suppress(Exception):
        _cancel_all(loop)
    with contextlib.suppress(Exception):
        loop.run_until_complete(loop.shutdown_asyncgens())
    for task in loop.pending():
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
