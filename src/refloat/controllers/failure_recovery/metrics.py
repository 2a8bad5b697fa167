# SPDX-License-Identifier: Apache-2.0
"""Metrics of failure recovery."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "refloat_failure_recovery"


class FailureRecoveryMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("outcome", "reason")
        self.pods = Counter(
            f"{_PREFIX}_pod_decisions_total",
            "Decisions on pods that hang on unreachable nodes, by outcome and reason.",
            labels,
            registry=registry,
        )
        self.nodes = Counter(
            f"{_PREFIX}_node_decisions_total",
            "Decisions on declaring unreachable nodes out of service, by outcome and reason.",
            labels,
            registry=registry,
        )
        self.stuck = Histogram(
            f"{_PREFIX}_stuck_seconds",
            "How long the grace period of pods was over when Refloat marked them Failed.",
            buckets=[15 * 2**power for power in range(12)],
            registry=registry,
        )
        self._held = Gauge(
            f"{_PREFIX}_held",
            "Pods and nodes that are due and held back, by cause.",
            ("cause",),
            registry=registry,
        )
        self._reachable = Gauge(
            f"{_PREFIX}_stuck_on_reachable_nodes",
            "Pods that hang in Terminating on nodes that can be reached; these are never forced.",
            registry=registry,
        )

        self._stuck_pods = Gauge(
            f"{_PREFIX}_stuck_pods",
            "Pods whose deletion grace period is over, on unreachable nodes, now.",
            registry=registry,
        )
        self._due = Gauge(
            f"{_PREFIX}_due_pods",
            "Pods on unreachable nodes that are due and that Refloat has not freed, by reason.",
            ("reason",),
            registry=registry,
        )
        self.missing_rights = Gauge(
            f"{_PREFIX}_missing_rights",
            "1 for each right that the API server refused to failure recovery.",
            ("right",),
            registry=registry,
        )

    def read_stuck(self, count: Callable[[], int]) -> None:
        self._stuck_pods.set_function(count)

    def read_due(self, reason: str, count: Callable[[], int]) -> None:
        self._due.labels(reason).set_function(count)

    def read_held(self, cause: str, count: Callable[[], int]) -> None:
        self._held.labels(cause).set_function(count)

    def read_reachable(self, count: Callable[[], int]) -> None:
        self._reachable.set_function(count)
