# SPDX-License-Identifier: Apache-2.0
"""Creates pods in growing batches (behaviour A1.7, A8.10, A8.11).

If no pod can be created, for example because a quota is used up, one request shows this
and not five hundred.
"""

from collections.abc import Callable, Sequence

from refloat.api.batch import Job
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import writes
from refloat.controllers.job.events import JobEvents
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.pod_names import PodNamer
from refloat.controllers.job.pod_template import PodTemplate
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import pod_replacement
from refloat.policy.job.observed import ObservedJob
from refloat.policy.job.scaling import NewPod
from refloat.runtime.errors import Terminal

NAMESPACE_TERMINATING = "NamespaceTerminating"


def reason(observed: ObservedJob) -> str:
    """Why pods are created, as a label of the metric (A23.2)."""
    return pod_replacement.creation_reason(
        observed.job.spec,
        observed.spec.job_gates,
        failed=observed.failed,
        terminating=len(observed.terminating),
    )


class PodCreator:
    """Creates the pods of one sync."""

    def __init__(
        self,
        client: Client,
        job: Job,
        *,
        memory: SyncMemory,
        is_taken: Callable[[str], bool],
        events: JobEvents,
        metrics: JobMetrics,
        reason: str,
    ) -> None:
        self._client = client
        self._job = job
        self._memory = memory
        self._namer = PodNamer(job, memory, is_taken)
        self._template = PodTemplate(job)
        self._events = events
        self._metrics = metrics
        self._reason = reason

    async def create(self, pods: Sequence[NewPod]) -> tuple[int, Exception | None]:
        """How many pods were created, and the first error, which ends the batches."""
        if not self._template.has_labels and any(new.index is None for new in pods):
            return 0, Terminal("unable to create pods, no labels")
        uid, expectations = self._job.metadata.uid, self._memory.expectations
        pending = [(self._namer.name(new), new) for new in pods]
        expectations.expect_creations(uid, len(pending))
        created, size, error = 0, 1, None
        try:
            while pending and error is None:
                batch, pending = pending[:size], pending[size:]
                failures = await writes.each(batch, self._create, at_once=len(batch))
                failed = [failure for failure in failures if failure is not None]
                created += len(batch) - len(failed)
                error = failed[0] if failed else None
                size *= 2
        finally:
            # Also when the sync is cancelled: nothing queues the Job if none of them comes. The
            # cache must have seen the created pods of the last batch before the next sync
            # (`SyncMemory.stale`).
            expectations.creation_observed(uid, len(pods) - created)
        return created, error

    async def _create(self, request: tuple[str, NewPod]) -> errors.ClientError | None:
        name, new = request
        body = self._template.pod(name, new)
        try:
            pod = await writes.create(self._client, self._job, body)
        except errors.ClientError as error:
            # A namespace that is being deleted takes no new objects and needs none: no error, and
            # no second attempt (A8.11).
            if any(kind == NAMESPACE_TERMINATING for kind, _, _ in error.causes):
                return None
            if isinstance(error, errors.Timeout | errors.Unavailable):
                self._memory.doubt(self._job.metadata.uid, name)
            self._metrics.created(self._reason, ok=False)
            self._events.not_created(name, body["metadata"]["generateName"], error)
            return error
        self._memory.wrote_pod(self._job.metadata.uid, pod)
        self._metrics.created(self._reason, ok=True)
        if self._memory.announces(self._job.metadata.uid, pod):
            self._events.created(name)
        return None
