# SPDX-License-Identifier: Apache-2.0
"""What is known of each node's health, and which nodes the next pass has to look at.

Kubernetes looks at all nodes every five seconds. Here a sign of life costs a
write to a dictionary, and each node stands in a heap under the time at which
it would be lost: a pass takes out what is due or was changed, and nothing else.
"""

import heapq
import math
from dataclasses import dataclass
from datetime import datetime

from refloat.api.coordination import Lease
from refloat.api.core import Node
from refloat.policy import node_health
from refloat.policy.node_health import Health, Settings


@dataclass(slots=True)
class Entry:
    """One node."""

    uid: str
    health: Health
    is_new: bool = True  # not looked at by this process
    pods_pending: bool = False  # it is lost and its pods may not say so yet
    untold: bool = False  # we turned it to Unknown and have not told
    due: float = math.inf  # under which it stands in the heap
    ticket: int = 0  # of its place there; older ones are out of date


class Book:
    """All nodes; the handlers write it, and a pass reads it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._entries: dict[str, Entry] = {}
        self._noted: dict[str, None] = {}
        self._gone: dict[str, str] = {}  # name -> uid
        self._heap: list[tuple[float, int, str]] = []
        self._tickets = 0

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name)

    def saw(self, node: Node, *, now: float, wall: datetime) -> Entry:
        """A node is there, or has changed: the next pass looks at it."""
        name = node.metadata.name
        entry = self._entries.get(name)
        if entry is None or entry.uid != node.metadata.uid:
            health = node_health.first_seen(node, now=now, wall=wall)
            entry = self._entries[name] = Entry(node.metadata.uid, health)
        else:
            entry.health.posted(node, now)
        self._noted[name] = None
        self._await(name, entry)
        return entry

    def renewed(self, lease: Lease, now: float) -> None:
        """A lease is there, or has changed; it may be that of no node."""
        name = lease.metadata.name
        entry = self._entries.get(name)
        if entry is not None:
            entry.health.leased(lease.spec.renew_time or "", now)
            self._await(name, entry)

    def gone(self, node: Node) -> None:
        name = node.metadata.name
        self._entries.pop(name, None)
        self._noted.pop(name, None)
        self._gone[name] = node.metadata.uid

    def again(self, name: str) -> None:
        """Look at it in the next pass too."""
        if name in self._entries:
            self._noted[name] = None

    def begin_anew(self, now: float) -> None:
        """Nobody's silence counts until now (C3.15)."""
        for name, entry in self._entries.items():
            entry.health.probed = now
            self._await(name, entry)

    def is_lost(self, name: str, now: float) -> bool:
        entry = self._entries.get(name)
        return entry is not None and entry.health.is_lost(self._settings, now)

    def take_gone(self) -> dict[str, str]:
        """The nodes that went since the last time: name and uid."""
        gone, self._gone = self._gone, {}
        return gone

    def take(self, now: float) -> list[str]:
        """The nodes to look at: changed, or lost by now."""
        while self._heap and self._heap[0][0] <= now + 1e-6:
            _, ticket, name = heapq.heappop(self._heap)
            entry = self._entries.get(name)
            if entry is not None and entry.ticket == ticket:
                self._came_due(name, entry, now)
        noted, self._noted = self._noted, {}
        return list(noted)

    def _came_due(self, name: str, entry: Entry, now: float) -> None:
        entry.due = math.inf
        if entry.health.is_lost(self._settings, now):
            self._noted[name] = None
        else:
            self._await(name, entry)  # it beat meanwhile

    def _await(self, name: str, entry: Entry) -> None:
        """Have it looked at when it is lost; one that is lost is, once after each event."""
        due = entry.health.due(self._settings)
        if entry.due <= due:
            return  # it stands there already; later is settled when its time comes
        self._tickets += 1
        entry.due, entry.ticket = due, self._tickets
        heapq.heappush(self._heap, (due, entry.ticket, name))
