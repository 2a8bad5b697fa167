# SPDX-License-Identifier: Apache-2.0
"""The metrics of reconciles, under controller-runtime's names."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# As controller-runtime has them.
BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5),
    *(0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0),
    *(6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0),
)

SUCCESS, REQUEUE_AFTER, ERROR = "success", "requeue_after", "error"
RESULTS = (ERROR, REQUEUE_AFTER, SUCCESS)


class ReconcileMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        one, two = ("controller",), ("controller", "result")
        prefix = "controller_runtime"
        self.total = Counter(f"{prefix}_reconcile_total", "Reconciles", two, registry=registry)
        self.errors = Counter(
            f"{prefix}_reconcile_errors_total", "Reconciles that failed", one, registry=registry
        )
        self.terminal = Counter(
            f"{prefix}_terminal_reconcile_errors_total",
            "Reconciles that failed and are not tried again",
            one,
            registry=registry,
        )
        self.timeouts = Counter(
            f"{prefix}_reconcile_timeouts_total",
            "Reconciles that hung and were cancelled",
            one,
            registry=registry,
        )
        self.time = Histogram(
            f"{prefix}_reconcile_time_seconds",
            "Seconds that reconciles took",
            one,
            buckets=BUCKETS,
            registry=registry,
        )
        self.workers = Gauge(
            f"{prefix}_max_concurrent_reconciles",
            "How many keys can be worked on at once",
            one,
            registry=registry,
        )
        self.active = Gauge(
            f"{prefix}_active_workers", "How many keys are worked on", one, registry=registry
        )

    def of(self, controller: str) -> "ControllerMetrics":
        return ControllerMetrics(self, controller)


class ControllerMetrics:
    """The metrics of one controller; every series exists from the start."""

    def __init__(self, families: ReconcileMetrics, controller: str) -> None:
        self.results = {name: families.total.labels(controller, name) for name in RESULTS}
        self.errors = families.errors.labels(controller)
        self.terminal = families.terminal.labels(controller)
        self.timeouts = families.timeouts.labels(controller)
        self.time = families.time.labels(controller)
        self.workers = families.workers.labels(controller)
        self.active = families.active.labels(controller)
