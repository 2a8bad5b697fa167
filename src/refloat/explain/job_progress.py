# SPDX-License-Identifier: Apache-2.0
"""Jobs that go on: pods run, start, wait for a back-off or for pods that are being deleted."""

from collections.abc import Sequence
from dataclasses import replace

from refloat.explain import job_blockers, job_failures, job_start
from refloat.explain import pod as pods_of
from refloat.explain.codes import Code
from refloat.explain.explanation import JOB_CONTROLLER, Attempt, Finding, NextStep, count
from refloat.explain.job_view import JobView
from refloat.policy.job import outcome, pod_failure, pod_replacement, pod_state
from refloat.policy.job.scaling import PodPlan


def scaling_down(view: JobView, plan: PodPlan) -> Finding:
    number = len(plan.delete)
    text = f"Job {view.name} has {count(number, 'pod')} more than it needs"
    step = NextStep(f"deletes {count(number, 'pod')}", JOB_CONTROLLER)
    return Finding(Code.SCALING_DOWN, text, (step,))


def backing_off(view: JobView, plan: PodPlan, rows: Sequence[Attempt]) -> Finding:
    last = job_failures.last_failure(rows)
    how = f"; the last: pod {last.pod}, {last.how}" if last is not None else ""
    failures = view.observed.record.failures
    step = NextStep("creates the next pod", JOB_CONTROLLER, view.context.now + plan.wait)
    log = tuple(job_failures.log_of_last(view, rows))
    if (loop := job_failures.ignore_loop(view, rows)) is not None:
        return replace(loop, next=(step,), commands=(*log, *loop.commands))
    if view.observed.spec.backoff_limit_per_index is not None:
        what = "an index failed, and its next pod has to wait"
    else:
        what = (
            f"{count(failures, 'pod')} failed since the last success, and the next pod has to wait"
        )
    text = f"Job {view.name} backs off: {what}{how}"
    return Finding(Code.BACK_OFF, text, (step,), log)


def creating(view: JobView, plan: PodPlan) -> Finding:
    if (refusal := job_start.refused(view)) is not None:
        return refusal
    number = len(plan.create)
    text = f"Job {view.name} lacks {count(number, 'pod')}"
    step = NextStep(f"creates {count(number, 'pod')}", JOB_CONTROLLER)
    finding = Finding(Code.CREATING_PODS, text, (step,))
    blocked = job_blockers.findings(view)
    return job_blockers.add_to(finding, blocked) if blocked else finding


def waiting_for_terminating(view: JobView) -> Finding | None:
    """Terminating pods hold the places of their replacements."""
    observed, spec = view.observed, view.observed.spec
    if not observed.terminating or not spec.waits:
        return None
    desired = pod_replacement.desired_active(
        parallelism=spec.parallelism,
        completions=spec.completions,
        succeeded=observed.succeeded,
        active=len(observed.active),
    )
    if desired <= len(observed.active):
        return None
    blocked = job_blockers.findings(view)
    worst = blocked[0]
    number = len(observed.terminating)
    which = f"{number} deleted pods" if number > 1 else "a deleted pod"
    reason = "podReplacementPolicy is Failed"
    if pod_failure.effective(view.job.spec, spec.job_gates) is not None:
        reason = "Jobs with a podFailurePolicy replace a pod only after its end"
    text = f"Job {view.name} waits for {which} ({reason}): {worst.verdict}"
    after = NextStep("creates the replacement when the pod has ended", JOB_CONTROLLER)
    return replace(worst, verdict=text, next=(*worst.next, after))


_HEALTHY = frozenset((Code.RUNNING, Code.CREATING, Code.IMAGE_PULLING, Code.INIT))


def active(view: JobView, rows: Sequence[Attempt]) -> Finding:
    findings = [pods_of.active(pod, view.context) for pod in view.observed.active]
    number = len(findings)
    if not findings:
        return _idle(view)
    if troubled := [each.code for each in findings if each.code not in _HEALTHY]:
        # The state that most of the troubled pods have; the earliest pod speaks for all.
        code = max(troubled, key=lambda code: (code == Code.NODE_LOST, troubled.count(code)))
        worst = next(each for each in findings if each.code == code)
        if number == 1:
            return worst
        pods = f"{troubled.count(code)} of {number} active pods"
        return replace(worst, verdict=f"{pods} of Job {view.name}: {worst.verdict}")
    if (loop := job_failures.ignore_loop(view, rows)) is not None:
        return loop
    starting = [each for each in findings if each.code != Code.RUNNING]
    if starting:
        first = starting[0]
        text = f"{len(starting)} of {number} pods of Job {view.name} start: {first.verdict}"
        return replace(first, verdict=text)
    done, completions = view.observed.succeeded, view.job.spec.completions
    total = f" of {completions}" if completions is not None else ""
    text = f"Job {view.name} runs {count(number, 'pod')}; {done}{total} completions are reached"
    steps = _deadline(view)
    waiting = 0 if completions is None else completions - done - number
    if waiting > 0:
        text += f", and {waiting} wait because parallelism is {view.observed.spec.parallelism}"
        after = NextStep("creates the next pod when one has ended", JOB_CONTROLLER)
        return Finding(Code.PARALLELISM, text, (after, *steps))
    return Finding(Code.RUNNING, text, steps)


def _idle(view: JobView) -> Finding:
    if view.observed.spec.parallelism == 0:
        text = f"Job {view.name} has parallelism 0, so it creates no pods"
        return Finding(Code.PARALLELISM, text)
    uncounted = sum(pod_state.is_tracked(pod) and pod.is_terminal for pod in view.pods)
    text = f"{count(uncounted, 'ended pod')} of Job {view.name} wait to be counted"
    step = NextStep("counts them", JOB_CONTROLLER)
    return Finding(Code.UNCOUNTED, text, (step,))


def _deadline(view: JobView) -> tuple[NextStep, ...]:
    left = outcome.deadline_remaining(view.job, view.context.now)
    if left is None:
        return ()
    text = "fails the Job if it is still active (activeDeadlineSeconds)"
    return (NextStep(text, JOB_CONTROLLER, view.context.now + left),)
