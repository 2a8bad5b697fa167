# SPDX-License-Identifier: Apache-2.0
"""Metrics of the Job controller, under the names of Kubernetes (behaviour A23).

One metric exists in KEP-3329 and not in Kubernetes: the same numbers under another name;
docs/metrics.md has the details.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily

from refloat.api import index_intervals
from refloat.api.batch import JobStatus
from refloat.policy.job import job_conditions
from refloat.policy.job.job_spec import INDEXED, NON_INDEXED, EffectiveSpec
from refloat.policy.job.outcome import Outcome
from refloat.policy.job.pod_failure import Verdict

RECONCILING = "reconciling"
"""The action of a sync that did not manage the number of pods (A23.1)."""

_PREFIX = "job_controller"

# Labels come from closed sets: each further value is a further time series, for as long as the
# process lives. All unknown values become this one.
OTHER = "Other"

EXTERNAL = frozenset(("kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue"))
"""Controllers that a Job may name in spec.managedBy, beside Refloat's own; users write it."""


class _Alias:
    """A counter that is exported under a second name, too."""

    def __init__(self, counter: Counter, name: str, labels: tuple[str, ...]) -> None:
        self._counter = counter
        self._name = name
        self._labels = labels

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = self._family()
        samples = (each for metric in self._counter.collect() for each in metric.samples)
        for name, labels, value, *_ in samples:
            if name.endswith("_total"):
                family.add_metric([labels[label] for label in self._labels], value)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(
            self._name, "The older name of jobs_finished", labels=self._labels
        )


class JobMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help_text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", help_text, labels, registry=registry)

        sync = ("completion_mode", "result", "action")
        self.duration = Histogram(
            f"{_PREFIX}_job_sync_duration_seconds",
            "How long syncs of Jobs took",
            sync,
            buckets=[0.004 * 2**power for power in range(15)],
            registry=registry,
        )
        self.syncs = counter("job_syncs_total", "Syncs of Jobs", *sync)
        finished_labels = ("completion_mode", "result", "reason")
        self.finished = counter("jobs_finished_total", "Jobs that ended", *finished_labels)
        registry.register(_Alias(self.finished, f"{_PREFIX}_job_finished", finished_labels))
        self.pods_finished = counter(
            "job_pods_finished_total", "Pods whose end was counted", "completion_mode", "result"
        )
        self.judged = counter(
            "pod_failures_handled_by_failure_policy_total",
            "Failed pods that a rule of a pod failure policy matched",
            "action",
        )
        self.tracked = counter(
            "terminated_pods_tracking_finalizer_total",
            "Pods that ended with the tracking finalizer, and that lost it then",
            "event",
        )
        self.indexes = counter(
            "job_finished_indexes_total", "Indexes that ended", "status", "backoffLimit"
        )
        self.creations = counter(
            "job_pods_creation_total", "Pods that were created, and why", "reason", "status"
        )
        self.external = counter(
            "jobs_by_external_controller_total",
            "Jobs that are another controller's",
            "controller_name",
        )
        self.stale = counter(
            "stale_sync_skips_total",
            "Syncs that waited for the cache to see the last write",
            "group",
            "resource",
        )

    def sync_ended(self, mode: str | None, *, ok: bool, action: str, seconds: float) -> None:
        labels = (mode or NON_INDEXED, "success" if ok else "error", action)
        self.syncs.labels(*labels).inc()
        self.duration.labels(*labels).observe(seconds)

    def created(self, reason: str, *, ok: bool) -> None:
        """One that failed counts as both, as in Kubernetes (A23.3)."""
        if not ok:
            self.creations.labels(reason, "failed").inc()
        self.creations.labels(reason, "succeeded").inc()

    def counted(self, spec: EffectiveSpec, before: JobStatus, after: JobStatus) -> None:
        """Pods, and indexes, that a write of the status has moved into its counters."""
        succeeded = after.succeeded - before.succeeded
        if spec.indexed:
            # Of the indexes that the Job still has: it may have fewer than before.
            bound = spec.completions or 0
            succeeded = _more(before.completed_indexes, after.completed_indexes, bound)
            failed = _more(before.failed_indexes or "", after.failed_indexes or "", bound)
            limit = "global" if spec.backoff_limit_per_index is None else "perIndex"
            _add(self.indexes, succeeded, "succeeded", limit)
            _add(self.indexes, failed, "failed", limit)
        mode = _mode(spec)
        _add(self.pods_finished, succeeded, mode, "succeeded")
        _add(self.pods_finished, after.failed - before.failed, mode, "failed")

    def verdicts(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.action:
                self.judged.labels(verdict.action).inc()

    def another_controllers(self, name: str) -> None:
        """Count a Job of another controller."""
        self.external.labels(name if name in EXTERNAL else OTHER).inc()

    def ended(self, spec: EffectiveSpec, outcome: Outcome) -> None:
        result = "succeeded" if outcome.succeeded else "failed"
        reason = outcome.reason if outcome.reason in job_conditions.REASONS else OTHER
        self.finished.labels(_mode(spec), result, reason).inc()


def _mode(spec: EffectiveSpec) -> str:
    return INDEXED if spec.indexed else NON_INDEXED


def _add(counter: Counter, more: int, *labels: str) -> None:
    if more > 0:
        counter.labels(*labels).inc(more)


def _more(old: str, new: str, bound: int) -> int:
    """How many indexes there are more, of those below the bound."""
    if old == new:
        return 0
    return _count(new, bound) - _count(old, bound)


def _count(text: str, bound: int) -> int:
    return index_intervals.count(index_intervals.parse(text, bound))
