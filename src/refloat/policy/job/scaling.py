# SPDX-License-Identifier: Apache-2.0
"""Which pods a Job has to create or delete (behaviour A8, A9, A14.1).

For Jobs that are not over. A sync either deletes or creates, never both.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from refloat.api.core import Pod
from refloat.policy.job import backoff, pod_replacement, victims
from refloat.policy.job.backoff import ZERO, IndexFailures, Waited
from refloat.policy.job.observed import ObservedJob
from refloat.policy.job.pod_failure import NO_MATCH

# Labels of the metric of syncs (behaviour A23.1).
TRACKING, PODS_CREATED, PODS_DELETED = "tracking", "pods_created", "pods_deleted"


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    most_per_sync: int = 500
    """How many pods one sync creates or deletes at most, so that a large Job does not keep
    the small ones waiting. Does not hold for suspension. As in Kubernetes."""

    delays: backoff.BackoffSettings = backoff.DEFAULTS
    """How long failures keep pods from being created."""


DEFAULTS = ScalingSettings()


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod to be created."""

    index: int | None = None
    """Its completion index; None unless the Job is Indexed."""

    failures: IndexFailures | None = None
    """The failures of its predecessors; None unless failures are limited per index."""

    replaces: Pod | None = None
    """The failed pod that the new pod replaces, if known."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    action: str = TRACKING
    delete: tuple[Pod, ...] = ()
    """To be deleted in this order, each after its finalizer is removed: not counted (A9.1)."""

    create: tuple[NewPod, ...] = ()
    wait: timedelta = ZERO
    """If not zero: create nothing yet, and sync again after this."""


def plan(
    observed: ObservedJob,
    now: datetime,
    settings: ScalingSettings = DEFAULTS,
    waited: Waited = backoff.UNKNOWN,
) -> PodPlan:
    spec, active = observed.spec, len(observed.active)
    if spec.suspended:
        pods = victims.choose(spec, observed.active, active)
        return PodPlan(PODS_DELETED, delete=tuple(pods))
    desired = pod_replacement.desired_active(
        parallelism=spec.parallelism,
        completions=spec.completions,
        succeeded=observed.succeeded,
        active=active,
    )
    pods = victims.choose(spec, observed.active, max(0, active - desired))
    if pods:
        return PodPlan(PODS_DELETED, delete=tuple(pods[: settings.most_per_sync]))
    missing = pod_replacement.missing(
        desired=desired,
        active=active,
        terminating=len(observed.terminating),
        waits=spec.waits,
    )
    return _creation(observed, missing, now, settings, waited) if missing > 0 else PodPlan()


def _creation(
    observed: ObservedJob, missing: int, now: datetime, settings: ScalingSettings, waited: Waited
) -> PodPlan:
    spec = observed.spec
    if spec.backoff_limit_per_index is None:
        wait = backoff.remaining(observed.record, now, settings.delays, waited.job)
        if wait > ZERO:
            return _waiting(wait, settings)
    count = min(missing, settings.most_per_sync)
    if not spec.indexed:
        return PodPlan(PODS_CREATED, create=(NewPod(),) * count)
    indexes, last_failed = _pending(observed, count), observed.last_failed
    if spec.backoff_limit_per_index is None:
        return PodPlan(PODS_CREATED, create=tuple(map(NewPod, indexes)))
    indexes, wait = backoff.split_ready(indexes, last_failed, now, settings.delays, waited)
    if wait > ZERO:
        return _waiting(wait, settings)
    new: list[NewPod] = []
    for index in indexes:
        replaced = last_failed.get(index)
        verdict = NO_MATCH if replaced is None else observed.verdict(replaced)
        new.append(NewPod(index, backoff.index_failures_after(replaced, verdict), replaced))
    return PodPlan(PODS_CREATED, create=tuple(new))


def _waiting(wait: timedelta, settings: ScalingSettings) -> PodPlan:
    return PodPlan(PODS_CREATED, wait=backoff.wake_after(wait, settings.delays))


def _pending(observed: ObservedJob, count: int) -> list[int]:
    spec = observed.spec
    holders = observed.active + observed.terminating if spec.waits else observed.active
    occupied = [index for pod in holders if (index := spec.index(pod)) is not None]
    return pod_replacement.pending_indexes(
        count,
        spec.completions or 0,
        done=[*observed.succeeded_indexes, *(observed.failed_indexes or ())],
        occupied=occupied,
    )
