# SPDX-License-Identifier: Apache-2.0
"""Whether a Job is over, and why (behaviour A4.11, A6, A12, A13, A17).

The first matching reason is recorded, and a recorded reason stays. `accounting` writes the
reason, in two steps.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from refloat.api import index_intervals, times
from refloat.api.batch import Job, JobStatus
from refloat.policy.job import backoff, job_conditions, pod_failure, success_policy
from refloat.policy.job.observed import ObservedJob, uncounted

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
        """The condition that announces how the Job will end."""
        if self.succeeded:
            return job_conditions.SUCCESS_CRITERIA_MET
        return job_conditions.FAILURE_TARGET

    @property
    def terminal(self) -> str:
        """The condition of a Job that has ended."""
        return job_conditions.COMPLETE if self.succeeded else job_conditions.FAILED


def _failure(reason: str) -> Outcome:
    return Outcome(succeeded=False, reason=reason, message=job_conditions.MESSAGES[reason])


def decide(observed: ObservedJob, now: datetime) -> Outcome | None:
    """Why the Job is over although pods may run, which are then deleted."""
    recorded = job_conditions.decision(observed.job.status.conditions)
    if recorded is not None:
        succeeded = recorded.type == job_conditions.SUCCESS_CRITERIA_MET
        return Outcome(succeeded, recorded.reason, recorded.message, recorded=True)
    failure = _pod_failure(observed) or _limits(observed, now)
    if failure is not None or not observed.spec.indexed:
        return failure
    rule = success_policy.matching_rule(
        observed.job.spec.success_policy, observed.spec.completions or 0, observed.succeeded_indexes
    )
    if rule is None:
        return None
    return Outcome(
        succeeded=True,
        reason=job_conditions.SUCCESS_POLICY,
        message=success_policy.message(rule),
    )


def completed(observed: ObservedJob, *, active: int) -> Outcome | None:
    """Whether the work is done, given how many pods are active still (A6, A7.1)."""
    completions = observed.spec.completions
    enough = observed.succeeded > 0 if completions is None else observed.succeeded >= completions
    if not enough or active > 0:
        return None
    reason = job_conditions.COMPLETIONS_REACHED
    return Outcome(succeeded=True, reason=reason, message=job_conditions.MESSAGES[reason])


def _pod_failure(observed: ObservedJob) -> Outcome | None:
    """The first pod for which the policy fails the whole Job (A15.8).

    A pod that is listed as a failure was judged before it was listed: FailureTarget would exist. Or
    the gate was off, and then the count stays.
    """
    if not observed.spec.matcher.may_fail_job:
        return None
    failed_uids = frozenset(uncounted(observed.job).failed or ())
    for pod in observed.pods:
        if not observed.spec.fails(pod) or pod.metadata.uid in failed_uids:
            continue
        verdict = observed.verdict(pod)
        if verdict.fails_job:
            return Outcome(
                succeeded=False, reason=_REASONS[verdict.action], message=verdict.message
            )
    return None


def _limits(observed: ObservedJob, now: datetime) -> Outcome | None:
    spec = observed.spec
    if backoff.exceeds_limit(observed.failed, spec.backoff_limit) or (
        spec.restarts_containers
        and backoff.exceeds_limit_by_restarts(observed.pods, spec.backoff_limit)
    ):
        return _failure(job_conditions.BACKOFF_LIMIT_EXCEEDED)
    remaining = deadline_remaining(observed.job, now)
    if remaining is not None and remaining <= ZERO:
        return _failure(job_conditions.DEADLINE_EXCEEDED)
    if observed.failed_indexes is None:
        return None
    failed = index_intervals.count(observed.failed_indexes)
    if backoff.exceeds_failed_indexes(failed, spec.max_failed_indexes):
        return _failure(job_conditions.MAX_FAILED_INDEXES_EXCEEDED)
    if failed > 0 and failed + observed.succeeded >= (spec.completions or 0):
        return _failure(job_conditions.FAILED_INDEXES)
    return None


# -- times ------------------------------------------------------------------------


def start_time(job: Job, now: datetime) -> str | None:
    """When the Job started: now, if it had not and is not suspended (A4.10)."""
    if job.status.start_time is None and not job.spec.suspend:
        return times.format_time(now)
    return job.status.start_time


def deadline_remaining(job: Job, now: datetime) -> timedelta | None:
    """How long the Job may still be active; None without a deadline (A13)."""
    seconds = job.spec.active_deadline_seconds
    started = start_time(job, now)
    if seconds is None or started is None or job.spec.suspend:
        return None
    return times.span(seconds) - (now - times.parse(started))


# -- events at the end -------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the Job (A22)."""

    type: str
    reason: str
    message: str


def announcements(job: Job, status: JobStatus, outcome: Outcome) -> list[JobEvent]:
    """The events after the write of the terminal condition, in this order."""
    if not outcome.succeeded:
        return [JobEvent("Warning", outcome.reason, outcome.message)]
    events = [JobEvent("Normal", "Completed", "Job completed")]
    if job.spec.completions is not None and status.succeeded > job.spec.completions:
        events.insert(
            0,
            JobEvent(
                "Warning",
                "TooManySucceededPods",
                "Too many succeeded pods running after completion count reached",
            ),
        )
    return events
