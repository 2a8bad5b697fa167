# SPDX-License-Identifier: Apache-2.0
"""What is told about a Job, word for word as Kubernetes tells it (behaviour A22)."""

from collections.abc import Sequence
from typing import cast

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.structs import Conditions, find
from refloat.client import kinds
from refloat.controllers.job import attempts
from refloat.policy import job_conditions, outcome
from refloat.policy.outcome import Outcome
from refloat.policy.pod_failure import Verdict
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

# How refusals begin that come before Kubernetes has generated a name: from
# NamespaceLifecycle, Priority, ServiceAccount, RuntimeClass and
# PodTolerationRestriction, which change pods. All others come after it.
_BEFORE_THE_NAME = (
    "unable to create new content in namespace ",
    "no PriorityClass with name ",
    "the integer value of priority ",
    "the string value of PreemptionPolicy ",
    "error looking up service account ",
    "no service account specified ",
    "pod rejected: ",
    "conflict: runtimeClass.",
    "pod tolerations ",
)


class Teller:
    """Tells of one Job."""

    def __init__(self, sink: Sink, job: Job) -> None:
        self._sink = sink
        self._job = job
        self._about = Reference.of(kinds.JOBS, job)

    def created(self, pod: str) -> None:
        self._tell("Normal", "SuccessfulCreate", "Create", f"Created pod: {pod}")

    def not_created(self, name: str, prefix: str, error: Exception) -> None:
        """Refusals name the pod; in Kubernetes only its prefix before it has a name."""
        what, forbidden, why = str(error).partition(" is forbidden: ")
        if why.startswith(_BEFORE_THE_NAME):
            what = what.replace(f'"{name}"', f'"{prefix}"')
        told = f"Error creating: {what}{forbidden}{why}"
        self._tell("Warning", "FailedCreate", "Create", told)

    def deleted(self, pod: str) -> None:
        self._tell("Normal", "SuccessfulDelete", "Delete", f"Deleted pod: {pod}")

    def not_deleted(self, error: Exception) -> None:
        self._tell("Warning", "FailedDelete", "Delete", f"Error deleting: {error}")

    def unknown_mode(self) -> None:
        note = "Skipped Job sync because completion mode is unknown"
        self._tell("Warning", "UnknownCompletionMode", "Sync", note)

    def wrong_policy(self, mistakes: Sequence[str]) -> None:
        note = f"Skipped Job sync because its backoff policy is wrong: {'; '.join(mistakes)}"
        self._tell("Warning", "InvalidBackoffPolicy", "Sync", note)

    def judged(self, judged: Sequence[tuple[Pod, Verdict]]) -> None:
        """What was decided about failed pods, which Kubernetes does not tell.

        Also that no rule matched, or that there is no policy: then it counts.
        Whoever fails the whole Job is told of by `ended`, in Kubernetes' words.
        """
        others = [(pod, said) for pod, said in judged if not said.fails_job]
        for note in attempts.notes(others):
            self._tell("Normal", "PodFailureJudged", "Sync", note)

    def suspension(self, before: Conditions, after: Conditions) -> None:
        """That the Job was suspended or resumed, if it was."""
        old = find(before, job_conditions.SUSPENDED)
        new = find(after, job_conditions.SUSPENDED)
        if new is None or new == old:
            return
        reason = "Suspended" if new.status == "True" else "Resumed"
        self._tell("Normal", reason, "Sync", new.message)

    def ended(self, status: JobStatus, decided: Outcome) -> None:
        for each in outcome.announcements(self._job, status, decided):
            self._tell(cast("EventType", each.type), each.reason, "Sync", each.message)

    def _tell(self, kind: EventType, reason: str, action: str, note: str) -> None:
        self._sink.event(self._about, kind, reason, action, note)
