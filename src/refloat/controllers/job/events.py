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


class Teller:
    """Tells of one Job."""

    def __init__(self, sink: Sink, job: Job) -> None:
        self._sink = sink
        self._job = job
        self._about = Reference.of(kinds.JOBS, job)

    def created(self, pod: str) -> None:
        self._tell("Normal", "SuccessfulCreate", "Create", f"Created pod: {pod}")

    def not_created(self, name: str, prefix: str, error: Exception) -> None:
        """Refusals name what was asked for, which in Kubernetes is only a prefix."""
        told = str(error).replace(f'"{name}"', f'"{prefix}"')
        self._tell("Warning", "FailedCreate", "Create", f"Error creating: {told}")

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
