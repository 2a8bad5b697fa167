# SPDX-License-Identifier: Apache-2.0
"""The conditions of a Job, in the exact words of Kubernetes (behaviour A18).

Other modules decide which conditions a Job gets.
"""

from datetime import datetime

from refloat.api import structs, times
from refloat.api.structs import Condition, Conditions

COMPLETE, FAILED = "Complete", "Failed"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
SUSPENDED = "Suspended"

# Reasons, and the message of each; the messages of policies name the rule that matched. All are
# from Kubernetes, except that of a backoffPolicy.
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
    """A new condition with the current time (A18.1)."""
    time = times.format_time(now)
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=time,
        last_transition_time=time,
    )


def ensured(conditions: Conditions, condition: Condition) -> Conditions:
    """The conditions with this one among them; the same tuple if nothing changes (A18.3).

    A condition with the same content keeps its times, one with other content is replaced in
    place. A condition that is False is not added.
    """
    old = structs.find(conditions, condition.type)
    if old is None:
        return conditions if condition.status == "False" else (*(conditions or ()), condition)
    before = (old.status, old.reason, old.message)
    if before == (condition.status, condition.reason, condition.message):
        return conditions
    return tuple(condition if each is old else each for each in conditions or ())


def suspension(conditions: Conditions, *, suspended: bool, now: datetime) -> Conditions:
    """The conditions after a suspension or its end (A14.2, A14.4)."""
    reason = JOB_SUSPENDED if suspended else JOB_RESUMED
    status = "True" if suspended else "False"
    return ensured(conditions, new(SUSPENDED, reason, MESSAGES[reason], now=now, status=status))


def decision(conditions: Conditions) -> Condition | None:
    """The condition with which an earlier sync decided that the Job is over."""
    for kind in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        condition = structs.find(conditions, kind)
        if condition is not None and condition.status == "True":
            return condition
    return None


def is_finished(conditions: Conditions) -> bool:
    return structs.is_true(conditions, COMPLETE) or structs.is_true(conditions, FAILED)
