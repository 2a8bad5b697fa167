# SPDX-License-Identifier: Apache-2.0
"""Jobs that are being deleted, have finished, or are about to end."""

from collections.abc import Sequence
from datetime import timedelta

from refloat.api import structs
from refloat.api.core import Pod
from refloat.api.structs import Condition
from refloat.explain import job_blockers, job_failures, job_start
from refloat.explain.codes import Cause, Code
from refloat.explain.explanation import (
    JOB_CONTROLLER,
    Attempt,
    Command,
    Finding,
    NextStep,
    count,
)
from refloat.explain.job_view import JobView
from refloat.policy.job import job_conditions, outcome, ttl

# Pods in a bad state that a verdict names; `evidence` has the others.
MAX_NAMED = 3


def deleting(view: JobView) -> Finding | None:
    if view.job.metadata.deletion_timestamp is None:
        return None
    finalizers = [
        each
        for each in view.job.metadata.finalizers or ()
        if each not in ("foregroundDeletion", "orphan")
    ]
    if finalizers:
        text = f"Job {view.name} is being deleted; the finalizers {', '.join(finalizers)} keep it"
        remove = Command(
            "if their owner is gone, remove the finalizers",
            f"kubectl patch job {view.name} -n {view.namespace} --type=merge"
            """ -p '{"metadata":{"finalizers":null}}'""",
        )
        step = NextStep("the owner of the finalizers removes them")
        return Finding(Code.DELETING_FINALIZERS, text, (step,), (remove,))
    blocked = job_blockers.findings(view)
    left = count(len(view.pods), "pod")
    text = f"Job {view.name} is being deleted after its pods ({left} left)"
    step = NextStep("removes the Job after its pods", "the garbage collector")
    return job_blockers.add_to(Finding(Code.DELETING, text, (step,)), blocked)


def finished(view: JobView, rows: Sequence[Attempt]) -> Finding | None:
    conditions = view.job.status.conditions
    complete = structs.find(conditions, job_conditions.COMPLETE)
    if complete is not None and complete.status == "True":
        return _complete(view, complete)
    failed = structs.find(conditions, job_conditions.FAILED)
    if failed is not None and failed.status == "True":
        return _failed(view, failed, rows)
    return None


def _complete(view: JobView, condition: Condition) -> Finding:
    code, why = Code.COMPLETE, "all its work is done"
    if condition.reason == job_conditions.SUCCESS_POLICY:
        code, why = Code.SUCCESS_POLICY, f"its success policy was met ({condition.message})"
    if condition.reason not in (job_conditions.SUCCESS_POLICY, job_conditions.COMPLETIONS_REACHED):
        why = condition.message or why
    text = f"Job {view.name} succeeded: {why}; {count(view.job.status.succeeded, 'pod')} succeeded"
    return Finding(code, text, _expiry(view))


_FAILURES = {
    job_conditions.POD_FAILURE_POLICY: Code.RULE,
    job_conditions.BACKOFF_POLICY: Code.RULE,
    job_conditions.BACKOFF_LIMIT_EXCEEDED: Code.BACKOFF_LIMIT,
    job_conditions.DEADLINE_EXCEEDED: Code.DEADLINE,
    job_conditions.FAILED_INDEXES: Code.FAILED_INDEXES,
    job_conditions.MAX_FAILED_INDEXES_EXCEEDED: Code.MAX_FAILED_INDEXES,
}


def _failed(view: JobView, condition: Condition, rows: Sequence[Attempt]) -> Finding:
    code = _FAILURES.get(condition.reason, Code.FAILED_OTHER)
    spec, status, last = view.observed.spec, view.job.status, job_failures.last_failure(rows)
    example = f"; the last: pod {last.pod}, {last.how}" if last is not None else ""
    indexes = _indexes(status.failed_indexes or "")
    why = f"{condition.reason}: {condition.message}"
    if code == Code.BACKOFF_LIMIT:
        bound = spec.backoff_limit
        why = f"{count(status.failed, 'pod')} failed, and backoffLimit is {bound}{example}"
        if spec.restarts_containers and status.failed <= bound:
            why = f"its containers were restarted too often for backoffLimit {bound}{example}"
    elif code == Code.DEADLINE:
        seconds = view.job.spec.active_deadline_seconds
        why = f"it was active for longer than activeDeadlineSeconds ({seconds} s)"
        if not rows and (refusal := job_start.refused(view)) is not None:
            why += f"; {refusal.verdict}"
    elif code == Code.FAILED_INDEXES:
        why = f"{indexes} failed{example}"
    elif code == Code.MAX_FAILED_INDEXES:
        limit = view.job.spec.max_failed_indexes
        why = f"{indexes} failed, and maxFailedIndexes is {limit}{example}"
    elif code == Code.RULE:
        # The rule's own message, and out of memory or a signal where the pod shows it.
        why = condition.message
        pod = next((row for row in rows if f"/{row.pod} " in why), None)
        if pod is not None and pod.cause in (Cause.OOM, Cause.SIGNAL, Cause.START_ERROR):
            why += f" ({pod.how})"
    again = Command(
        "when the cause is removed, apply the Job again under a new name",
        f"kubectl get job {view.name} -n {view.namespace} -o yaml",
    )
    commands = (*job_failures.log_of_last(view, rows), again)
    return Finding(code, f"Job {view.name} failed: {why}", _expiry(view), commands)


def _expiry(view: JobView) -> tuple[NextStep, ...]:
    finished = ttl.finished_at(view.job)
    if not ttl.applies(view.job) or finished is None:
        return (NextStep("nothing: the Job stays until a person deletes it"),)
    left = ttl.remaining(view.job, finished, view.context.now)
    text = "deletes the Job and its pods (ttlSecondsAfterFinished)"
    return (NextStep(text, "the TTL controller", view.context.now + max(left, timedelta(0))),)


def ending(view: JobView) -> Finding | None:
    """FailureTarget or SuccessCriteriaMet is written, and the last pods have not ended."""
    recorded = outcome.decide(view.observed, view.context.now)
    if recorded is None or not recorded.recorded:
        return None
    left = [pod for pod in view.pods if not pod.is_terminal]
    how = "succeeded" if recorded.succeeded else "failed"
    reason = f"{recorded.reason}: {recorded.message}"
    if not left:
        step = NextStep(f"writes the condition {recorded.terminal}", JOB_CONTROLLER)
        text = f"Job {view.name} has {how} ({reason}) and is about to end"
        return Finding(Code.DECIDED, text, (step,))
    code = Code.SUCCEEDING if recorded.succeeded else Code.FAILING
    text = f"Job {view.name} has {how} ({reason}) and waits for the end of {_pods(left)}"
    step = NextStep(f"writes the condition {recorded.terminal} when they have", JOB_CONTROLLER)
    return job_blockers.add_to(Finding(code, text, (step,)), job_blockers.findings(view))


def decided(view: JobView, decided: outcome.Outcome) -> Finding:
    how = "succeeds" if decided.succeeded else "fails"
    text = f"Job {view.name} {how} now ({decided.reason}: {decided.message})"
    step = NextStep(f"ends the Job: condition {decided.terminal}", JOB_CONTROLLER)
    return Finding(Code.DECIDED, text, (step,))


def _pods(pods: Sequence[Pod]) -> str:
    names = ", ".join(pod.metadata.name for pod in pods[:MAX_NAMED])
    more = len(pods) - MAX_NAMED
    if len(pods) == 1:
        return f"pod {names}"
    return f"the pods {names} and {more} more" if more > 0 else f"the pods {names}"


def _indexes(ranges: str) -> str:
    return f"index {ranges}" if ranges.isdigit() else f"the indexes {ranges}"
