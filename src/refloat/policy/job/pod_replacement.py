# SPDX-License-Identifier: Apache-2.0
"""podReplacementPolicy: when a pod may be replaced (KEP-3939, behaviour A16).

`TerminatingOrFailed` replaces a pod once it is deleted, `Failed` only once it has ended. This
module computes how many pods are missing, and for which indexes. `backoff` has the delays after
failures, `victims` the pods to delete.
"""

from collections.abc import Iterable

from refloat.api import index_intervals
from refloat.api.batch import JobSpec
from refloat.api.index_intervals import Interval
from refloat.policy.job import pod_failure
from refloat.policy.job.job_gates import JobGates

TERMINATING_OR_FAILED, FAILED = "TerminatingOrFailed", "Failed"

# Labels of the metric of created pods (behaviour A23.2).
NEW = "new"
RECREATE_TERMINATING_OR_FAILED = "recreate_terminating_or_failed"
RECREATE_FAILED = "recreate_failed"


def only_replace_failed(spec: JobSpec, job_gates: JobGates) -> bool:
    """Whether a Job waits for terminating pods.

    A pod failure policy is reason enough, whatever the gate of replacements is. KEP-3939 would
    replace terminating pods of such Jobs while that gate is off, KEP-3329 would wait: a pod has no
    exit code before it has ended, so the policy would judge half of the facts, and the replacement
    could be ended by the rule that the pod matches later. Kubernetes waits, and so does Refloat.
    """
    if job_gates.job_pod_replacement_policy and spec.pod_replacement_policy == FAILED:
        return True
    return pod_failure.effective(spec, job_gates) is not None


def reports_terminating(job_gates: JobGates) -> bool:
    """Whether `status.terminating` is written; otherwise it is cleared."""
    return job_gates.job_pod_replacement_policy


def sets_phase(job_gates: JobGates) -> bool:
    """Whether a controller that deletes a pod that cannot end by itself marks it Failed first.

    KEP-3939 names the gates of disruption conditions and of replacements. The others are here
    because Jobs with a policy for failures wait for a phase, and would wait forever without one.
    """
    return (
        job_gates.pod_disruption_conditions
        or job_gates.job_pod_replacement_policy
        or job_gates.job_pod_failure_policy
        or job_gates.retriable_and_non_retriable_failures
    )


def adds_disruption_target(job_gates: JobGates) -> bool:
    """Whether controllers add the condition DisruptionTarget to pods that they disrupt."""
    return job_gates.pod_disruption_conditions


def desired_active(
    *, parallelism: int, completions: int | None, succeeded: int, active: int
) -> int:
    """How many pods should be active (behaviour A8.1).

    Without a number of completions the first success completes the work: running pods may end, and
    no pod is started.
    """
    if completions is None:
        return active if succeeded > 0 else parallelism
    return max(0, min(parallelism, completions - succeeded))


def missing(*, desired: int, active: int, terminating: int, waits: bool) -> int:
    """How many pods are missing (behaviour A8.2)."""
    expected = active + terminating if waits else active
    return max(0, desired - expected)


def pending_indexes(
    count: int, completions: int, *, done: Iterable[Interval], occupied: Iterable[int]
) -> list[int]:
    """The lowest indexes that need a pod (behaviour A7.6).

    `done` are those that succeeded or failed, `occupied` those that have a pod: an
    active one or, where such pods are waited for, a terminating one.
    """
    indexes: list[int] = []
    candidate = 0
    for first, last in index_intervals.union(done, index_intervals.of(occupied)):
        _extend(indexes, candidate, min(first, completions), count)
        if len(indexes) == count:
            return indexes
        candidate = last + 1
    _extend(indexes, candidate, completions, count)
    return indexes


def _extend(indexes: list[int], first: int, end: int, count: int) -> None:
    indexes.extend(range(first, min(end, first + count - len(indexes))))


def creation_reason(spec: JobSpec, job_gates: JobGates, *, failed: int, terminating: int) -> str:
    """Why pods are created, as a label of the metric."""
    if not job_gates.job_pod_replacement_policy:
        return NEW
    if spec.pod_replacement_policy == FAILED and failed > 0:
        return RECREATE_FAILED
    if failed > 0 or terminating > 0:
        return RECREATE_TERMINATING_OR_FAILED
    return NEW
