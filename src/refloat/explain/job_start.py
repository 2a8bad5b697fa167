# SPDX-License-Identifier: Apache-2.0
"""Jobs without pods: no controller acts, they are suspended, or their pods are refused."""

import re

from refloat.explain import explain_context
from refloat.explain.codes import Code
from refloat.explain.explanation import JOB_CONTROLLER, Command, Finding, NextStep
from refloat.explain.job_view import JobView

STOCK_CONTROLLER = "kubernetes.io/job-controller"


REFLOAT_CONTROLLER = "refloat.dev/job-controller"


QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


# Exceeded; a limit or request is missing that the quota demands; or nothing has counted yet.
_QUOTA = re.compile("(exceeded|failed|unknown for) quota")

# A Job controller that has not acted on a new Job after so many seconds is missing.
PATIENCE_SECONDS = 15


def not_managed(view: JobView) -> Finding | None:
    """No controller acts: nothing in the status says that one has."""
    manager = view.job.spec.managed_by or STOCK_CONTROLLER
    if view.job.status.start_time is not None or view.pods or view.job.status.conditions:
        return None
    if (refusal := refused(view)) is not None:
        return refusal
    if manager == REFLOAT_CONTROLLER:
        outlook = view.context.job_control
        if outlook.configuration is not None:
            return None
        start = Command("start Refloat's controllers", "refloat manager")
        text = f"Job {view.name} is to be run by Refloat (managedBy); {outlook.text}"
        return Finding(Code.OTHER_CONTROLLER, text, (), (start,))
    if manager != STOCK_CONTROLLER:
        text = f"Job {view.name} is managed by {manager}, which has not acted on it"
        find = Command(f"check that the controller {manager} is installed and runs")
        return Finding(Code.OTHER_CONTROLLER, text, (), (find,))
    if view.observed.spec.suspended:
        return None
    if view.age_seconds <= PATIENCE_SECONDS:
        step = NextStep("creates the first pods", JOB_CONTROLLER)
        return Finding(Code.NEW, f"Job {view.name} was just created", (step,))
    text = f"no Job controller has acted on Job {view.name}"
    find = Command(
        "check that kube-controller-manager runs",
        "kubectl get pods -n kube-system -l component=kube-controller-manager",
    )
    return Finding(Code.NO_CONTROLLER, text, (), (find,))


def suspended(view: JobView) -> Finding:
    queue = (view.job.metadata.labels or {}).get(QUEUE_LABEL)
    ending = len(view.observed.active) + len(view.observed.terminating)
    rest = f"; {ending} of its pods still end" if ending else ""
    if queue:
        text = f"Job {view.name} waits in the queue {queue} until Kueue admits it{rest}"
        look = Command("see why", f"kubectl describe workload -n {view.namespace}")
        return Finding(Code.SUSPENDED_QUEUED, text, (NextStep("resumes it", "Kueue"),), (look,))
    text = f"Job {view.name} is suspended{rest}"
    resume = Command(
        "resume it",
        f"kubectl patch job {view.name} -n {view.namespace} --type=merge"
        """ -p '{"spec":{"suspend":false}}'""",
    )
    step = NextStep("nothing, until spec.suspend is false")
    return Finding(Code.SUSPENDED, text, (step,), (resume,))


def refused(view: JobView) -> Finding | None:
    """The last event of the Job is a refusal of its pods."""
    events = view.context.events_of("Job", view.job)
    if events and events[-1].reason == "InvalidBackoffPolicy":
        return Finding(Code.WRONG_POLICY, f"Job {view.name}: {events[-1].note}")
    refusals = [each for each in events if each.reason == "FailedCreate"]
    created = [each for each in events if each.reason == "SuccessfulCreate"]
    if not refusals:
        return None
    last = refusals[-1]
    if created and explain_context.last_seen(created[-1]) > explain_context.last_seen(last):
        return None
    note = " ".join(last.note.split()).removeprefix("Error creating: ")
    step = NextStep("tries again, with growing pauses", JOB_CONTROLLER)
    start = f"the pods of Job {view.name} are refused:"
    if _QUOTA.search(note):
        look = Command("see the quota", f"kubectl describe quota -n {view.namespace}")
        return Finding(Code.QUOTA, f"{start} {note}", (step,), (look,))
    if "admission webhook" in note or "failed calling webhook" in note:
        look = Command(
            "see the webhooks",
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
        )
        return Finding(Code.WEBHOOK, f"{start} {note}", (step,), (look,))
    commands = tuple(
        Command(f"see the {kind}", f"kubectl get {plural}")
        for word, kind, plural in (
            ("PriorityClass", "PriorityClasses", "priorityclasses"),
            ("RuntimeClass", "RuntimeClasses", "runtimeclasses"),
            (" per Container", "LimitRanges", f"limitranges -n {view.namespace} -o yaml"),
            (" per Pod", "LimitRanges", f"limitranges -n {view.namespace} -o yaml"),
            ("serviceaccount", "ServiceAccounts", f"serviceaccounts -n {view.namespace}"),
        )
        if word in note
    )
    return Finding(Code.ADMISSION, f"{start} {note}", (step,), commands)
