# SPDX-License-Identifier: Apache-2.0
"""Settings of the Job controller, and which Jobs it manages."""

from dataclasses import dataclass, field

from refloat.api.batch import Job
from refloat.policy.job import accounting, scaling
from refloat.policy.job.attempts import AttemptLogs
from refloat.policy.job.job_gates import ALL_ON, JobGates

# Values of spec.managedBy: the Job controller of the cluster, whichever that is (behaviour A1.10),
# and Refloat's controller beside another one.
KUBERNETES = "kubernetes.io/job-controller"
REFLOAT = "refloat.dev/job-controller"


@dataclass(frozen=True, slots=True)
class JobSettings:
    takes_default: bool = True
    """Whether Refloat manages Jobs that name no controller or Kubernetes' controller. Must be off
    where kube-controller-manager manages them; Refloat always manages Jobs that name Refloat."""

    batch_seconds: float = 1.0
    """How long events of pods are gathered before their Job is synced. As in Kubernetes."""

    most_at_once: int = 500
    """How many requests of one sync are under way at the same time, so that the end of a very
    large Job does not fill the memory. As many as Kubernetes creates in one sync."""

    pods: scaling.ScalingSettings = scaling.DEFAULTS
    counting: accounting.AccountingSettings = accounting.DEFAULTS
    logs: AttemptLogs = field(default_factory=AttemptLogs)
    job_gates: JobGates = field(default=ALL_ON)

    def manages(self, job: Job) -> bool:
        """Whether this controller manages the Job (behaviour A4.3, A21.1)."""
        if job.spec.managed_by in (None, KUBERNETES):
            return self.takes_default
        return job.spec.managed_by == REFLOAT
