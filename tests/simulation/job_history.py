# SPDX-License-Identifier: Apache-2.0
"""All that happened to a Job and its pods, in the server's order, and what must hold all along.

Two watches take down every version of every object; sorted by their
resourceVersions they are the one history that the server had. The rules are
written anew here, on plain fields: nothing of what they judge is asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from refloat.api import index_intervals
from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.base.tasks import Tasks
from refloat.client import errors, kinds
from refloat.client.contract import Client, Kind

T = TypeVar("T", Job, Pod)

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    gone: bool
    job: Job | None = None
    pod: Pod | None = None


class History:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._tasks = Tasks()
        self.versions: list[Version] = []

    def start(self) -> None:
        self._tasks.spawn(self._follow(kinds.JOBS), name="history of Jobs")
        self._tasks.spawn(self._follow(kinds.PODS), name="history of pods")

    async def close(self) -> None:
        await self._tasks.close()

    async def _follow(self, kind: Kind[T]) -> None:
        watch = self._client.watch(kind, initial_events=True, timeout_seconds=10**6)
        try:
            async for event in watch:
                obj, is_gone = event.object, event.type == "DELETED"
                number = int(event.resource_version)
                if isinstance(obj, Job):
                    self.versions.append(Version(number, is_gone, job=obj))
                elif isinstance(obj, Pod):
                    self.versions.append(Version(number, is_gone, pod=obj))
        except errors.ClientError as error:  # the history would have holes
            raise AssertionError(f"the history of {kind.resource.plural} ended") from error
        finally:
            await watch.aclose()


@dataclass(slots=True)
class Checker:
    """Walks through a history of one Job, and fails where something must not be."""

    ignores: Callable[[Pod], bool] = lambda _: False
    """Whether the Job's policy does not count the failure of this pod."""

    job: Job | None = None
    pods: dict[str, Pod] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    """The uids that have been in a list and left."""

    parallelism: int = 0
    """The most that was ever asked for."""

    shrank: bool = False
    """Whether the Job was suspended ever, or wanted fewer pods than before: a controller that is
    behind may act on that later."""

    def walk(self, history: History) -> None:
        for version in sorted(history.versions, key=lambda each: each.number):
            if version.job is not None:
                self._job_changed(version.job, is_gone=version.gone)
            if version.pod is not None:
                self._pod_changed(version.pod, is_gone=version.gone)

    # -- counting ---------------------------------------------------------------

    def _job_changed(self, new: Job, *, is_gone: bool) -> None:
        if not is_gone:
            self.parallelism = max(self.parallelism, new.spec.parallelism or 0)
            parallelism = new.spec.parallelism or 0
            self.shrank |= bool(new.spec.suspend) or parallelism < self.parallelism
            before = self.job.status if self.job is not None else JobStatus()
            self._count(before, new.status, indexed=new.spec.completion_mode == "Indexed")
            self.job = new
        else:
            self.job = None

    def _count(self, old: JobStatus, new: JobStatus, *, indexed: bool) -> None:
        """A counter moves only by pods that leave its list, and no pod comes back to a list."""
        left_failed = _listed(old, "failed") - _listed(new, "failed")
        left_succeeded = _listed(old, "succeeded") - _listed(new, "succeeded")
        assert new.failed - old.failed == len(left_failed), "failed is not what left its list"
        if not indexed:
            assert new.succeeded - old.succeeded == len(left_succeeded), "so is succeeded"
        self.counted |= left_failed | left_succeeded
        for uid in left_failed | left_succeeded:
            pod = self.pods.get(uid)
            assert pod is None or not _is_tracked(pod), f"{uid} is counted and tracked"
        again = (_listed(new, "failed") | _listed(new, "succeeded")) & self.counted
        assert not again, f"counted twice: {again}"

    # -- pods -------------------------------------------------------------------

    def _pod_changed(self, new: Pod, *, is_gone: bool) -> None:
        uid = new.metadata.uid
        old = self.pods.pop(uid, None)
        if old is not None and _is_tracked(old) and (is_gone or not _is_tracked(new)):
            terminal = new if new.is_terminal else old
            assert self._may_lose_finalizer(terminal, new), f"{new.metadata.name} was never counted"
        if is_gone:
            return
        self.pods[uid] = new
        if old is None:
            self._check_room()

    def _may_lose_finalizer(self, pod: Pod, new: Pod) -> bool:
        """Whether the pod is listed or recorded, or has no Job that would count it."""
        job, meta = self.job, new.metadata
        if job is None or job.metadata.deletion_timestamp is not None or meta.controller is None:
            return True
        if meta.uid in _listed(job.status, "failed") | _listed(job.status, "succeeded"):
            return True
        is_active = not pod.is_terminal and pod.metadata.deletion_timestamp is None
        if is_active and (self.shrank or self._has_too_many(job)):
            return True  # released, to be deleted uncounted
        if job.spec.completion_mode == "Indexed" and _index(pod) >= (job.spec.completions or 0):
            return True
        if pod.status.phase == "Succeeded":
            if meta.deletion_timestamp is not None and _succeeds(job, "SuccessPolicy"):
                return True  # the kubelet was asked to stop the pod, and did
            return job.spec.completion_mode == "Indexed" and self._is_recorded(pod)
        return _succeeds(job) or (pod.status.phase == "Failed" and self.ignores(pod))

    def _has_too_many(self, job: Job) -> bool:
        """Whether more pods are active than wanted, beside the pod that loses its finalizer."""
        parallelism, status = job.spec.parallelism or 0, job.status
        if job.spec.completions is not None:
            parallelism = min(parallelism, job.spec.completions - status.succeeded)
        active = [pod for pod in self._alive(job) if pod.metadata.deletion_timestamp is None]
        return len(active) + 1 > parallelism

    def _is_recorded(self, pod: Pod) -> bool:
        assert self.job is not None
        done = index_intervals.parse(
            self.job.status.completed_indexes, self.job.spec.completions or 0
        )
        return index_intervals.contains(done, _index(pod))

    def _check_room(self) -> None:
        """Under Failed, a new pod has a place of its own."""
        job = self.job
        if job is None or job.spec.pod_replacement_policy != "Failed":
            return
        alive = list(self._alive(job))
        assert len(alive) <= self.parallelism, "more pods than asked for"
        if job.spec.completion_mode == "Indexed":
            indexes = [_index(pod) for pod in alive]
            assert len(set(indexes)) == len(indexes), f"two pods of one index: {indexes}"

    def _alive(self, job: Job) -> Iterator[Pod]:
        for pod in self.pods.values():
            owner = pod.metadata.controller
            if owner is not None and owner.uid == job.metadata.uid and not pod.is_terminal:
                yield pod


def _index(pod: Pod) -> int:
    return int((pod.metadata.annotations or {})[INDEX])


def _is_tracked(pod: Pod) -> bool:
    return TRACKING in (pod.metadata.finalizers or ())


def _listed(status: JobStatus, which: str) -> set[str]:
    lists = status.uncounted_terminated_pods
    return set() if lists is None else set(getattr(lists, which) or ())


def _succeeds(job: Job, *reasons: str) -> bool:
    """Whether the Job will be complete, for one of these reasons if there are any."""
    return any(
        each.type == "SuccessCriteriaMet"
        and each.status == "True"
        and (not reasons or each.reason in reasons)
        for each in job.status.conditions or ()
    )
