# SPDX-License-Identifier: Apache-2.0
"""Pods that wait because no node fits, by their demand.

Pods with one demand wait in one line, and only the first is queued when room may be free: if it
gets a node, it queues the next. So freed room wakes one pod, not ten thousand. Nominated pods
wait in a line of their own: they need free room less.
"""

import itertools
from collections.abc import Iterator

from refloat.policy.scheduling.demand import Demand


class UnschedulablePods:
    """The waiting pods."""

    def __init__(self) -> None:
        self._lines: dict[Demand, tuple[dict[str, None], dict[str, None]]] = {}
        self._of: dict[str, tuple[Demand, dict[str, None]]] = {}
        self._reasons: dict[str, str] = {}  # by key, why no node took the pod

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, key: str) -> bool:
        return key in self._of

    def __iter__(self) -> Iterator[Demand]:
        """The demands of waiting pods; changes during the iteration are allowed."""
        return iter(list(self._lines))

    def wait(self, key: str, demand: Demand, *, nominated: bool, reason: str = "") -> None:
        """Add a pod at the end of its line."""
        self.leave(key)
        self._reasons[key] = reason
        line = self._lines.setdefault(demand, ({}, {}))[nominated]
        line[key] = None
        self._of[key] = (demand, line)

    def leave(self, key: str) -> bool:
        """Remove a pod; whether it waited."""
        entry = self._of.pop(key, None)
        if entry is None:
            return False
        demand, line = entry
        del line[key], self._reasons[key]
        if not any(self._lines[demand]):
            del self._lines[demand]
        return True

    def first(self, demand: Demand) -> str | None:
        """The pod with this demand that has waited longest; nominated pods come last."""
        without, nominated = self._lines.get(demand, ({}, {}))
        return next(iter(without or nominated), None)

    def first_without_nomination(self, demand: Demand) -> str | None:
        return next(iter(self._lines.get(demand, ({},))[0]), None)

    def with_other_reason(self, demand: Demand, reason: str, limit: int) -> list[str]:
        """Up to `limit` pods with this demand and another reason."""
        lines = self._lines.get(demand, ({}, {}))
        keys = (key for line in lines for key in line if self._reasons[key] != reason)
        return list(itertools.islice(keys, limit))
