# SPDX-License-Identifier: Apache-2.0
"""What the Job controller remembers between two syncs, by the uid of the Job.

A restart loses nothing but delays (behaviour A11.1): the memory covers the time in which
the caches are behind the controller's own writes.
"""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import NamedTuple

from refloat.api.batch import Job, JobStatus, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.policy.job import backoff, pod_state
from refloat.runtime import cache
from refloat.runtime.cache import Cache
from refloat.runtime.expectations import EXPIRY_SECONDS, Expectations, FinalizerExpectations

# How many names of pods are kept for a Job: about a megabyte. Above this, names may come back.
MAX_RETIRED = 10_000

# How many uids of created pods are kept for a Job: about a megabyte. Above this, the creation of
# a pod may be reported twice.
MAX_ANNOUNCED = 10_000

# How many uids of counted pods are kept for a Job: about a megabyte. Above this, a user who puts
# the finalizer back has a pod counted once more.
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
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    lists = UncountedTerminatedPods(uncounted.succeeded or None, uncounted.failed or None)
    return _Tally(status.succeeded, status.failed, lists, status.completed_indexes)


class SyncMemory:
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
        entry = self._records.get(uid)
        return backoff.NO_FAILURES if entry is None else entry[0]

    def keep(self, uid: str, record: backoff.Record) -> None:
        """Keep the record of failures after a write of the status."""
        if record != self.record(uid):
            self._records[uid] = (record, self._clock.monotonic())

    def waited(
        self, uid: str, record: backoff.Record, last_failed: Iterable[Pod]
    ) -> backoff.Waited:
        """How long this process has known these failures, by the monotonic clock.

        `last_failed`: the last failed pods of all indexes that wait.
        """
        now = self._clock.monotonic()
        old_record, since = self._records.get(uid, (None, now))
        times = self._failures.get(uid, {})
        pods = {pod.metadata.uid: times.get(pod.metadata.uid, now) for pod in last_failed}
        if pods or times:
            self._failures[uid] = pods
        return backoff.Waited(
            timedelta(seconds=now - since if old_record == record else 0.0),
            {pod: timedelta(seconds=now - first) for pod, first in pods.items()},
        )

    def wrote(self, job: Job) -> None:
        """Note the Job after a write of this process."""
        version = _version(job)
        self._jobs[job.metadata.uid] = _Written(version, self._clock.monotonic())
        self.confirm_tally(job)

    def confirm_tally(self, job: Job) -> None:
        """Note that the pods in the counts of this status are counted."""
        self._tallies[job.metadata.uid] = _tally(job.status)

    def was_counted_elsewhere(self, job: Job) -> bool:
        """Whether another process may have counted pods whose finalizers the cache still shows."""
        tally = _tally(job.status)
        return tally not in (_NONE, self._tallies.get(job.metadata.uid))

    def wrote_pod(self, uid: str, pod: Pod | None) -> None:
        """Note a pod of the Job after a write of this process; None if it is gone."""
        if pod is None:
            return
        version, last_write = _version(pod), self._pods.get(uid)
        if last_write is None or version > last_write.version:
            self._pods[uid] = _Written(version, self._clock.monotonic())

    def retire(self, uid: str, pods: Iterable[Pod]) -> None:
        """Do not use the names of these pods again: they failed or were deleted uncounted."""
        names = self._retired.setdefault(uid, set())
        if len(names) >= MAX_RETIRED:
            names.clear()
        names.update(pod.metadata.name for pod in pods)

    def is_retired(self, uid: str, name: str) -> bool:
        names = self._retired.get(uid)
        return names is not None and name in names

    def doubt(self, uid: str, name: str) -> None:
        """Note a create without answer, or with an error after which the pod may exist."""
        self._doubtful.setdefault(uid, {})[name] = None

    def appeared(self, job: Job, pods: Cache[Pod]) -> list[str]:
        """Names of pods that appeared after their create had failed, each of them once."""
        uid, namespace = job.metadata.uid, job.metadata.namespace
        doubtful = [pods.get(f"{namespace}/{name}") for name in self._doubtful.get(uid, ())]
        return [
            pod.metadata.name
            for pod in doubtful
            if pod is not None
            and (owner := pod.metadata.controller) is not None
            and owner.uid == uid
            and self.announces(uid, pod)
        ]

    def announces(self, uid: str, pod: Pod) -> bool:
        """Whether to report the creation of this pod, which is done once."""
        self._doubtful.get(uid, {}).pop(pod.metadata.name, None)
        announced = self._announced.setdefault(uid, set())
        if pod.metadata.uid in announced:
            return False
        if len(announced) >= MAX_ANNOUNCED:
            announced.clear()
        announced.add(pod.metadata.uid)
        return True

    def count(self, uid: str, pods: Iterable[str]) -> None:
        """Note that these pods have lost their finalizers: they are counted or ignored."""
        uids = self._counted.setdefault(uid, set())
        if len(uids) >= MAX_COUNTED:
            uids.clear()
        released = self._released.get(uid, {})
        for pod in pods:
            uids.add(pod)
            released.pop(pod, None)

    def forged(self, uid: str, pods: Iterable[Pod], removing: AbstractSet[str]) -> tuple[Pod, ...]:
        """Counted pods on which users put the finalizer back.

        Kubernetes counts such a pod once more, and so does the next process.
        """
        counted: AbstractSet[str] = self._counted.get(uid, frozenset())
        return tuple(
            pod
            for pod in pods
            if pod.metadata.uid in counted
            and pod.metadata.uid not in removing
            and pod_state.is_tracked(pod)
        )

    def released(self, uid: str, pod: Pod) -> None:
        """Note a pod that loses its finalizer in order to be deleted."""
        self._released.setdefault(uid, {})[pod.metadata.uid] = cache.key_of(pod)

    def escaped(self, uid: str, pods: Cache[Pod]) -> list[Pod]:
        """Released pods that ended before their deletion, and are not counted yet."""
        released = self._released.pop(uid, {})
        entries = [(each, key, pods.get(key)) for each, key in released.items()]
        alive = {
            each: (key, pod)
            for each, key, pod in entries
            if pod is not None
            and pod.metadata.uid == each
            and pod.metadata.deletion_timestamp is None
        }
        if alive:
            self._released[uid] = {each: key for each, (key, _) in alive.items()}
        return [pod for _, pod in alive.values() if pod_state.is_settled(pod)]

    def looks_at_settled(self, uid: str) -> bool:
        """Whether to check the Job's settled pods now; then not again before `look_again`.

        Ask before the pods are read, so that no change is missed.
        """
        looks = uid not in self._looked
        self._looked.add(uid)
        return looks

    def look_again(self, uid: str) -> None:
        """A settled pod may no longer belong to the Job, or must still be released."""
        self._looked.discard(uid)

    def stale(self, job: Job, pods_seen: Callable[[str], bool]) -> str | None:
        """Which cache has not seen the last write of the Job or its pods (behaviour A4.1).

        `pods_seen` returns whether the cache of pods has reached a version.
        """
        uid = job.metadata.uid
        last_write = self._jobs.get(uid)
        if (
            last_write is not None
            and _version(job) < last_write.version
            and self._is_recent(last_write)
        ):
            return "jobs"
        last_write = self._pods.get(uid)
        if last_write is None:
            return None
        if not pods_seen(str(last_write.version)) and self._is_recent(last_write):
            return "pods"
        del self._pods[uid]  # the cache has seen the version, or the write is too old
        return None

    def _is_recent(self, write: _Written) -> bool:
        """A server that was restored from an older state may never reach the version again."""
        return self._clock.monotonic() - write.at < EXPIRY_SECONDS

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


def _version(obj: Job | Pod) -> int:
    """Versions grow, and the API lets clients compare them as numbers."""
    return int(obj.metadata.resource_version or 0)
