# SPDX-License-Identifier: Apache-2.0
"""Metrics of the node lifecycle controller, under Kubernetes' names (behaviour C3.17)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from refloat.policy.node.disruption_mode import Count

_PREFIX = "node_collector"


class NodeLifecycleMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        zone = ("zone",)
        self.evictions = Counter(
            f"{_PREFIX}_evictions_total",
            "Nodes whose pods were made to leave.",
            zone,
            registry=registry,
        )
        self._health = Gauge(
            f"{_PREFIX}_zone_health", "Ready nodes of a zone, in percent.", zone, registry=registry
        )
        self._size = Gauge(
            f"{_PREFIX}_zone_size", "Nodes of a zone that are counted.", zone, registry=registry
        )
        self._unhealthy = Gauge(
            f"{_PREFIX}_unhealthy_nodes_in_zone",
            "Nodes of a zone that are not ready.",
            zone,
            registry=registry,
        )
        self.one = Histogram(
            f"{_PREFIX}_update_node_health_duration_seconds",
            "How long the look at one node took.",
            buckets=[0.001 * 4**power for power in range(8)],
            registry=registry,
        )
        self.all = Histogram(
            f"{_PREFIX}_update_all_nodes_health_duration_seconds",
            "How long the look at all nodes that had to be looked at took.",
            buckets=[0.01 * 4**power for power in range(8)],
            registry=registry,
        )

    def counted(self, zone: str, count: Count) -> None:
        """A zone without nodes is healthy."""
        self._size.labels(zone).set(count.size)
        self._unhealthy.labels(zone).set(count.not_ready)
        self._health.labels(zone).set(100 * count.ready / count.size if count.size else 100)
