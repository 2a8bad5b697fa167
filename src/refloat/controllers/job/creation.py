# SPDX-License-Identifier: Apache-2.0
"""Creating pods in growing batches (behaviour A1.7, A8.10, A8.11).

If none can be created, for example because a quota is used up, one request
says so and not five hundred.
"""

from collections.abc import Callable, Sequence

from refloat.api.batch import Job
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.job import writes
from refloat.controllers.job.events import Teller
from refloat.controllers.job.memory import Memory
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.pod_names import Namer
from refloat.controllers.job.pods import Template
from refloat.policy import pod_replacement
from refloat.policy.census import Census
from refloat.policy.scaling import NewPod
from refloat.runtime.errors import Terminal

NAMESPACE_TERMINATING = "NamespaceTerminating"


def reason(census: Census) -> str:
    """Why pods are created, as a label of the metric (A23.2)."""
    return pod_replacement.creation_reason(
        census.job.spec,
        census.terms.switches,
        failed=census.failed,
        terminating=len(census.terminating),
    )


class Creator:
    """Creates the pods of one sync."""

    def __init__(
        self,
        client: Client,
        job: Job,
        *,
        memory: Memory,
        is_taken: Callable[[str], bool],
        teller: Teller,
        metrics: JobMetrics,
        reason: str,
    ) -> None:
        self._client = client
        self._job = job
        self._memory = memory
        self._namer = Namer(job, memory, is_taken)
        self._template = Template(job)
        self._teller = teller
        self._metrics = metrics
        self._reason = reason

    async def create(self, wanted: Sequence[NewPod]) -> tuple[int, Exception | None]:
        """How many there are more, and the first error; after an error the rest is left."""
        if not self._template.has_labels and any(new.index is None for new in wanted):
            return 0, Terminal("unable to create pods, no labels")
        uid, expectations = self._job.metadata.uid, self._memory.expectations
        named = [(self._namer.name(new), new) for new in wanted]
        expectations.expect_creations(uid, len(named))
        made, size, error = 0, 1, None
        try:
            while named and error is None:
                batch, named = named[:size], named[size:]
                failures = await writes.each(batch, self._create, at_once=len(batch))
                failed = [failure for failure in failures if failure is not None]
                made += len(batch) - len(failed)
                error = failed[0] if failed else None
                size *= 2
        finally:
            # Also of a sync that is cancelled: nothing wakes the Job if none of them
            # comes. Those of its last batch that were made, the cache must have seen
            # before the next sync in any case (`Memory.stale`).
            expectations.creation_observed(uid, len(wanted) - made)
        return made, error

    async def _create(self, named: tuple[str, NewPod]) -> errors.ClientError | None:
        name, new = named
        wanted = self._template.pod(name, new)
        try:
            pod = await writes.create(self._client, self._job, wanted)
        except errors.ClientError as error:
            # Nothing can be created there any more, and all of it goes anyway:
            # not worth an error, nor a second look (A8.11).
            if any(kind == NAMESPACE_TERMINATING for kind, _, _ in error.causes):
                return None
            if isinstance(error, errors.Timeout | errors.Unavailable):
                self._memory.doubt(self._job.metadata.uid, name)
            self._metrics.created(self._reason, ok=False)
            self._teller.not_created(name, wanted["metadata"]["generateName"], error)
            return error
        self._memory.wrote_pod(self._job.metadata.uid, pod)
        self._metrics.created(self._reason, ok=True)
        if self._memory.announces(self._job.metadata.uid, name):
            self._teller.created(name)
        return None
