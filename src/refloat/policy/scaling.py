# SPDX-License-Identifier: Apache-2.0
"""Which pods a Job needs more, or has too many of (behaviour A8, A9, A14.1).

For Jobs that are not over. A sync either deletes or creates, never both. How
pods are created in growing batches and what they look like is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from refloat.api.core import Pod
from refloat.policy import backoff, pod_replacement, victims
from refloat.policy.backoff import ZERO, IndexFailures, Waited
from refloat.policy.census import Census
from refloat.policy.pod_failure import NO_MATCH

# Labels of the metric of syncs (behaviour A23.1).
TRACKING, PODS_CREATED, PODS_DELETED = "tracking", "pods_created", "pods_deleted"


@dataclass(frozen=True, slots=True)
class Settings:
    most_per_sync: int = 500
    """How many pods one sync creates or deletes at most, so that a large Job does not keep
    the small ones waiting. Does not hold for suspension. As in Kubernetes."""

    delays: backoff.Settings = backoff.DEFAULTS
    """How long failures keep pods from being created."""


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class NewPod:
    """A pod to be created."""

    index: int | None = None
    """Its completion index; None unless the Job is Indexed."""

    failures: IndexFailures | None = None
    """What to tell it of its predecessors; None unless failures are limited per index."""

    replaces: Pod | None = None
    """The failed pod in whose place it comes, where that is known."""


@dataclass(frozen=True, slots=True)
class Plan:
    action: str = TRACKING
    delete: tuple[Pod, ...] = ()
    """To be deleted in this order, each after its finalizer is removed: not counted (A9.1)."""

    create: tuple[NewPod, ...] = ()
    wait: timedelta = ZERO
    """If not zero: nothing may be created yet, look again after this."""


def plan(
    census: Census,
    now: datetime,
    settings: Settings = DEFAULTS,
    waited: Waited = backoff.UNKNOWN,
) -> Plan:
    terms, active = census.terms, len(census.active)
    if terms.suspended:
        chosen = victims.choose(terms, census.active, active)
        return Plan(PODS_DELETED, delete=tuple(chosen))
    desired = pod_replacement.desired_active(
        parallelism=terms.parallelism,
        completions=terms.completions,
        succeeded=census.succeeded,
        active=active,
    )
    chosen = victims.choose(terms, census.active, max(0, active - desired))
    if chosen:
        return Plan(PODS_DELETED, delete=tuple(chosen[: settings.most_per_sync]))
    missing = pod_replacement.missing(
        desired=desired,
        active=active,
        terminating=len(census.terminating),
        waits=terms.waits,
    )
    return _creation(census, missing, now, settings, waited) if missing > 0 else Plan()


def _creation(
    census: Census, missing: int, now: datetime, settings: Settings, waited: Waited
) -> Plan:
    terms = census.terms
    if terms.backoff_limit_per_index is None:
        wait = backoff.remaining(census.record, now, settings.delays, waited.job)
        if wait > ZERO:
            return _waiting(wait, settings)
    count = min(missing, settings.most_per_sync)
    if not terms.indexed:
        return Plan(PODS_CREATED, create=(NewPod(),) * count)
    indexes: Sequence[int] = _pending(census, count)
    if terms.backoff_limit_per_index is not None:
        indexes, wait = backoff.split_ready(
            indexes, census.last_failed, now, settings.delays, waited
        )
        if wait > ZERO:
            return _waiting(wait, settings)
    return Plan(PODS_CREATED, create=tuple(_indexed_pod(census, index) for index in indexes))


def _waiting(wait: timedelta, settings: Settings) -> Plan:
    return Plan(PODS_CREATED, wait=backoff.wake_after(wait, settings.delays))


def _pending(census: Census, count: int) -> list[int]:
    terms = census.terms
    holders = census.active + census.terminating if terms.waits else census.active
    held = [index for pod in holders if (index := terms.index(pod)) is not None]
    return pod_replacement.pending_indexes(
        count,
        terms.completions or 0,
        done=[*census.succeeded_indexes, *(census.failed_indexes or ())],
        held=held,
    )


def _indexed_pod(census: Census, index: int) -> NewPod:
    if census.terms.backoff_limit_per_index is None:
        return NewPod(index)
    replaced = census.last_failed.get(index)
    verdict = NO_MATCH if replaced is None else census.verdict(replaced)
    return NewPod(index, backoff.index_failures_after(replaced, verdict), replaced)
