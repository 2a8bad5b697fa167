# SPDX-License-Identifier: Apache-2.0
"""What a Job's spec demands, read once per sync.

Defaults that the API fills in are filled in here again, because a controller
may meet a Job that another server stored. What follows from the terms for
pods that exist is found out by `census`.
"""

from dataclasses import dataclass

import msgspec

from refloat.api import structs
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.structs import Partial
from refloat.policy import (
    backoff_annotation,
    backoff_policy,
    job_conditions,
    pod_failure,
    pod_replacement,
    pod_state,
)
from refloat.policy.switches import ALL_ON, Switches

INDEXED, NON_INDEXED = "Indexed", "NonIndexed"

DEFAULT_BACKOFF_LIMIT = 6


class _TemplateSpec(Partial, frozen=True):
    restart_policy: str = ""


class _Template(Partial, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_template = msgspec.json.Decoder(_Template)


@dataclass(frozen=True, slots=True)
class Terms:
    indexed: bool
    parallelism: int
    completions: int | None
    """None: the first success of any pod ends the work."""

    backoff_limit: int
    backoff_limit_per_index: int | None
    """Never set on a Job that is not Indexed."""

    max_failed_indexes: int | None
    waits: bool
    """Whether terminating pods are waited for: `pod_replacement.only_replace_failed`, or because
    a backoffPolicy looks at them when they have ended, whatever a server filled in."""

    restarts_containers: bool
    """Whether the template says OnFailure, so that restarts count as failures."""

    suspended: bool
    deleted: bool
    enough: bool
    """Whether an earlier sync decided that the Job succeeds, and deleted the pods that ran."""

    judge: pod_failure.Judge | backoff_policy.Judge
    switches: Switches

    def fails(self, pod: Pod) -> bool:
        """Whether the pod is a failure to the Job (behaviour A3.4)."""
        if self.dismisses(pod):
            return False
        if pod_state.has_failed(pod):
            return True
        return not self.waits and pod_state.is_terminating(pod)

    def succeeds(self, pod: Pod) -> bool:
        """Whether the pod is a success to the Job (behaviour A3.5).

        One that ended well when it was told to has not done its work.
        """
        return pod_state.has_succeeded(pod) and not self.dismisses(pod)

    def dismisses(self, pod: Pod) -> bool:
        """Whether it was deleted because the Job has succeeded, by a sync that came no further.

        It counts for nothing, as it did for that sync: a pod that ran.
        Kubernetes takes it for what it has become, and counts failures after a
        success. Pods that had ended before are listed in the status since the
        write that has the condition (`accounting.plan`).

        Where all completions are reached no pod runs any more, so the Job
        deletes none. Where the Job fails, the same write lists each pod that
        runs as a failure: nothing is left to find out.
        """
        return self.enough and pod.metadata.deletion_timestamp is not None

    def index(self, pod: Pod) -> int | None:
        """The pod's completion index, if the Job has such an index."""
        index = pod_state.completion_index(pod)
        if index is None or self.completions is None or index >= self.completions:
            return None
        return index

    def belongs(self, pod: Pod) -> bool:
        """Whether its end counts: in an Indexed Job, only with an index of the Job."""
        return not self.indexed or self.index(pod) is not None


def of(job: Job, switches: Switches = ALL_ON) -> Terms:
    spec = job.spec
    indexed = spec.completion_mode == INDEXED
    per_index = spec.backoff_limit_per_index if indexed else None
    backs_off = backoff_annotation.effective(job, switches)
    return Terms(
        indexed=indexed,
        parallelism=1 if spec.parallelism is None else spec.parallelism,
        completions=spec.completions,
        backoff_limit=_backoff_limit(spec.backoff_limit, per_index),
        backoff_limit_per_index=per_index,
        max_failed_indexes=spec.max_failed_indexes,
        waits=pod_replacement.only_replace_failed(spec, switches) or backs_off is not None,
        restarts_containers=_restart_policy(spec.template) == "OnFailure",
        suspended=bool(spec.suspend),
        deleted=job.metadata.deletion_timestamp is not None,
        enough=_has_enough(job),
        judge=(
            pod_failure.Judge(pod_failure.effective(spec, switches))
            if backs_off is None
            else backoff_policy.Judge(backs_off)
        ),
        switches=switches,
    )


def decided(job: Job) -> str | None:
    """Why the Job is over, as an earlier sync said; None if none did."""
    for kind in (job_conditions.SUCCESS_CRITERIA_MET, job_conditions.FAILURE_TARGET):
        condition = structs.find(job.status.conditions, kind)
        if condition is not None and condition.status == "True":
            return condition.reason
    return None


def _has_enough(job: Job) -> bool:
    met = structs.find(job.status.conditions, job_conditions.SUCCESS_CRITERIA_MET)
    if met is None or met.status != "True":
        return False
    return met.reason != job_conditions.COMPLETIONS_REACHED


def _backoff_limit(limit: int | None, per_index: int | None) -> int:
    if limit is not None:
        return limit
    return DEFAULT_BACKOFF_LIMIT if per_index is None else pod_state.MAX_INT32


def _restart_policy(template: msgspec.Raw) -> str:
    encoded = bytes(template)
    return _template.decode(encoded).spec.restart_policy if encoded else ""
