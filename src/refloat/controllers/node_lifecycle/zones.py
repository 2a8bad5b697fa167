# SPDX-License-Identifier: Apache-2.0
"""The zones: how many nodes of each are ready, and which nodes wait for a taint.

Counts are updated node by node, so that no pass counts all. `policy.disruption_mode` decides
about the rates.
"""

from dataclasses import dataclass, field

from refloat.api import structs
from refloat.api.core import Node
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.token_bucket import TokenBucket
from refloat.policy.node import disruption_mode
from refloat.policy.node.disruption_mode import Count, DisruptionModeSettings, State, ZonePlan


@dataclass(slots=True)
class ZoneQueue:
    """The nodes of a zone that wait for a NoExecute taint, first come first served (C3.8)."""

    bucket: TokenBucket
    names: dict[str, None] = field(default_factory=dict)

    def to_the_end(self, name: str) -> None:
        """Move a node to the end after a failure."""
        if name in self.names:
            del self.names[name]
            self.names[name] = None


class Zones:
    """All zones of a cluster."""

    def __init__(self, settings: DisruptionModeSettings, metrics: NodeLifecycleMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._counts: dict[str, Count] = {}
        self._counted: dict[str, tuple[str, bool]] = {}  # node -> zone, and whether it is ready
        self._states: dict[str, State] = {}
        self._waiting: dict[str, ZoneQueue] = {}
        self._queued: dict[str, str] = {}  # node -> zone

    def count(self, node: Node) -> None:
        """Count a node; one that never posted a status is not ready (C3.13)."""
        name = node.metadata.name
        self._uncount(name)
        if disruption_mode.is_counted(node):
            zone = disruption_mode.zone_of(node)
            ready = structs.is_true(node.status.conditions, "Ready")
            self._counted[name] = (zone, ready)
            self._add(zone, 1, ready=ready)

    def _uncount(self, name: str) -> None:
        zone, ready = self._counted.pop(name, ("", None))
        if ready is not None:
            self._add(zone, -1, ready=ready)

    def _add(self, zone: str, more: int, *, ready: bool) -> None:
        count = self._counts.get(zone, Count())
        if ready:
            self._counts[zone] = Count(count.ready + more, count.not_ready)
        else:
            self._counts[zone] = Count(count.ready, count.not_ready + more)

    def forget(self, name: str) -> None:
        self._uncount(name)
        self.drop(name)

    def judge(self, now: float) -> ZonePlan:
        """Set the rates for the counts; the caller applies the rest of the plan."""
        plan = disruption_mode.plan(self._states, self._counts, self._settings)
        self._states = dict(plan.states)
        for zone, rate in plan.rates.items():
            self.waiting(zone).bucket.change(rate, now)
        for zone, count in self._counts.items():
            self._metrics.counted(zone, count)
        self._counts = {zone: count for zone, count in self._counts.items() if count.size}
        return plan

    def waiting(self, zone: str) -> ZoneQueue:
        queue = self._waiting.get(zone)
        if queue is None:
            queue = self._waiting[zone] = ZoneQueue(TokenBucket(self._settings.rate))
            self._metrics.evictions.labels(zone)  # creates the series with 0
        return queue

    def enqueue(self, node: Node) -> str:
        """Queue a node for its taint; returns the zone."""
        name, zone = node.metadata.name, disruption_mode.zone_of(node)
        if self._queued.get(name) != zone:
            self.drop(name)
            self._queued[name] = zone
            self.waiting(zone).names[name] = None
        return zone

    def drop(self, name: str) -> None:
        """Remove a node that has its taint or needs none."""
        zone = self._queued.pop(name, None)
        if zone is not None:
            self._waiting[zone].names.pop(name, None)
