# SPDX-License-Identifier: Apache-2.0
"""A Job with its pods, as the Job controller sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.explain import job_attempts
from refloat.explain.explain_context import ExplainContext
from refloat.policy.job import backoff, job_spec, pod_state
from refloat.policy.job.observed import ObservedJob, observe


@dataclass(frozen=True, slots=True)
class JobView:
    """A Job with its pods, as the Job controller sees them."""

    job: Job
    pods: tuple[Pod, ...]
    observed: ObservedJob
    context: ExplainContext

    @classmethod
    def of(cls, job: Job, pods: Sequence[Pod], context: ExplainContext) -> "JobView":
        """`pods` are those whose controller is the Job."""
        # The Job controller keeps a record of the failures since the last success in memory. Pods
        # without its finalizer show it, and the record of attempts shows the pods that are gone.
        spec = job_spec.of(job, context.gates)
        counted = [pod for pod in pods if not pod_state.is_tracked(pod)]
        succeeded = [pod for pod in counted if spec.succeeds(pod)]
        failed = [pod for pod in counted if spec.fails(pod)]
        record = backoff.updated(backoff.NO_FAILURES, succeeded, failed)
        ends = job_attempts.ends_of_gone(job, pods)
        if succeeded:
            last_success = max(map(backoff.finish_time, succeeded))
            ends = [end for end in ends if end > last_success]
        if ends:
            last = max((*ends, record.last_failure or ends[0]))
            record = backoff.Record(record.failures + len(ends), last)
        rest = [pod for pod in pods if not pod_state.is_settled(pod)]
        observed = observe(job, rest, job_gates=context.gates, record=record)
        return cls(job, tuple(pods), observed, context)

    @property
    def name(self) -> str:
        return self.job.metadata.name

    @property
    def namespace(self) -> str:
        return self.job.metadata.namespace

    @property
    def age_seconds(self) -> float:
        return self.context.elapsed(self.job.metadata.creation_timestamp)
