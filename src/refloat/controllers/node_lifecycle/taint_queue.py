# SPDX-License-Identifier: Apache-2.0
"""Adds taints to nodes: NoSchedule at once, NoExecute zone by zone at a limited rate.

NoExecute evicts pods, so the nodes of a zone get the taint one after the other at the rate of
`zones`; taint eviction itself has no rate.
"""

import logging

from refloat.api import structs
from refloat.api.core import Node
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.writes import NodeWriter
from refloat.controllers.node_lifecycle.zones import ZoneQueue, Zones
from refloat.policy.node import node_taints
from refloat.policy.scheduling.tolerations import NO_EXECUTE, NO_SCHEDULE
from refloat.runtime.cache import Cache
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


class NoScheduleTaints:
    """Keeps the NoSchedule taints of a node in line with its conditions (behaviour C3.7)."""

    def __init__(self, writes: NodeWriter, nodes: Cache[Node]) -> None:
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


class NoExecuteTaints:
    """Adds NoExecute taints at the rate of a zone; a key is a zone (behaviour C3.8)."""

    def __init__(
        self,
        writes: NodeWriter,
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
                wait = waiting.bucket.wait(now)
                return DONE if wait is None else Result(requeue_after=wait)
            await self._taint(zone, node)
        return DONE

    def _first(self, waiting: ZoneQueue) -> Node | None:
        """The first node that still needs the taint; removes the others."""
        for name in list(waiting.names):
            node = self._nodes.get(name)
            if node is not None and node_taints.no_execute(node) != ([], []):
                return node
            if node is None or structs.find(node.status.conditions, "Ready") is not None:
                self._zones.drop(name)
        return None

    async def _taint(self, zone: str, node: Node) -> None:
        """Taint a node; after a failure it goes to the end, as in Kubernetes."""
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
