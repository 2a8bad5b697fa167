# SPDX-License-Identifier: Apache-2.0
"""The effective spec of a Job, computed once per sync.

API defaults are applied here again, because another server may have stored the Job. `observed`
computes what follows from the spec for existing pods.
"""

from dataclasses import dataclass

import msgspec

from refloat.api import structs
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import Partial
from refloat.policy.job import (
    backoff_annotation,
    backoff_policy,
    job_conditions,
    pod_failure,
    pod_replacement,
    pod_state,
)
from refloat.policy.job.job_gates import ALL_ON, JobGates

INDEXED, NON_INDEXED = "Indexed", "NonIndexed"

DEFAULT_BACKOFF_LIMIT = 6


class _TemplateSpec(Partial, frozen=True):
    restart_policy: str = ""


class _Template(Partial, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_template = msgspec.json.Decoder(_Template)


@dataclass(frozen=True, slots=True)
class EffectiveSpec:
    indexed: bool
    parallelism: int
    completions: int | None
    """None: the first success of any pod ends the work."""

    backoff_limit: int
    backoff_limit_per_index: int | None
    """Never set on a Job that is not Indexed."""

    max_failed_indexes: int | None
    waits: bool
    """Whether the Job waits for terminating pods: `pod_replacement.only_replace_failed`, or because
    a backoffPolicy judges them only when they have ended."""

    restarts_containers: bool
    """Whether the template has OnFailure, so that restarts count as failures."""

    suspended: bool
    deleted: bool
    enough: bool
    """Whether an earlier sync decided that the Job succeeds, and deleted the pods that ran."""

    matcher: pod_failure.PolicyMatcher
    job_gates: JobGates

    def fails(self, pod: Pod) -> bool:
        """Whether the pod is a failure to the Job (behaviour A3.4)."""
        if self.dismisses(pod):
            return False
        if pod_state.has_failed(pod):
            return True
        return not self.waits and pod_state.is_terminating(pod)

    def succeeds(self, pod: Pod) -> bool:
        """Whether the pod is a success to the Job (behaviour A3.5).

        A pod that ended well because it was deleted has not done its work.
        """
        return pod_state.has_succeeded(pod) and not self.dismisses(pod)

    def dismisses(self, pod: Pod) -> bool:
        """Whether the pod was deleted because the Job has succeeded, by an interrupted sync.

        The pod counts for nothing, as it did for that sync, in which the pod ran. Kubernetes counts
        the pod's end, and so counts failures after a success. Pods that had ended before are
        listed in the status by the write of the condition (`accounting.plan`).

        Where all completions are reached no pod runs any more, so the Job deletes none. Where the
        Job fails, the same write lists each running pod as a failure: no end is left open.
        """
        return self.enough and pod.metadata.deletion_timestamp is not None

    def index(self, pod: Pod) -> int | None:
        """The pod's completion index, if the Job has such an index."""
        index = pod_state.completion_index(pod)
        if index is None or self.completions is None or index >= self.completions:
            return None
        return index

    def belongs(self, pod: Pod) -> bool:
        """Whether the pod's end counts: in an Indexed Job, only with an index of the Job."""
        return not self.indexed or self.index(pod) is not None


def of(job: Job, job_gates: JobGates = ALL_ON) -> EffectiveSpec:
    spec = job.spec
    indexed = spec.completion_mode == INDEXED
    per_index = spec.backoff_limit_per_index if indexed else None
    backs_off = backoff_annotation.effective(job, job_gates)
    template = _template.decode(bytes(spec.template) or b"{}")
    criteria = structs.find(job.status.conditions, job_conditions.SUCCESS_CRITERIA_MET)
    backoff_limit = spec.backoff_limit
    if backoff_limit is None:
        backoff_limit = DEFAULT_BACKOFF_LIMIT if per_index is None else pod_state.MAX_INT32
    return EffectiveSpec(
        indexed=indexed,
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        backoff_limit=backoff_limit,
        backoff_limit_per_index=per_index,
        max_failed_indexes=spec.max_failed_indexes,
        waits=pod_replacement.only_replace_failed(spec, job_gates) or backs_off is not None,
        restarts_containers=template.spec.restart_policy == "OnFailure",
        suspended=bool(spec.suspend),
        deleted=job.metadata.deletion_timestamp is not None,
        enough=criteria is not None
        and criteria.status == "True"
        and criteria.reason != job_conditions.COMPLETIONS_REACHED,
        matcher=(
            pod_failure.matcher(pod_failure.effective(spec, job_gates))
            if backs_off is None
            else backoff_policy.matcher(backs_off)
        ),
        job_gates=job_gates,
    )


def decided(job: Job) -> str | None:
    """The reason with which an earlier sync decided that the Job is over; None if none did."""
    condition = job_conditions.decision(job.status.conditions)
    return None if condition is None else condition.reason
