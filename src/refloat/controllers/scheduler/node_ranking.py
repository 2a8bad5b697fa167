# SPDX-License-Identifier: Apache-2.0
"""The nodes for one demand, the best first, without checking all nodes for each pod.

A ranking begins with a sample of nodes that fit and checks a few more with each pod. So a
single pod does not pay for a big cluster, and many pods use all of it. The ranking keeps each
result. The version of a node shows when its turn comes that the node got worse; the scheduler
calls `update` for a node that got better. A ranking that finds no node has checked all nodes,
which is necessary for the message.

Better is: fewer taints with PreferNoSchedule, more of the pod's preferences, less of the node
in use. Equal nodes are chosen at random.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from refloat.base.rand import Rand
from refloat.policy.scheduling import fit
from refloat.policy.scheduling.demand import Demand
from refloat.policy.scheduling.fit import Objection
from refloat.runtime.node_info import NodeInfo

# Nodes that fit and are compared for the first pod of a kind: the best of 20 is among the best
# 5 %. Kubernetes compares 100 and more.
SAMPLE = 20

# Nodes that are checked for each further pod: 5,000 are checked after 1,250 pods.
GROWTH = 4

# Outdated entries are dropped when they outnumber the valid ones and this bound; below it,
# rebuilding costs more.
STALE_ENTRIES = 1_000

_Entry: TypeAlias = tuple[int, int, float, float, str, int]
"""Dislikes, likes (negated), share in use, chance, name, version of the place."""


class NodeRanking:
    """The check results of nodes for one demand."""

    def __init__(self, demand: Demand, names: Sequence[str], rand: Rand) -> None:
        self._demand = demand
        self._rand = rand
        self._names = names if demand.affinity.names is None else demand.affinity.names
        self._start = rand.below(len(self._names)) if self._names else 0
        self._seen = 0  # how many names were checked, from the start on
        self._against: dict[str, Objection] = {}
        self._tally: Counter[str] = Counter()
        self._fitting: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []  # the same, and outdated entries

    def best(self, places: Mapping[str, NodeInfo]) -> str | None:
        """The name of the best node that is known to fit."""
        if self._fitting:
            self._look(places, GROWTH)
        while True:
            if (name := self._top(places)) is not None:
                return name
            if self._seen >= len(self._names):
                return None
            self._look(places, len(self._names), SAMPLE)

    def update(self, name: str, place: NodeInfo | None) -> None:
        """A node has changed, appeared or gone."""
        self._drop(name)
        if place is not None and place.known:
            self._judge(name, place)

    def tally(self, total: int) -> dict[str, int]:
        """How many of all nodes object for each reason, after all were checked."""
        tally = dict(self._tally)
        if self._demand.affinity.names is not None:
            (reason,) = fit.NOT_NAMED.reasons
            tally[reason] = total - len(self._against) - len(self._fitting)
        return tally

    def resolvable(self) -> list[str]:
        """The nodes that would fit if pods left them."""
        return [name for name, each in self._against.items() if each.resolvable]

    def _top(self, places: Mapping[str, NodeInfo]) -> str | None:
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

    def _look(self, places: Mapping[str, NodeInfo], count: int, enough: int | None = None) -> None:
        """Check `count` more nodes, or until `enough` fit."""
        names, first = self._names, self._seen
        for number in range(first, min(first + count, len(names))):
            name = names[(self._start + number) % len(names)]
            self._seen = number + 1
            if name in self._against or name in self._fitting:
                continue
            place = places.get(name)
            if place is not None and place.known:
                self._judge(name, place)
                if len(self._fitting) == enough:
                    return

    def _judge(self, name: str, place: NodeInfo) -> None:
        demand = self._demand
        against = fit.objection(demand, place)
        if against is None:
            disliked = fit.dislikes(demand, place) if place.taints else 0
            affinity = demand.affinity
            liking = affinity.liking(place.name, place.labels) if affinity.preferred else 0
            rank = (disliked, -liking, fit.share_taken(place), self._rand.random())
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
