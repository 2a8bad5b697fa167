# SPDX-License-Identifier: Apache-2.0
"""The nodes for one demand, best first, without looking at all of them for each pod.

A ranking begins with a sample of nodes that fit and looks at a few more with
each pod, so that a single pod does not pay for a big cluster and many pods
know all of it. What was found out about a node is kept. A node that has got
worse since is noticed when its turn comes, by its version; of one that has
got better a ranking must be told (`update`). Only who finds no node at all
has looked at every one, which is what it takes to say why.

Better is: fewer taints that ask to be avoided, more of what the pod would
like, less of the node taken. Chance decides among equals.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from refloat.base.rand import Rand
from refloat.policy import fit
from refloat.policy.demand import Demand
from refloat.policy.fit import Objection, Place

# Nodes that fit and are compared for the first pod of a kind: the best of
# twenty is among the best twentieth. Kubernetes compares a hundred and more.
SAMPLE = 20

# Nodes that are looked at for each pod after that: 5,000 are known after 1,250 pods.
GROWTH = 4

# Entries that are out of date are dropped when they are more than the valid
# ones, and more than this: below it, rebuilding is not worth while.
STALE_ENTRIES = 1_000

_Entry: TypeAlias = tuple[int, int, float, float, str, int]
"""Dislikes, likes (negated), share taken, chance, name, version of the place."""


class Ranking:
    """What is known about the nodes for one demand."""

    def __init__(self, demand: Demand, names: Sequence[str], rand: Rand) -> None:
        self._demand = demand
        self._rand = rand
        self._names = names if demand.affinity.names is None else demand.affinity.names
        self._start = rand.below(len(self._names)) if self._names else 0
        self._seen = 0  # so many of the names, from the start on
        self._against: dict[str, Objection] = {}
        self._tally: Counter[str] = Counter()
        self._fitting: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []  # the same, and what is out of date

    def best(self, places: Mapping[str, Place]) -> str | None:
        """The name of the best node that is known to fit."""
        if self._fitting:
            self._look(places, GROWTH)
        while True:
            if (name := self._top(places)) is not None:
                return name
            if self._seen >= len(self._names):
                return None
            self._look(places, len(self._names), SAMPLE)

    def update(self, name: str, place: Place | None) -> None:
        """A node has changed, appeared or gone."""
        self._drop(name)
        if place is not None and place.known:
            self._judge(name, place)

    def tally(self, total: int) -> dict[str, int]:
        """How many of so many nodes are against it for each reason, when all were looked at."""
        tally = dict(self._tally)
        if self._demand.affinity.names is not None:
            (reason,) = fit.NOT_NAMED.reasons
            tally[reason] = total - len(self._against) - len(self._fitting)
        return tally

    def resolvable(self) -> list[str]:
        """The nodes that would do if pods left them."""
        return [name for name, each in self._against.items() if each.resolvable]

    def _top(self, places: Mapping[str, Place]) -> str | None:
        heap, fitting = self._heap, self._fitting
        while heap:
            entry = heap[0]
            name = entry[4]
            if fitting.get(name) is not entry:
                heapq.heappop(heap)
                continue
            place = places.get(name)
            if place is not None and place.version == entry[5]:
                return name
            self.update(name, place)
        return None

    def _look(self, places: Mapping[str, Place], count: int, enough: int | None = None) -> None:
        """At so many nodes more, or until enough fit."""
        names, seen = self._names, self._seen
        for number in range(seen, min(seen + count, len(names))):
            name = names[(self._start + number) % len(names)]
            self._seen = number + 1
            if name in self._against or name in self._fitting:
                continue
            place = places.get(name)
            if place is not None and place.known:
                self._judge(name, place)
                if len(self._fitting) == enough:
                    return

    def _judge(self, name: str, place: Place) -> None:
        demand = self._demand
        against = fit.objection(demand, place)
        if against is None:
            rank = (*_liking(demand, place), fit.share_taken(place), self._rand.random())
            entry = (*rank, name, place.version)
            self._fitting[name] = entry
            heapq.heappush(self._heap, entry)
            if len(self._heap) > 2 * len(self._fitting) + STALE_ENTRIES:
                self._heap = list(self._fitting.values())
                heapq.heapify(self._heap)
        elif against is not fit.NOT_NAMED:
            self._against[name] = against
            for reason in against.reasons:
                self._tally[reason] += 1

    def _drop(self, name: str) -> None:
        self._fitting.pop(name, None)
        against = self._against.pop(name, None)
        if against is not None:
            for reason in against.reasons:
                self._tally[reason] -= 1


def _liking(demand: Demand, place: Place) -> tuple[int, int]:
    disliked = fit.dislikes(demand, place) if place.taints else 0
    preferred = demand.affinity.preferred
    return disliked, -demand.affinity.liking(place.name, place.labels) if preferred else 0
