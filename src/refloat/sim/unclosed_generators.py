# SPDX-License-Identifier: Apache-2.0
"""Finds async generators that the simulated code started and did not close.

The garbage collector ends a dropped generator at a time of its own. In a simulation
that is a bug: the code in the `finally` would run at a random time. A watch is such a
generator, so code must close its watches.
"""

import sys
import weakref
from dataclasses import dataclass
from types import AsyncGeneratorType
from typing import Any, TypeAlias

from refloat.sim import deadlock_report

Generator: TypeAlias = AsyncGeneratorType[Any, Any]

# Entries between two purges, because a purge checks all entries.
_SLACK = 256


@dataclass(frozen=True, slots=True)
class _FirstUse:
    generator: "weakref.ref[Generator]"
    place: str


class Generators:
    """The async generators that one loop has iterated, in the order of their first use."""

    def __init__(self) -> None:
        self._started: dict[int, _FirstUse] = {}
        self._orphans: list[Generator] = []
        self._purge_at = _SLACK

    def begin(self, generator: Generator) -> None:
        """Record a first iteration; the hook of the loop calls this."""
        user = sys._getframe(2)  # noqa: SLF001 - 1 is the loop's hook
        place = deadlock_report.place(user.f_code, user.f_lineno)
        # By identity, because Python clears the weak reference before it calls the finalizer,
        # which needs the place.
        self._started.pop(id(generator), None)
        self._started[id(generator)] = _FirstUse(weakref.ref(generator), place)
        if len(self._started) > self._purge_at:
            self._started = {
                key: entry for key, entry in self._started.items() if entry.generator() is not None
            }
            self._purge_at = 2 * len(self._started) + _SLACK

    def orphan(self, generator: Generator) -> str:
        """Store a generator that the garbage collector found, and describe it."""
        self._orphans.append(generator)
        return self.describe(generator)

    def open(self) -> list[Generator]:
        """The generators that have started and have not ended."""
        generators = (entry.generator() for entry in self._started.values())
        alive = [*self._orphans, *(each for each in generators if each is not None)]
        return [each for each in alive if each.ag_frame is not None]

    def describe(self, generator: Generator) -> str:
        entry = self._started.get(id(generator))
        code = generator.ag_code
        name = deadlock_report.place(code, code.co_firstlineno)
        return f"{name}, first used at {entry.place}" if entry is not None else name
