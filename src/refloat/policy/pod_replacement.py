# SPDX-License-Identifier: Apache-2.0
"""podReplacementPolicy: when a pod may be replaced (KEP-3939, behaviour A16).

`TerminatingOrFailed` replaces a pod once it is deleted, `Failed` only once it
has ended. Here is how many pods that makes, and for which indexes. Delays
after failures are in `backoff`, and which pods go in `victims`.
"""

from collections.abc import Iterable

from refloat.api import intervals
from refloat.api.batch import JobSpec
from refloat.api.intervals import Interval
from refloat.policy import pod_failure
from refloat.policy.switches import Switches

TERMINATING_OR_FAILED, FAILED = "TerminatingOrFailed", "Failed"

# Labels of the metric of created pods (behaviour A23.2).
NEW = "new"
RECREATE_TERMINATING_OR_FAILED = "recreate_terminating_or_failed"
RECREATE_FAILED = "recreate_failed"


def only_replace_failed(spec: JobSpec, switches: Switches) -> bool:
    """Whether a terminating pod is waited for.

    A pod failure policy is reason enough, whatever the gate of replacements
    says. KEP-3939 would have such Jobs replace terminating pods while that
    gate is off, KEP-3329 would have them wait: a pod has no exit code before
    it has ended, so it would be judged by half of what it will say, and its
    replacement might be ended by the rule that it then matches. Kubernetes
    waits, and so do we.
    """
    if switches.job_pod_replacement_policy and spec.pod_replacement_policy == FAILED:
        return True
    return pod_failure.effective(spec, switches) is not None


def reports_terminating(switches: Switches) -> bool:
    """Whether `status.terminating` is written; otherwise it is cleared."""
    return switches.job_pod_replacement_policy


def sets_phase(switches: Switches) -> bool:
    """Whether whoever removes a pod that cannot end by itself sets its phase to Failed first.

    KEP-3939 names the gates of disruption conditions and of replacements. The
    others are here because Jobs with a policy for failures wait for a phase in
    any case, and would wait for ever if nobody set it.
    """
    return (
        switches.pod_disruption_conditions
        or switches.job_pod_replacement_policy
        or switches.job_pod_failure_policy
        or switches.retriable_and_non_retriable_failures
    )


def adds_disruption_target(switches: Switches) -> bool:
    """Whether whoever disrupts a pod says so in a condition."""
    return switches.pod_disruption_conditions


def desired_active(
    *, parallelism: int, completions: int | None, succeeded: int, active: int
) -> int:
    """How many pods should be active (behaviour A8.1).

    Without a number of completions the first success says that the work is
    done: what runs may end, and nothing is started.
    """
    if completions is None:
        return active if succeeded > 0 else parallelism
    return max(0, min(parallelism, completions - succeeded))


def missing(*, desired: int, active: int, terminating: int, waits: bool) -> int:
    """How many pods there are too few (behaviour A8.2)."""
    expected = active + terminating if waits else active
    return max(0, desired - expected)


def pending_indexes(
    count: int, completions: int, *, done: Iterable[Interval], held: Iterable[int]
) -> list[int]:
    """The lowest indexes that need a pod (behaviour A7.6).

    `done` are those that succeeded or failed, `held` those that have a pod: an
    active one or, where such pods are waited for, a terminating one.
    """
    found: list[int] = []
    candidate = 0
    for first, last in intervals.union(done, intervals.of(held)):
        _extend(found, candidate, min(first, completions), count)
        if len(found) == count:
            return found
        candidate = last + 1
    _extend(found, candidate, completions, count)
    return found


def _extend(found: list[int], first: int, end: int, count: int) -> None:
    found.extend(range(first, min(end, first + count - len(found))))


def creation_reason(spec: JobSpec, switches: Switches, *, failed: int, terminating: int) -> str:
    """Why pods are created, as a label of the metric."""
    if not switches.job_pod_replacement_policy:
        return NEW
    if spec.pod_replacement_policy == FAILED and failed > 0:
        return RECREATE_FAILED
    if failed > 0 or terminating > 0:
        return RECREATE_TERMINATING_OR_FAILED
    return NEW
