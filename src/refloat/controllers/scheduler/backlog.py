# SPDX-License-Identifier: Apache-2.0
"""Pods that no node took, by what they ask for.

Pods with one demand stand in one line, and only its first is called when room
may have come: if it gets a place, it calls the next. So a freed place wakes
one pod, not ten thousand. Those who have a node promised stand in a line of
their own: they have less need of what comes free.
"""

import itertools
from collections.abc import Iterator

from refloat.policy.demand import Demand


class Backlog:
    """Who waits for what."""

    def __init__(self) -> None:
        self._lines: dict[Demand, tuple[dict[str, None], dict[str, None]]] = {}
        self._of: dict[str, tuple[Demand, dict[str, None]]] = {}
        self._reasons: dict[str, str] = {}  # by key, why no node took the pod

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def __iter__(self) -> Iterator[Demand]:
        """What is asked for; the backlog may be changed meanwhile."""
        return iter(list(self._lines))

    def wait(self, key: str, demand: Demand, *, promised: bool, reason: str = "") -> None:
        """Stand in line, behind all who do already."""
        self.leave(key)
        self._reasons[key] = reason
        line = self._lines.setdefault(demand, ({}, {}))[promised]
        line[key] = None
        self._of[key] = (demand, line)

    def leave(self, key: str) -> bool:
        """Wait no more; whether it did."""
        found = self._of.pop(key, None)
        if found is None:
            return False
        demand, line = found
        del line[key], self._reasons[key]
        if not any(self._lines[demand]):
            del self._lines[demand]
        return True

    def first(self, demand: Demand) -> str | None:
        """Who has waited longest for this; those who have a promise come last."""
        without, promised = self._lines.get(demand, ({}, {}))
        return next(iter(without or promised), None)

    def first_without_promise(self, demand: Demand) -> str | None:
        return next(iter(self._lines.get(demand, ({},))[0]), None)

    def with_other_reason(self, demand: Demand, reason: str, limit: int) -> list[str]:
        """Up to `limit` of the pods with this demand whose reason is another one."""
        lines = self._lines.get(demand, ({}, {}))
        keys = (key for line in lines for key in line if self._reasons[key] != reason)
        return list(itertools.islice(keys, limit))
