# SPDX-License-Identifier: Apache-2.0
"""The state of one pod of a Job (behaviour A3).

Only what the pod itself shows; whether a terminating pod counts as failed depends on the Job, too
(`job_spec`).
"""

from refloat.api import integers, structs
from refloat.api.core import FAILED, SUCCEEDED, Pod

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"

MAX_INT32 = 2**31 - 1


def is_active(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and not pod.is_terminal


def is_terminating(pod: Pod) -> bool:
    """Deleted, but not yet in a terminal phase."""
    return pod.metadata.deletion_timestamp is not None and not pod.is_terminal


def is_ready(pod: Pod) -> bool:
    return structs.is_true(pod.status.conditions, "Ready")


def has_succeeded(pod: Pod) -> bool:
    return pod.status.phase == SUCCEEDED


def has_failed(pod: Pod) -> bool:
    """Whether the pod is in phase Failed, which a terminating pod is not."""
    return pod.status.phase == FAILED


def is_tracked(pod: Pod) -> bool:
    """Whether the pod has the finalizer, so that it cannot vanish uncounted."""
    return TRACKING_FINALIZER in (pod.metadata.finalizers or ())


def has_escaped(pod: Pod) -> bool:
    """Whether the pod is active and could end uncounted, because it has no finalizer.

    The controller removed the finalizer in order to delete the pod and died before the deletion, or
    a user removed the finalizer.
    """
    return is_active(pod) and not is_tracked(pod)


def is_settled(pod: Pod) -> bool:
    """Over and counted: no further decision depends on the pod.

    The caller may leave such pods out of `observed.observe`, so that the cost of a sync does not
    grow with all pods that the Job ever had. When they were judged, FailureTarget was written
    before their finalizers were removed, so no verdict is lost (behaviour A15.9). Kubernetes judges
    them again (A15.8), which differs after a gate was off in between: a pod that counts as failed
    must not be judged again. It also differs where another client removed the finalizer, which the
    pod does not show.

    A pod that is being deleted is not settled: it may have lost its finalizer in order to be
    deleted, and never have been judged. Its failure counts for nothing, but may fail the Job while
    the pod exists. A pod that had ended before its deletion vanishes at once, so there are few.
    """
    return pod.is_terminal and not is_tracked(pod) and pod.metadata.deletion_timestamp is None


def completion_index(pod: Pod) -> int | None:
    """The index in the annotation; the label is never read (behaviour A3.6)."""
    index = _integer((pod.metadata.annotations or {}).get(COMPLETION_INDEX))
    return index if index is not None and index >= 0 else None


def index_failures(pod: Pod) -> int:
    """How many counted failures the index had before this pod."""
    return _count(pod, INDEX_FAILURES)


def index_ignored_failures(pod: Pod) -> int:
    """How many ignored failures the index had before this pod."""
    return _count(pod, INDEX_IGNORED_FAILURES)


def all_index_failures(pod: Pod) -> int:
    return index_failures(pod) + index_ignored_failures(pod)


def sidecars(pod: Pod) -> frozenset[str]:
    """The names of the init containers that run on beside the others."""
    return frozenset(
        each.name for each in pod.spec.init_containers or () if each.restart_policy == "Always"
    )


def _count(pod: Pod, annotation: str) -> int:
    """The number in an annotation; 0 for an invalid one (behaviour A12.7)."""
    number = _integer((pod.metadata.annotations or {}).get(annotation))
    return number if number is not None and 0 <= number <= MAX_INT32 else 0


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return integers.signed(text)
    except integers.NotInteger:
        return None
