# SPDX-License-Identifier: Apache-2.0
"""The state of a Job, what happens next, and what a user can do.

The decisions are those of the Job controller: `policy.job` observes the Job and its pods,
decides its end, and plans its pods. `explain` reads the decision and names the component
that carries it out.
"""

from collections.abc import Sequence
from dataclasses import replace

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.explain import (
    codes,
    explain_context,
    gone_attempts,
    job_attempts,
    job_end,
    job_progress,
    job_start,
)
from refloat.explain.explain_context import ExplainContext
from refloat.explain.explanation import Attempt, Evidence, Explanation, Finding
from refloat.explain.job_view import JobView
from refloat.policy.job import outcome, scaling

# Failures that the Job counted and of which nothing is left.
_LOST_POD = "1 failed pod is gone, and no record says how it ended"
_LOST_PODS = "%d failed pods are gone, and no record says how they ended"


def explain(
    job: Job, pods: Sequence[Pod], context: ExplainContext, limits: Sequence[str] = ()
) -> Explanation:
    view = JobView.of(job, pods, context)
    rows = job_attempts.rows(job, pods, view.observed, view.context)
    uncounted = job.status.failed - sum(1 for row in rows if row.counted)
    gone = gone_attempts.rows(job, pods, context, uncounted)
    rows = job_attempts.numbered((*rows, *gone))
    finding = state(view, rows)
    source, status = f"job/{job.metadata.name}", job.status
    counts = f"active {status.active}, succeeded {status.succeeded}, failed {status.failed}"
    if status.terminating:
        counts += f", terminating {status.terminating}"
    evidence = (
        Evidence(f"{source} status", counts),
        *(
            Evidence(f"{source} condition {each.type}", f"{each.reason}: {each.message}")
            for each in status.conditions or ()
            if each.status == "True"
        ),
        *finding.evidence,
        *explain_context.event_evidence(context.events_of("Job", job), context.now),
    )
    missing = job.status.failed - sum(1 for row in rows if row.counted)
    lost = [_LOST_POD] if missing == 1 else [_LOST_PODS % missing] if missing > 1 else []
    finding = replace(finding, evidence=tuple(dict.fromkeys(evidence)))
    return Explanation(
        "Job",
        job.metadata.namespace,
        job.metadata.name,
        context.now,
        finding,
        rows,
        job_attempts.budget(view.observed, ends=finding.code in codes.ENDED),
        (*limits, *lost),
    )


def state(view: JobView, rows: Sequence[Attempt]) -> Finding:
    """The first rung that applies is the state of the Job."""
    finding = (
        job_end.deleting(view)
        or job_end.finished(view, rows)
        or job_end.ending(view)
        or job_start.not_managed(view)
    )
    if finding is not None:
        return finding
    if view.observed.spec.suspended:
        return job_start.suspended(view)
    decided = outcome.decide(view.observed, view.context.now)
    if decided is None:
        decided = outcome.completed(view.observed, active=len(view.observed.active))
    if decided is not None:
        return job_end.decided(view, decided)
    settings = scaling.ScalingSettings(delays=view.context.job_control.delays)
    plan = scaling.plan(view.observed, view.context.now, settings)
    if plan.delete:
        return job_progress.scaling_down(view, plan)
    if plan.wait:
        return job_progress.backing_off(view, plan, rows)
    if plan.create:
        return job_progress.creating(view, plan)
    return job_progress.waiting_for_terminating(view) or job_progress.active(view, rows)
