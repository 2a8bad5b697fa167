# SPDX-License-Identifier: Apache-2.0
"""What the Job controller counts, under Kubernetes' names (behaviour A23)."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from refloat.api import intervals
from refloat.api.batch import JobStatus, UncountedTerminatedPods
from refloat.policy.outcome import Outcome
from refloat.policy.pod_failure import Verdict
from refloat.policy.terms import INDEXED, NON_INDEXED, Terms

RECONCILING = "reconciling"
"""The action of a sync that took no care of the number of pods (A23.1)."""

_PREFIX = "job_controller"


class JobMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", told, labels, registry=registry)

        sync = ("completion_mode", "result", "action")
        self.duration = Histogram(
            f"{_PREFIX}_job_sync_duration_seconds",
            "How long syncs of Jobs took",
            sync,
            buckets=[0.004 * 2**power for power in range(15)],
            registry=registry,
        )
        self.syncs = counter("job_syncs_total", "Syncs of Jobs", *sync)
        self.finished = counter(
            "jobs_finished_total", "Jobs that ended", "completion_mode", "result", "reason"
        )
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

    def counted(self, terms: Terms, before: JobStatus, after: JobStatus) -> None:
        """Pods, and indexes, that a write of the status has counted."""
        mode = _mode(terms)
        for result, more in (
            ("succeeded", _succeeded(after) - _succeeded(before)),
            ("failed", _failed(after) - _failed(before)),
        ):
            if more > 0:
                self.pods_finished.labels(mode, result).inc(more)
        if terms.indexed and terms.completions is not None:
            self._indexes(terms, terms.completions, before, after)

    def _indexes(self, terms: Terms, bound: int, before: JobStatus, after: JobStatus) -> None:
        limit = "global" if terms.backoff_limit_per_index is None else "perIndex"
        for status, old, new in (
            ("succeeded", before.completed_indexes, after.completed_indexes),
            ("failed", before.failed_indexes or "", after.failed_indexes or ""),
        ):
            if old == new:
                continue
            more = _count(new, bound) - _count(old, bound)
            if more > 0:
                self.indexes.labels(status, limit).inc(more)

    def verdicts(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.action:
                self.judged.labels(verdict.action).inc()

    def ended(self, terms: Terms, outcome: Outcome) -> None:
        result = "succeeded" if outcome.succeeded else "failed"
        self.finished.labels(_mode(terms), result, outcome.reason).inc()


def _mode(terms: Terms) -> str:
    return INDEXED if terms.indexed else NON_INDEXED


def _count(text: str, bound: int) -> int:
    return intervals.count(intervals.parse(text, bound))


def _listed(status: JobStatus) -> UncountedTerminatedPods:
    return status.uncounted_terminated_pods or UncountedTerminatedPods()


def _succeeded(status: JobStatus) -> int:
    return status.succeeded + len(_listed(status).succeeded or ())


def _failed(status: JobStatus) -> int:
    return status.failed + len(_listed(status).failed or ())
