# SPDX-License-Identifier: Apache-2.0
"""Puts taints on nodes: NoSchedule at once, NoExecute zone by zone and slowly.

NoExecute makes pods leave, so a zone's nodes get it one after the other at the
rate that `zones` says; taint eviction itself knows no rate.
"""

import logging

from refloat.api import structs
from refloat.api.core import Node
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.writes import Writes
from refloat.controllers.node_lifecycle.zones import Waiting, Zones
from refloat.policy import node_taints
from refloat.policy.tolerations import NO_EXECUTE, NO_SCHEDULE
from refloat.runtime.cache import Cache
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


class NoSchedule:
    """Keeps NoSchedule taints as the conditions are; a key is a node's (behaviour C3.7)."""

    def __init__(self, writes: Writes, nodes: Cache[Node]) -> None:
        self._writes = writes
        self._nodes = nodes

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or node_taints.no_schedule(node) == ([], []):
            return DONE
        try:
            await self._writes.swap_taints(node, NO_SCHEDULE, node_taints.no_schedule)
        except errors.NotFound:
            log.debug("node %s is gone", key)
        return DONE


class Evictions:
    """Adds NoExecute taints as fast as a zone may; a key is a zone's (behaviour C3.8)."""

    def __init__(
        self,
        writes: Writes,
        zones: Zones,
        nodes: Cache[Node],
        clock: Clock,
        metrics: NodeLifecycleMetrics,
    ) -> None:
        self._writes = writes
        self._zones = zones
        self._nodes = nodes
        self._clock = clock
        self._metrics = metrics

    async def reconcile(self, zone: str) -> Result:
        waiting = self._zones.waiting(zone)
        while (node := self._first(waiting)) is not None:
            now = self._clock.monotonic()
            if not waiting.bucket.take(now):
                left = waiting.bucket.wait(now)
                return DONE if left is None else Result(requeue_after=left)
            await self._taint(zone, node)
        return DONE

    def _first(self, waiting: Waiting) -> Node | None:
        """The first that still has to be tainted; the others leave."""
        for name in list(waiting.names):
            node = self._nodes.get(name)
            if node is not None and node_taints.no_execute(node) != ([], []):
                return node
            if node is None or structs.find(node.status.conditions, "Ready") is not None:
                self._zones.drop(name)
        return None

    async def _taint(self, zone: str, node: Node) -> None:
        """A failure costs its turn, as in Kubernetes: the zone's next node comes first."""
        name = node.metadata.name
        try:
            await self._writes.swap_taints(node, NO_EXECUTE, node_taints.no_execute)
        except errors.NotFound:
            self._zones.drop(name)
        except errors.ClientError as error:
            log.warning("node %s: not tainted: %s", name, error)
            self._zones.waiting(zone).to_the_end(name)
        else:
            self._zones.drop(name)
            self._metrics.evictions.labels(zone).inc()
