# SPDX-License-Identifier: Apache-2.0
"""What a write of a Job's status adds to the counts of pods and indexes (behaviour A23)."""

import re
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.api.batch import Job, JobStatus, UncountedTerminatedPods
from refloat.base import metrics
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.policy.job import job_spec
from refloat.runtime.candidate import CandidateMetrics
from tests.cases import cases
from tests.unit.policy import builders

PODS = "job_controller_job_pods_finished_total"
INDEXES = "job_controller_job_finished_indexes_total"


def indexed(completed: str, *, failed_indexes: str | None = None, failed: int = 0) -> JobStatus:
    count = completed.count(",") + 1 if completed else 0
    return JobStatus(
        succeeded=count, failed=failed, completed_indexes=completed, failed_indexes=failed_indexes
    )


def counts(job: Job, before: JobStatus, after: JobStatus) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    JobMetrics(registry).counted(job_spec.of(job), before, after)
    return {
        tuple(sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name in (PODS, INDEXES)
    }


LISTED = UncountedTerminatedPods(succeeded=("a", "b"), failed=("c",))
PER_INDEX: dict[str, Any] = {"backoffLimitPerIndex": 1}


@cases(
    "job before after want",
    {
        "listed is not counted yet": (
            builders.job(),
            JobStatus(),
            JobStatus(uncounted_terminated_pods=LISTED),
            {},
        ),
        "what another life has listed is counted": (
            builders.job(),
            JobStatus(uncounted_terminated_pods=LISTED),
            JobStatus(succeeded=2, failed=1),
            {("NonIndexed", "succeeded"): 2, ("NonIndexed", "failed"): 1},
        ),
        "nothing new": (
            builders.job(),
            JobStatus(succeeded=2, failed=1),
            JobStatus(succeeded=2, failed=1, active=3),
            {},
        ),
        "indexes": (
            builders.indexed(5),
            indexed("0"),
            indexed("0,2,4"),
            {("Indexed", "succeeded"): 2, ("succeeded", "global"): 2},
        ),
        "one more, of fewer: those beyond the new number count on neither side": (
            builders.indexed(3),
            indexed("0,3,4"),
            indexed("0,1"),
            {("Indexed", "succeeded"): 1, ("succeeded", "global"): 1},
        ),
        "fewer is no reason to count": (builders.indexed(3), indexed("0,3,4"), indexed("0"), {}),
        "indexes that failed, with more pods than indexes": (
            builders.indexed(5, **PER_INDEX),
            indexed("", failed_indexes=""),
            indexed("1", failed_indexes="0,3", failed=4),
            {
                ("Indexed", "succeeded"): 1,
                ("Indexed", "failed"): 4,
                ("succeeded", "perIndex"): 1,
                ("failed", "perIndex"): 2,
            },
        ),
    },
)
def test_counts_are_what_moved_into_the_counters(
    job: Job, before: JobStatus, after: JobStatus, want: dict[tuple[str, ...], float]
) -> None:
    assert counts(job, before, after) == want


DOCUMENT = Path(__file__).parents[4] / "docs" / "metrics.md"

# Kubernetes' families, and the one alias.
FAMILIES = {
    "job_controller_job_sync_duration_seconds": ("completion_mode", "result", "action"),
    "job_controller_job_syncs_total": ("completion_mode", "result", "action"),
    "job_controller_jobs_finished_total": ("completion_mode", "result", "reason"),
    "job_controller_job_finished_total": ("completion_mode", "result", "reason"),
    "job_controller_job_pods_finished_total": ("completion_mode", "result"),
    "job_controller_pod_failures_handled_by_failure_policy_total": ("action",),
    "job_controller_terminated_pods_tracking_finalizer_total": ("event",),
    "job_controller_job_finished_indexes_total": ("status", "backoffLimit"),
    "job_controller_job_pods_creation_total": ("reason", "status"),
    "job_controller_jobs_by_external_controller_total": ("controller_name",),
    "job_controller_stale_sync_skips_total": ("group", "resource"),
    "ttl_after_finished_controller_job_deletion_duration_seconds": (),
}
ELECTIONS: dict[str, tuple[str, ...]] = {
    "leader_election_master_status": ("name",),
    "refloat_actor_state": ("controller", "state"),
}
RECOVERY = {
    "refloat_failure_recovery_pod_decisions_total": ("outcome", "reason"),
    "refloat_failure_recovery_node_decisions_total": ("outcome", "reason"),
    "refloat_failure_recovery_stuck_seconds": (),
    "refloat_failure_recovery_stuck_pods": (),
    "refloat_failure_recovery_due_pods": ("reason",),
    "refloat_failure_recovery_missing_rights": ("right",),
    "refloat_failure_recovery_held": ("cause",),
    "refloat_failure_recovery_stuck_on_reachable_nodes": (),
}


def families(registry: CollectorRegistry) -> set[str]:
    """As a process exports its metrics."""
    text, _ = metrics.exposition(registry, "text/plain")
    return {line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE")}


def test_the_families_are_those_of_kubernetes() -> None:
    registry = CollectorRegistry()
    JobMetrics(registry)
    TtlMetrics(registry)
    assert families(registry) == set(FAMILIES)


def test_the_families_of_zombie_recovery_are_these() -> None:
    registry = CollectorRegistry()
    FailureRecoveryMetrics(registry)
    assert families(registry) == set(RECOVERY)


def test_the_families_of_elections_are_these() -> None:
    registry = CollectorRegistry()
    CandidateMetrics(registry)
    assert families(registry) == set(ELECTIONS)


def test_the_families_are_documented_with_their_labels() -> None:
    families = {**FAMILIES, **RECOVERY, **ELECTIONS}
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, _, labels in rows} == families
    histograms = {name for name, kind, _ in rows if kind == "histogram"}
    assert histograms == {name for name in families if name.endswith("_seconds")}
