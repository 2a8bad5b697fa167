# SPDX-License-Identifier: Apache-2.0
"""When a finished Job may be deleted: ttlSecondsAfterFinished (behaviour A24).

The time in the terminal condition counts, even if another controller wrote the condition.
"""

from datetime import datetime, timedelta

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.structs import Condition
from refloat.policy.job import job_conditions

_TERMINAL = (job_conditions.COMPLETE, job_conditions.FAILED)


def applies(job: Job) -> bool:
    """Whether the TTL controller deletes the Job, now or later (A24.1)."""
    return (
        job.spec.ttl_seconds_after_finished is not None
        and job.metadata.deletion_timestamp is None
        and _terminal_condition(job) is not None
    )


def finished_at(job: Job) -> datetime | None:
    """When the Job ended; None if it has not, or if the condition has no time."""
    condition = _terminal_condition(job)
    if condition is None or condition.last_transition_time is None:
        return None
    return times.parse(condition.last_transition_time)


def remaining(job: Job, finished: datetime, now: datetime) -> timedelta:
    """How long the Job stays; not positive if the Job is due (A24.2).

    Only differences: a time in the year 9999 plus some years would overflow.
    """
    ttl = timedelta(seconds=job.spec.ttl_seconds_after_finished or 0)
    return (finished - now) + ttl


def _terminal_condition(job: Job) -> Condition | None:
    for each in job.status.conditions or ():
        if each.type in _TERMINAL and each.status == "True":
            return each
    return None
