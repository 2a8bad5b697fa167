# SPDX-License-Identifier: Apache-2.0
"""When a Job that is over may go: ttlSecondsAfterFinished (behaviour A24).

What "over" means is decided by `outcome` and written by `accounting`; whoever
wrote it, another controller too, the time that stands there counts.
"""

from datetime import datetime, timedelta

from refloat.api import times
from refloat.api.batch import Job
from refloat.api.structs import Condition
from refloat.policy import job_conditions

_TERMINAL = (job_conditions.COMPLETE, job_conditions.FAILED)


def applies(job: Job) -> bool:
    """Whether the Job is to go by itself, now or later (A24.1)."""
    return (
        job.spec.ttl_seconds_after_finished is not None
        and job.metadata.deletion_timestamp is None
        and _terminal_condition(job) is not None
    )


def finished_at(job: Job) -> datetime | None:
    """When the Job ended; None if it has not, or if nobody wrote down when."""
    found = _terminal_condition(job)
    if found is None or found.last_transition_time is None:
        return None
    return times.parse(found.last_transition_time)


def remaining(job: Job, finished: datetime, now: datetime) -> timedelta:
    """How long the Job stays; nothing or less: it is to go (A24.2).

    Differences only: the sum of a time in the year 9999 and some years is none.
    """
    ttl = timedelta(seconds=job.spec.ttl_seconds_after_finished or 0)
    return (finished - now) + ttl


def _terminal_condition(job: Job) -> Condition | None:
    for each in job.status.conditions or ():
        if each.type in _TERMINAL and each.status == "True":
            return each
    return None
