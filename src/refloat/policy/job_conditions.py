# SPDX-License-Identifier: Apache-2.0
"""The conditions of a Job, word for word as Kubernetes writes them (behaviour A18).

Which of them a Job gets is decided elsewhere; here is how they are written.
"""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.structs import Condition, Conditions

COMPLETE, FAILED = "Complete", "Failed"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"

# Reasons, and the message that belongs to each; the messages of the policies
# say which rule matched. All are Kubernetes' but that of a backoffPolicy.
POD_FAILURE_POLICY = "PodFailurePolicy"
BACKOFF_POLICY = "BackoffPolicy"
SUCCESS_POLICY = "SuccessPolicy"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
DEADLINE_EXCEEDED = "DeadlineExceeded"
MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
FAILED_INDEXES = "FailedIndexes"
COMPLETIONS_REACHED = "CompletionsReached"
JOB_SUSPENDED, JOB_RESUMED = "JobSuspended", "JobResumed"

REASONS = frozenset(
    (
        POD_FAILURE_POLICY,
        BACKOFF_POLICY,
        SUCCESS_POLICY,
        BACKOFF_LIMIT_EXCEEDED,
        DEADLINE_EXCEEDED,
        MAX_FAILED_INDEXES_EXCEEDED,
        FAILED_INDEXES,
        COMPLETIONS_REACHED,
    )
)
"""Why a Job ends; a condition that another controller wrote may have another reason."""

MESSAGES = {
    BACKOFF_LIMIT_EXCEEDED: "Job has reached the specified backoff limit",
    DEADLINE_EXCEEDED: "Job was active longer than specified deadline",
    MAX_FAILED_INDEXES_EXCEEDED: "Job has exceeded the specified maximal number of failed indexes",
    FAILED_INDEXES: "Job has failed indexes",
    COMPLETIONS_REACHED: "Reached expected number of succeeded pods",
    JOB_SUSPENDED: "Job suspended",
    JOB_RESUMED: "Job resumed",
}


def new(kind: str, reason: str, message: str, *, now: datetime, status: str = "True") -> Condition:
    """A condition that is made now: both of its times are (A18.1)."""
    written = times.format_time(now)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=written,
        last_transition_time=written,
    )


def ensured(conditions: Conditions, wanted: Condition) -> Conditions:
    """The conditions with this one among them; the same tuple if it was (A18.3).

    One that says the same stays with its times, one that says something else
    is replaced in its place. What was never said is not denied: a condition
    that is False is not added.
    """
    old = structs.find(conditions, wanted.type)
    if old is None:
        return conditions if wanted.status == "False" else (*(conditions or ()), wanted)
    said = (old.status, old.reason, old.message)
    if said == (wanted.status, wanted.reason, wanted.message):
        return conditions
    return tuple(wanted if each is old else each for each in conditions or ())


def suspension(conditions: Conditions, *, suspended: bool, now: datetime) -> Conditions:
    """The conditions of a Job that is suspended, or no longer (A14.2, A14.4)."""
    reason = JOB_SUSPENDED if suspended else JOB_RESUMED
    status = "True" if suspended else "False"
    return ensured(conditions, new(SUSPENDED, reason, MESSAGES[reason], now=now, status=status))


def is_finished(conditions: Conditions) -> bool:
    return structs.is_true(conditions, COMPLETE) or structs.is_true(conditions, FAILED)
