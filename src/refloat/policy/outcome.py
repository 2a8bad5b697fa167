# SPDX-License-Identifier: Apache-2.0
"""Is a Job over, and why (behaviour A4.11, A6, A12, A13, A17).

The first reason that holds is the one that is recorded, and what was recorded
once stands. Writing it down, in two steps, is done by `accounting`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from refloat.api import intervals, structs, times
from refloat.api.batch import Job, JobStatus
from refloat.policy import backoff, job_conditions, pod_failure, success_policy
from refloat.policy import census as policy_census
from refloat.policy.census import Census

ZERO = timedelta(0)

# Why a Job fails, by the action that fails it.
_REASONS = {
    pod_failure.FAIL_JOB: job_conditions.POD_FAILURE_POLICY,
    pod_failure.TERMINATE: job_conditions.BACKOFF_POLICY,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a Job ends."""

    succeeded: bool
    reason: str
    message: str
    recorded: bool = False
    """Whether the interim condition is in the status already."""

    @property
    def interim(self) -> str:
        """The condition that says how the Job will end."""
        if self.succeeded:
            return job_conditions.SUCCESS_CRITERIA_MET
        return job_conditions.FAILURE_TARGET

    @property
    def terminal(self) -> str:
        """The condition that says that it has ended."""
        return job_conditions.COMPLETE if self.succeeded else job_conditions.FAILED


def _failure(reason: str) -> Outcome:
    return Outcome(succeeded=False, reason=reason, message=job_conditions.MESSAGES[reason])


def decide(census: Census, now: datetime) -> Outcome | None:
    """Why the Job is over although pods may be running; they are to be deleted then."""
    return (
        _recorded(census)
        or _pod_failure(census)
        or _limits(census, now)
        or _failed_indexes(census)
        or _success_policy(census)
    )


def completed(census: Census, *, active: int) -> Outcome | None:
    """Whether the work is done, given how many pods are active still (A6, A7.1)."""
    wanted = census.terms.completions
    enough = census.succeeded > 0 if wanted is None else census.succeeded >= wanted
    if not enough or active > 0:
        return None
    reason = job_conditions.COMPLETIONS_REACHED
    return Outcome(succeeded=True, reason=reason, message=job_conditions.MESSAGES[reason])


def _recorded(census: Census) -> Outcome | None:
    conditions = census.job.status.conditions
    for kind in (job_conditions.SUCCESS_CRITERIA_MET, job_conditions.FAILURE_TARGET):
        found = structs.find(conditions, kind)
        if found is not None and found.status == "True":
            succeeded = kind == job_conditions.SUCCESS_CRITERIA_MET
            return Outcome(succeeded, found.reason, found.message, recorded=True)
    return None


def _pod_failure(census: Census) -> Outcome | None:
    """The first pod that the policy fails the whole Job for (A15.8).

    One that is listed as a failure was judged before it was: FailureTarget
    would be there. Or the gate was off, and what counted then stays.
    """
    if not census.terms.judge.may_fail_job:
        return None
    listed = frozenset(policy_census.uncounted(census.job).failed or ())
    for pod in census.pods:
        if not census.terms.fails(pod) or pod.metadata.uid in listed:
            continue
        verdict = census.verdict(pod)
        if verdict.fails_job:
            return Outcome(
                succeeded=False, reason=_REASONS[verdict.action], message=verdict.message
            )
    return None


def _limits(census: Census, now: datetime) -> Outcome | None:
    terms = census.terms
    if backoff.exceeds_limit(census.failed, terms.backoff_limit) or (
        terms.restarts_containers
        and backoff.exceeds_limit_by_restarts(census.pods, terms.backoff_limit)
    ):
        return _failure(job_conditions.BACKOFF_LIMIT_EXCEEDED)
    left = deadline_remaining(census.job, now)
    if left is not None and left <= ZERO:
        return _failure(job_conditions.DEADLINE_EXCEEDED)
    return None


def _failed_indexes(census: Census) -> Outcome | None:
    if census.failed_indexes is None:
        return None
    failed = intervals.count(census.failed_indexes)
    if backoff.exceeds_failed_indexes(failed, census.terms.max_failed_indexes):
        return _failure(job_conditions.MAX_FAILED_INDEXES_EXCEEDED)
    if failed > 0 and failed + census.succeeded >= (census.terms.completions or 0):
        return _failure(job_conditions.FAILED_INDEXES)
    return None


def _success_policy(census: Census) -> Outcome | None:
    if not census.terms.indexed:
        return None
    rule = success_policy.matching_rule(
        census.job.spec.success_policy, census.terms.completions or 0, census.succeeded_indexes
    )
    if rule is None:
        return None
    return Outcome(
        succeeded=True,
        reason=job_conditions.SUCCESS_POLICY,
        message=success_policy.message(rule),
    )


# -- times ------------------------------------------------------------------------


def start_time(job: Job, now: datetime) -> str | None:
    """When the Job started: now, if it had not and is not suspended (A4.10)."""
    if job.status.start_time is None and not job.spec.suspend:
        return times.format_time(now)
    return job.status.start_time


def deadline_remaining(job: Job, now: datetime) -> timedelta | None:
    """How long the Job may be active still; None without a deadline (A13)."""
    seconds = job.spec.active_deadline_seconds
    started = start_time(job, now)
    if seconds is None or started is None or job.spec.suspend:
        return None
    return times.span(seconds) - (now - times.parse(started))


# -- what is told when it is over -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event on the Job (A22)."""

    type: str
    reason: str
    message: str


def announcements(job: Job, status: JobStatus, outcome: Outcome) -> list[Announcement]:
    """What is told once the terminal condition is written, in this order."""
    if not outcome.succeeded:
        return [Announcement("Warning", outcome.reason, outcome.message)]
    told = [Announcement("Normal", "Completed", "Job completed")]
    if job.spec.completions is not None and status.succeeded > job.spec.completions:
        told.insert(
            0,
            Announcement(
                "Warning",
                "TooManySucceededPods",
                "Too many succeeded pods running after completion count reached",
            ),
        )
    return told
