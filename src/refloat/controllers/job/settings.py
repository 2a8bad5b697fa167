# SPDX-License-Identifier: Apache-2.0
"""How the Job controller works, and which Jobs are its own."""

from dataclasses import dataclass, field

from refloat.api.batch import Job
from refloat.policy import accounting, scaling
from refloat.policy.switches import ALL_ON, Switches

# Who a Job may name in spec.managedBy: the controller of Kubernetes, whoever
# that is in this cluster (behaviour A1.10), or this one beside it.
KUBERNETES = "kubernetes.io/job-controller"
REFLOAT = "refloat.dev/job-controller"


@dataclass(frozen=True, slots=True)
class Settings:
    takes_default: bool = True
    """Whether Jobs that name nobody, or Kubernetes' controller, are taken care of. Must be off
    where kube-controller-manager does it; Jobs that name Refloat are taken care of always."""

    batch_seconds: float = 1.0
    """How long events of pods are gathered before their Job is looked at. As in Kubernetes."""

    most_at_once: int = 500
    """How many requests of one sync are under way at the same time, so that the end of a very
    large Job does not fill the memory. As many as Kubernetes creates in one sync."""

    pods: scaling.Settings = scaling.DEFAULTS
    counting: accounting.Settings = accounting.DEFAULTS
    switches: Switches = field(default=ALL_ON)

    def manages(self, job: Job) -> bool:
        """Whether the Job is this controller's (behaviour A4.3, A21.1)."""
        if job.spec.managed_by in (None, KUBERNETES):
            return self.takes_default
        return job.spec.managed_by == REFLOAT
