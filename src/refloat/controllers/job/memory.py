# SPDX-License-Identifier: Apache-2.0
"""What the controller remembers of Jobs between two syncs.

Nothing of it outlives the process, and nothing is lost with it but delays
(behaviour A11.1): it bridges the time in which the caches are behind the
controller's own writes. By uid, so that a Job of the same name starts anew.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import NamedTuple

from refloat.api.batch import Job, JobStatus, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.policy import backoff, pod_state
from refloat.runtime import cache
from refloat.runtime.cache import Cache
from refloat.runtime.expectations import EXPIRY_SECONDS, Expectations, FinalizerExpectations

# How many names of pods are kept for a Job: about a megabyte. When there are
# more, those names may come back.
MAX_RETIRED = 10_000

# How many names of created pods are kept for a Job: about a megabyte. When there
# are more, the creation of a pod may be reported twice.
MAX_ANNOUNCED = 10_000

# How many uids of counted pods are kept for a Job: about a megabyte. When there
# are more, a user who puts the finalizer back has a pod counted once more.
MAX_COUNTED = 10_000


class _Written(NamedTuple):
    version: int
    at: float


class _Tally(NamedTuple):
    """Which pods a status has counted or listed."""

    succeeded: int
    failed: int
    uncounted: UncountedTerminatedPods
    completed: str


_NONE = _Tally(0, 0, UncountedTerminatedPods(), "")


def _tally(status: JobStatus) -> _Tally:
    listed = status.uncounted_terminated_pods or UncountedTerminatedPods()
    lists = UncountedTerminatedPods(listed.succeeded or None, listed.failed or None)
    return _Tally(status.succeeded, status.failed, lists, status.completed_indexes)


class Memory:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.expectations: Expectations[str] = Expectations(clock)
        self.finalizers: FinalizerExpectations[str] = FinalizerExpectations()
        self._records: dict[str, tuple[backoff.Record, float]] = {}
        self._failures: dict[str, dict[str, float]] = {}
        self.ordinals: dict[str, int] = {}
        """The first number that may be free for the name of a pod."""
        self._retired: dict[str, set[str]] = {}
        self._announced: dict[str, set[str]] = {}
        self._doubtful: dict[str, dict[str, None]] = {}
        self._counted: dict[str, set[str]] = {}
        self._released: dict[str, dict[str, str]] = {}
        self._looked: set[str] = set()
        self._tallies: dict[str, _Tally] = {}
        self._jobs: dict[str, _Written] = {}
        self._pods: dict[str, _Written] = {}

    def record(self, uid: str) -> backoff.Record:
        known = self._records.get(uid)
        return backoff.NO_FAILURES if known is None else known[0]

    def keep(self, uid: str, record: backoff.Record) -> None:
        """This is the Job's record of failures: the status that has them is written."""
        if record != self.record(uid):
            self._records[uid] = (record, self._clock.monotonic())

    def waited(
        self, uid: str, record: backoff.Record, last_failed: Iterable[Pod]
    ) -> backoff.Waited:
        """How long these failures have been known, by a clock that nobody sets.

        `last_failed` are the pods whose indexes wait, all of them.
        """
        now = self._clock.monotonic()
        known, since = self._records.get(uid, (None, now))
        seen = self._failures.get(uid, {})
        pods = {pod.metadata.uid: seen.get(pod.metadata.uid, now) for pod in last_failed}
        if pods or seen:
            self._failures[uid] = pods
        return backoff.Waited(
            timedelta(seconds=now - since if known == record else 0.0),
            {pod: timedelta(seconds=now - first) for pod, first in pods.items()},
        )

    def wrote(self, job: Job) -> None:
        """This is what the Job is after a write of ours."""
        version = _version(job)
        self._jobs[job.metadata.uid] = _Written(version, self._clock.monotonic())
        self.confirm_tally(job)

    def confirm_tally(self, job: Job) -> None:
        """The pods that this status has counted are known to be counted."""
        self._tallies[job.metadata.uid] = _tally(job.status)

    def was_counted_elsewhere(self, job: Job) -> bool:
        """Whether another process may have counted pods whose finalizers the cache still shows."""
        tally = _tally(job.status)
        return tally not in (_NONE, self._tallies.get(job.metadata.uid))

    def wrote_pod(self, uid: str, pod: Pod | None) -> None:
        """This is what a pod of the Job is after a write of ours; None if it is gone."""
        if pod is None:
            return
        version, known = _version(pod), self._pods.get(uid)
        if known is None or version > known.version:
            self._pods[uid] = _Written(version, self._clock.monotonic())

    def retire(self, uid: str, pods: Iterable[Pod]) -> None:
        """Give these pods' names to no other pod: they failed, or were deleted uncounted."""
        names = self._retired.setdefault(uid, set())
        if len(names) >= MAX_RETIRED:
            names.clear()
        names.update(pod.metadata.name for pod in pods)

    def is_retired(self, uid: str, name: str) -> bool:
        names = self._retired.get(uid)
        return names is not None and name in names

    def doubt(self, uid: str, name: str) -> None:
        """The create of this pod got no answer, or an error after which it may exist."""
        self._doubtful.setdefault(uid, {})[name] = None

    def doubtful(self, uid: str) -> Iterable[str]:
        """The names of pods that may exist though their creation was not reported."""
        return tuple(self._doubtful.get(uid, ()))

    def announces(self, uid: str, name: str) -> bool:
        """Whether the creation of this pod is to be reported: once."""
        self._doubtful.get(uid, {}).pop(name, None)
        announced = self._announced.setdefault(uid, set())
        if name in announced:
            return False
        if len(announced) >= MAX_ANNOUNCED:
            announced.clear()
        announced.add(name)
        return True

    def count(self, uid: str, pods: Iterable[str]) -> None:
        """The pods with these uids have lost their finalizers: they are counted, or ignored."""
        counted = self._counted.setdefault(uid, set())
        if len(counted) >= MAX_COUNTED:
            counted.clear()
        released = self._released.get(uid, {})
        for pod in pods:
            counted.add(pod)
            released.pop(pod, None)

    def counted(self, uid: str) -> AbstractSet[str]:
        return self._counted.get(uid, frozenset())

    def released(self, uid: str, pod: Pod) -> None:
        """This pod loses its finalizer in order to be deleted."""
        self._released.setdefault(uid, {})[pod.metadata.uid] = cache.key_of(pod)

    def escaped(self, uid: str, pods: Cache[Pod]) -> list[Pod]:
        """The released pods that were not deleted and have ended: not counted yet."""
        released = self._released.pop(uid, {})
        found = [(each, key, pods.get(key)) for each, key in released.items()]
        kept = {
            each: (key, pod)
            for each, key, pod in found
            if pod is not None
            and pod.metadata.uid == each
            and pod.metadata.deletion_timestamp is None
        }
        if kept:
            self._released[uid] = {each: key for each, (key, _) in kept.items()}
        return [pod for _, pod in kept.values() if pod_state.is_settled(pod)]

    def looks_at_settled(self, uid: str) -> bool:
        """Whether the Job's settled pods are to be looked at; not again before `look_again`.

        Asked before they are read: what changes meanwhile is not missed.
        """
        looks = uid not in self._looked
        self._looked.add(uid)
        return looks

    def look_again(self, uid: str) -> None:
        """A settled pod of the Job may not be its own any more, or has not been released."""
        self._looked.discard(uid)

    def stale(self, job: Job, pods_seen: Callable[[str], bool]) -> str | None:
        """Which cache has not seen our last write of the Job or its pods (behaviour A4.1).

        `pods_seen` says whether that of pods has come as far as a version.
        """
        uid = job.metadata.uid
        written = self._jobs.get(uid)
        if written is not None and _version(job) < written.version and self._holds(written):
            return "jobs"
        written = self._pods.get(uid)
        if written is None:
            return None
        if not pods_seen(str(written.version)) and self._holds(written):
            return "pods"
        del self._pods[uid]  # seen once, or too long ago: not asked for again
        return None

    def _holds(self, written: _Written) -> bool:
        """A server that was set back to an older state may never come as far again."""
        return self._clock.monotonic() - written.at < EXPIRY_SECONDS

    def forget(self, uid: str) -> None:
        self.expectations.forget(uid)
        self.finalizers.forget(uid)
        self._records.pop(uid, None)
        self._failures.pop(uid, None)
        self.ordinals.pop(uid, None)
        self._retired.pop(uid, None)
        self._announced.pop(uid, None)
        self._doubtful.pop(uid, None)
        self._counted.pop(uid, None)
        self._released.pop(uid, None)
        self._looked.discard(uid)
        self._tallies.pop(uid, None)
        self._jobs.pop(uid, None)
        self._pods.pop(uid, None)


def _version(written: Job | Pod) -> int:
    """Versions grow, and the API lets clients compare them as numbers."""
    return int(written.metadata.resource_version or 0)
