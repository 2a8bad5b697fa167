# SPDX-License-Identifier: Apache-2.0
"""What this process knows of each node's health, and which nodes the next pass checks.

Kubernetes checks all nodes every five seconds. Here a sign of life costs a write to a
dictionary, and a heap orders the nodes by the time at which each would be lost. A pass takes
only nodes that are due or have changed.
"""

import heapq
import math
from dataclasses import dataclass, replace
from datetime import datetime

from refloat.api.coordination import Lease
from refloat.api.core import Node
from refloat.policy.node import node_health
from refloat.policy.node.node_health import Health, NodeHealthSettings
from refloat.runtime.lease_observer import LeaseObserver


@dataclass(slots=True)
class NodeRecord:
    """The record of one node."""

    uid: str
    health: Health
    is_new: bool = True  # not checked by this process
    pods_pending: bool = False  # the node is lost, and its pods may not show this yet
    event_pending: bool = False  # the node is Unknown, and the event is not sent
    due: float = math.inf  # its time in the heap
    ticket: int = 0  # the number of its valid heap entry


class NodeRecords:
    """The records of all nodes; handlers write them, and passes read them."""

    def __init__(self, settings: NodeHealthSettings, leases: LeaseObserver) -> None:
        """`leases` must compare leases by their renewTime."""
        self._settings = settings
        self._leases = leases
        self._entries: dict[str, NodeRecord] = {}
        self._noted: dict[str, None] = {}
        self._gone: dict[str, str] = {}  # name -> uid
        self._heap: list[tuple[float, int, str]] = []
        self._tickets = 0

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def get(self, name: str) -> NodeRecord | None:
        return self._entries.get(name)

    def observe_node(self, node: Node, *, now: float, wall: datetime) -> NodeRecord:
        """Note a new or changed node for the next pass."""
        name = node.metadata.name
        entry = self._entries.get(name)
        if entry is None or entry.uid != node.metadata.uid:
            self._leases.forget(name)
            health = node_health.first_seen(node, now=now, wall=wall)
            entry = self._entries[name] = NodeRecord(node.metadata.uid, health)
        else:
            entry.health = entry.health.after_status(node, now)
        self._noted[name] = None
        self._await(name, entry)
        return entry

    def observe_lease(self, lease: Lease) -> None:
        """Note a new or changed Lease, which may belong to no node."""
        name = lease.metadata.name
        entry = self._entries.get(name)
        if entry is not None:
            self._leases.observe(name, lease)
            self._await(name, entry)

    def remove_node(self, node: Node) -> None:
        name = node.metadata.name
        self._entries.pop(name, None)
        self._noted.pop(name, None)
        self._leases.forget(name)
        self._gone[name] = node.metadata.uid

    def requeue(self, name: str) -> None:
        """Check the node in the next pass, too."""
        if name in self._entries:
            self._noted[name] = None

    def restart_silence(self, now: float) -> None:
        """Count the silence of all nodes from now on (C3.15)."""
        for name, entry in self._entries.items():
            entry.health = replace(entry.health, probed=now)
            self._await(name, entry)

    def is_lost(self, name: str, now: float) -> bool:
        entry = self._entries.get(name)
        renewed = self._leases.changed_at(name)
        return entry is not None and entry.health.is_lost(self._settings, now, renewed)

    def take_removed(self) -> dict[str, str]:
        """The nodes that were deleted since the last call: name and uid."""
        nodes, self._gone = self._gone, {}
        return nodes

    def take(self, now: float) -> list[str]:
        """The nodes to check: changed, or lost by now."""
        while self._heap and self._heap[0][0] <= now + 1e-6:
            _, ticket, name = heapq.heappop(self._heap)
            entry = self._entries.get(name)
            if entry is not None and entry.ticket == ticket:
                entry.due = math.inf
                if self.is_lost(name, now):
                    self._noted[name] = None
                else:
                    self._await(name, entry)  # the node gave a sign of life since
        names, self._noted = self._noted, {}
        return list(names)

    def _await(self, name: str, entry: NodeRecord) -> None:
        """Put the node into the heap at the time at which it will be lost."""
        due = entry.health.due(self._settings, self._leases.changed_at(name))
        if entry.due <= due:
            return  # the earlier entry in the heap will be moved when its time comes
        self._tickets += 1
        entry.due, entry.ticket = due, self._tickets
        heapq.heappush(self._heap, (due, entry.ticket, name))
