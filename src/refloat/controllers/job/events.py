# SPDX-License-Identifier: Apache-2.0
"""The events of a Job, in the exact words of Kubernetes (behaviour A22)."""

from collections.abc import Sequence
from typing import cast

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.api.structs import Conditions, find
from refloat.client import kinds
from refloat.policy.job import attempts, job_conditions, outcome
from refloat.policy.job.outcome import Outcome
from refloat.policy.job.pod_failure import Verdict
from refloat.runtime.event_series import EventType, Reference
from refloat.runtime.recorder import Sink

# Prefixes of refusals that Kubernetes returns before the name is generated, by the plugins that
# change pods: NamespaceLifecycle, Priority, ServiceAccount, RuntimeClass and
# PodTolerationRestriction. All other refusals come later.
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


class JobEvents:
    """Sends the events of one Job."""

    def __init__(self, sink: Sink, job: Job) -> None:
        self._sink = sink
        self._job = job
        self._about = Reference.of(kinds.JOBS, job)

    def created(self, pod: str) -> None:
        self._send("Normal", "SuccessfulCreate", "Create", f"Created pod: {pod}")

    def not_created(self, name: str, prefix: str, error: Exception) -> None:
        """Report a refused pod; refusals before naming have only the name's prefix."""
        what, forbidden, why = str(error).partition(" is forbidden: ")
        if why.startswith(_BEFORE_THE_NAME):
            what = what.replace(f'"{name}"', f'"{prefix}"')
        note = f"Error creating: {what}{forbidden}{why}"
        self._send("Warning", "FailedCreate", "Create", note)

    def deleted(self, pod: str) -> None:
        self._send("Normal", "SuccessfulDelete", "Delete", f"Deleted pod: {pod}")

    def not_deleted(self, error: Exception) -> None:
        self._send("Warning", "FailedDelete", "Delete", f"Error deleting: {error}")

    def unknown_mode(self) -> None:
        note = "Skipped Job sync because completion mode is unknown"
        self._send("Warning", "UnknownCompletionMode", "Sync", note)

    def wrong_policy(self, mistakes: Sequence[str]) -> None:
        note = f"Skipped Job sync because its backoff policy is wrong: {'; '.join(mistakes)}"
        self._send("Warning", "InvalidBackoffPolicy", "Sync", note)

    def judged(self, failures: Sequence[tuple[Pod, Verdict]]) -> None:
        """Report the decisions on failed pods, which Kubernetes does not report.

        A failure that no rule matched is reported too: it counts. A pod that fails the whole Job
        is reported by `ended`, in the words of Kubernetes.
        """
        others = [(pod, verdict) for pod, verdict in failures if not verdict.fails_job]
        for note in attempts.notes(others):
            self._send("Normal", "PodFailureJudged", "Sync", note)

    def suspension(self, before: Conditions, after: Conditions) -> None:
        """Report that the Job was suspended or resumed."""
        old = find(before, job_conditions.SUSPENDED)
        new = find(after, job_conditions.SUSPENDED)
        if new is None or new == old:
            return
        reason = "Suspended" if new.status == "True" else "Resumed"
        self._send("Normal", reason, "Sync", new.message)

    def ended(self, status: JobStatus, decided: Outcome) -> None:
        for each in outcome.announcements(self._job, status, decided):
            self._send(cast("EventType", each.type), each.reason, "Sync", each.message)

    def _send(self, kind: EventType, reason: str, action: str, note: str) -> None:
        self._sink.event(self._about, kind, reason, action, note)
