# SPDX-License-Identifier: Apache-2.0
"""Metrics of force eviction."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class ForceEvictionMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.nodes = Counter(
            "refloat_force_eviction_nodes_total",
            "Nodes that were to be force evicted, by what became of it:"
            " finished, refused or withdrawn.",
            ("result",),
            registry=registry,
        )
        self.pods = Counter(
            "refloat_force_eviction_pods_total",
            "Pods that ended by force eviction because their node is down.",
            registry=registry,
        )
        self.volumes = Counter(
            "refloat_force_eviction_volumes_total",
            "Volumes that were detached from nodes that are down.",
            registry=registry,
        )
        self.under_way = Gauge(
            "refloat_force_eviction_nodes_under_way",
            "Nodes with a request for force eviction that is not finished.",
            registry=registry,
        )
        self.left = Gauge(
            "refloat_force_eviction_pods_left",
            "Pods that are still to be evicted from nodes with a request.",
            registry=registry,
        )
        self.missing_rights = Gauge(
            "refloat_force_eviction_missing_rights",
            "1 for each right that the API server refused to force eviction.",
            ("right",),
            registry=registry,
        )
