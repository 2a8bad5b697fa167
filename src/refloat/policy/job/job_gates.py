# SPDX-License-Identifier: Apache-2.0
"""The feature gates that a decision on a Job depends on.

A separate type, so that decisions do not depend on the configuration of gates.
"""

from dataclasses import dataclass

from refloat.base import gates


@dataclass(frozen=True, slots=True)
class JobGates:
    job_pod_failure_policy: bool = True
    """`JobPodFailurePolicy`: off, a podFailurePolicy has no effect."""

    job_pod_replacement_policy: bool = True
    """`JobPodReplacementPolicy`: off, a podReplacementPolicy has no effect."""

    pod_disruption_conditions: bool = True
    """`PodDisruptionConditions`: off, no controller adds DisruptionTarget to pods."""

    retriable_and_non_retriable_failures: bool = False
    """`RetriableAndNonRetriableFailures`: off, a backoffPolicy has no effect, and no component
    sends a reason with a delete."""

    @classmethod
    def of(cls, configured: gates.Gates) -> "JobGates":
        return cls(
            job_pod_failure_policy=configured.enabled(gates.JOB_POD_FAILURE_POLICY),
            job_pod_replacement_policy=configured.enabled(gates.JOB_POD_REPLACEMENT_POLICY),
            pod_disruption_conditions=configured.enabled(gates.POD_DISRUPTION_CONDITIONS),
            retriable_and_non_retriable_failures=configured.enabled(
                gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES
            ),
        )


ALL_ON = JobGates()
"""Those of Kubernetes: all that are on by default."""
