# SPDX-License-Identifier: Apache-2.0
"""The zones: how many nodes of each are well, and which wait to be tainted.

Counts are kept up to date node by node, so that no pass counts all. What
follows from them is decided in `policy.disruption_mode`.
"""

from dataclasses import dataclass, field

from refloat.api import structs
from refloat.api.core import Node
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.policy import disruption_mode
from refloat.policy.disruption_mode import Bucket, Count, Plan, Settings, State


@dataclass(slots=True)
class Waiting:
    """The nodes of a zone that wait for a NoExecute taint, first come first served (C3.8)."""

    bucket: Bucket
    names: dict[str, None] = field(default_factory=dict)

    def to_the_end(self, name: str) -> None:
        """Whoever failed lets the others go first."""
        if name in self.names:
            del self.names[name]
            self.names[name] = None


class Zones:
    """All zones of a cluster."""

    def __init__(self, settings: Settings, metrics: NodeLifecycleMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._counts: dict[str, Count] = {}
        self._counted: dict[str, tuple[str, bool]] = {}  # node -> zone, and whether it is ready
        self._states: dict[str, State] = {}
        self._waiting: dict[str, Waiting] = {}
        self._queued: dict[str, str] = {}  # node -> zone

    def count(self, node: Node) -> None:
        """What a node is now; one that never posted is not ready (C3.13)."""
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
        count = self._counts.setdefault(zone, Count())
        if ready:
            count.ready += more
        else:
            count.not_ready += more

    def forget(self, name: str) -> None:
        self._uncount(name)
        self.drop(name)

    def judge(self, now: float) -> Plan:
        """Set the rates as the counts demand; the rest of the plan is the caller's."""
        plan = disruption_mode.plan(self._states, self._counts, self._settings)
        self._states = dict(plan.states)
        for zone, rate in plan.rates.items():
            self.waiting(zone).bucket.change(rate, now)
        for zone, count in self._counts.items():
            self._metrics.counted(zone, count)
        self._counts = {zone: count for zone, count in self._counts.items() if count.size}
        return plan

    def waiting(self, zone: str) -> Waiting:
        found = self._waiting.get(zone)
        if found is None:
            found = self._waiting[zone] = Waiting(Bucket(self._settings.rate))
            self._metrics.evictions.labels(zone)  # is 0 from now on
        return found

    def enqueue(self, node: Node) -> str:
        """Have it tainted when its turn comes; the zone in which it waits."""
        name, zone = node.metadata.name, disruption_mode.zone_of(node)
        if self._queued.get(name) != zone:
            self.drop(name)
            self._queued[name] = zone
            self.waiting(zone).names[name] = None
        return zone

    def drop(self, name: str) -> None:
        """It is to be tainted no more, or is."""
        zone = self._queued.pop(name, None)
        if zone is not None:
            self._waiting[zone].names.pop(name, None)
