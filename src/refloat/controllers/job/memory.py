# SPDX-License-Identifier: Apache-2.0
"""What the controller remembers of Jobs between two syncs.

Nothing of it outlives the process, and nothing is lost with it but delays
(behaviour A11.1): it bridges the time in which the caches are behind the
controller's own writes. By uid, so that a Job of the same name starts anew.
"""

from refloat.api.batch import Job
from refloat.base.clock import Clock
from refloat.policy import backoff
from refloat.runtime.expectations import Expectations, FinalizerExpectations


class Memory:
    def __init__(self, clock: Clock) -> None:
        self.expectations: Expectations[str] = Expectations(clock)
        self.finalizers: FinalizerExpectations[str] = FinalizerExpectations()
        self.records: dict[str, backoff.Record] = {}
        self.ordinals: dict[str, int] = {}
        """The first number that may be free for the name of a pod."""
        self._versions: dict[str, int] = {}

    def record(self, uid: str) -> backoff.Record:
        return self.records.get(uid, backoff.NO_FAILURES)

    def wrote(self, job: Job) -> None:
        """This is what the Job is after a write of ours."""
        self._versions[job.metadata.uid] = _version(job)

    def is_stale(self, job: Job) -> bool:
        """Whether the cache has not seen our last write yet (behaviour A4.1)."""
        written = self._versions.get(job.metadata.uid)
        return written is not None and _version(job) < written

    def forget(self, uid: str) -> None:
        self.expectations.forget(uid)
        self.finalizers.forget(uid)
        self.records.pop(uid, None)
        self.ordinals.pop(uid, None)
        self._versions.pop(uid, None)


def _version(job: Job) -> int:
    """Versions grow, and the API lets clients compare them as numbers."""
    return int(job.metadata.resource_version or 0)
