# SPDX-License-Identifier: Apache-2.0
"""Metrics of taint eviction, under Kubernetes' names (behaviour C2.12)."""

from prometheus_client import CollectorRegistry, Counter, Histogram

_PREFIX = "taint_eviction_controller"

# Kubernetes' own: from 5 ms to 4 minutes.
_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)


class TaintEvictionMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deletions = Counter(
            f"{_PREFIX}_pod_deletions_total",
            "Pods that were deleted because of a taint.",
            registry=registry,
        )
        self.latency = Histogram(
            f"{_PREFIX}_pod_deletion_duration_seconds",
            "From when a pod was due to be deleted until it was.",
            buckets=_BUCKETS,
            registry=registry,
        )
