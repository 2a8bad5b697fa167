# SPDX-License-Identifier: Apache-2.0
"""Metrics of the TTL controller, under Kubernetes' name (behaviour A24.5)."""

from prometheus_client import CollectorRegistry, Histogram


class TtlMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.late = Histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "How long after its time a finished Job was deleted",
            buckets=[0.1 * 2**power for power in range(14)],
            registry=registry,
        )
