# SPDX-License-Identifier: Apache-2.0
"""One sync of a Job as a controller makes it, on a list of pods: nothing fails."""

from dataclasses import dataclass, field
from datetime import datetime

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.policy import accounting, backoff, census, outcome, pod_state, scaling
from refloat.policy.accounting import Counts
from refloat.policy.census import Census
from refloat.policy.outcome import Outcome
from refloat.policy.scaling import NewPod
from refloat.policy.switches import ALL_ON, Switches


@dataclass(slots=True)
class Done:
    """What a sync did."""

    counts: Counts
    outcome: Outcome | None = None
    statuses: list[JobStatus] = field(default_factory=list)
    """The status of each write, in order."""

    deleted: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    """Pods whose finalizer was removed."""

    created: tuple[NewPod, ...] = ()
    record: backoff.Record = backoff.NO_FAILURES
    finished: bool = False

    @property
    def status(self) -> JobStatus:
        return self.statuses[-1]


def sync(
    job: Job,
    pods: list[Pod],
    now: datetime,
    *,
    record: backoff.Record = backoff.NO_FAILURES,
    switches: Switches = ALL_ON,
) -> Done:
    seen = census.observe(job, pods, switches=switches, record=record)
    done = _manage(seen, now)
    plan = accounting.plan(
        seen,
        outcome=done.outcome,
        counts=done.counts,
        now=now,
        managed=not seen.terms.deleted,
    )
    if plan.write:
        done.statuses.append(plan.status)
    done.record = seen.record if plan.write else record
    done.released += [pod.metadata.name for pod in plan.removals]
    settled = accounting.settle(plan, [pod.metadata.uid for pod in plan.removals], now)
    if settled.write:
        done.statuses.append(settled.status)
    done.finished = settled.finished
    return done


def _manage(seen: Census, now: datetime) -> Done:
    active, terminating = len(seen.active), len(seen.terminating)
    decided = outcome.decide(seen, now)
    if decided is not None:
        done = Done(Counts(0, 0, terminating + active), decided)
        done.deleted += [pod.metadata.name for pod in seen.active]
        return done
    plan = scaling.Plan() if seen.terms.deleted else scaling.plan(seen, now)
    active += len(plan.create) - len(plan.delete)
    ready = seen.ready - sum(pod_state.is_ready(pod) for pod in plan.delete)
    done = Done(Counts(active, ready, terminating + len(plan.delete)), created=plan.create)
    done.outcome = outcome.completed(seen, active=active)
    done.deleted += [pod.metadata.name for pod in plan.delete]
    done.released += [pod.metadata.name for pod in plan.delete if pod_state.is_tracked(pod)]
    return done
