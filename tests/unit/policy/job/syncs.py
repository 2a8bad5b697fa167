# SPDX-License-Identifier: Apache-2.0
"""One sync of a Job as a controller makes it, on a list of pods: nothing fails."""

from dataclasses import dataclass, field
from datetime import datetime

from refloat.api.batch import Job, JobStatus
from refloat.api.core import Pod
from refloat.policy.job import accounting, backoff, observed, outcome, pod_state, scaling
from refloat.policy.job.accounting import Counts
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.job.observed import ObservedJob
from refloat.policy.job.outcome import Outcome
from refloat.policy.job.scaling import NewPod


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
    job_gates: JobGates = ALL_ON,
) -> Done:
    observation = observed.observe(job, pods, job_gates=job_gates, record=record)
    done = _manage(observation, now)
    plan = accounting.plan(
        observation,
        outcome=done.outcome,
        counts=done.counts,
        now=now,
        managed=not observation.spec.deleted,
    )
    if plan.write:
        done.statuses.append(plan.status)
    done.record = observation.record if plan.write else record
    done.released += [pod.metadata.name for pod in plan.removals]
    settlement = accounting.settle(plan, [pod.metadata.uid for pod in plan.removals], now)
    if settlement.write:
        done.statuses.append(settlement.status)
    done.finished = settlement.finished
    return done


def _manage(seen: ObservedJob, now: datetime) -> Done:
    active, terminating = len(seen.active), len(seen.terminating)
    decided = outcome.decide(seen, now)
    if decided is not None:
        done = Done(Counts(0, 0, terminating + active), decided)
        done.deleted += [pod.metadata.name for pod in seen.active]
        return done
    plan = scaling.PodPlan() if seen.spec.deleted else scaling.plan(seen, now)
    active += len(plan.create) - len(plan.delete)
    ready = seen.ready - sum(pod_state.is_ready(pod) for pod in plan.delete)
    done = Done(Counts(active, ready, terminating + len(plan.delete)), created=plan.create)
    done.outcome = outcome.completed(seen, active=active)
    done.deleted += [pod.metadata.name for pod in plan.delete]
    done.released += [pod.metadata.name for pod in plan.delete if pod_state.is_tracked(pod)]
    return done
