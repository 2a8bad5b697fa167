# SPDX-License-Identifier: Apache-2.0
"""Async generators that were begun, and whether somebody ended them.

One that is dropped halfway is ended by the garbage collector, some time. In
a simulation that is a mistake: what runs in its `finally` would run by
chance. A watch is such a generator, and is closed explicitly.
"""

import sys
import weakref
from dataclasses import dataclass
from types import AsyncGeneratorType
from typing import Any, TypeAlias

from refloat.sim import waits

Generator: TypeAlias = AsyncGeneratorType[Any, Any]

# Forgetting the dead is put off until there are this many more, because it
# looks at all of them.
_SLACK = 256


@dataclass(frozen=True, slots=True)
class _Begun:
    generator: "weakref.ref[Generator]"
    first_use: str


class Generators:
    """The async generators that one loop has iterated, in the order of their first use."""

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}
        self._orphans: list[Generator] = []
        self._purge_at = _SLACK

    def begin(self, generator: Generator) -> None:
        """Note a first iteration; called by what is about to iterate."""
        user = sys._getframe(2)  # noqa: SLF001 - 1 is the loop's hook
        first_use = waits.place(user.f_code, user.f_lineno)
        # Kept by identity: when one of them dies its weak reference is
        # cleared before its finalizer asks where it came from.
        self._begun.pop(id(generator), None)
        self._begun[id(generator)] = _Begun(weakref.ref(generator), first_use)
        if len(self._begun) > self._purge_at:
            self._purge()

    def _purge(self) -> None:
        self._begun = {
            key: begun for key, begun in self._begun.items() if begun.generator() is not None
        }
        self._purge_at = 2 * len(self._begun) + _SLACK

    def orphan(self, generator: Generator) -> str:
        """Take over one that the garbage collector found, and describe it."""
        self._orphans.append(generator)
        return self.describe(generator)

    def open(self) -> list[Generator]:
        """Those that were begun and have not ended."""
        known = (begun.generator() for begun in self._begun.values())
        alive = [*self._orphans, *(each for each in known if each is not None)]
        return [each for each in alive if each.ag_frame is not None]

    def describe(self, generator: Generator) -> str:
        begun = self._begun.get(id(generator))
        code = generator.ag_code
        name = waits.place(code, code.co_firstlineno)
        return f"{name}, first used at {begun.first_use}" if begun is not None else name
