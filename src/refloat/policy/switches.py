# SPDX-License-Identifier: Apache-2.0
"""The feature gates that a decision on a Job depends on.

A value of its own, so that decisions do not know how gates are configured.
"""

from dataclasses import dataclass

from refloat.base import gates


@dataclass(frozen=True, slots=True)
class Switches:
    job_pod_failure_policy: bool = True
    """`JobPodFailurePolicy`: off, a podFailurePolicy is as if it were not there."""

    job_pod_replacement_policy: bool = True
    """`JobPodReplacementPolicy`: off, a podReplacementPolicy is as if it were not there."""

    pod_disruption_conditions: bool = True
    """`PodDisruptionConditions`: off, nobody adds DisruptionTarget to pods."""

    retriable_and_non_retriable_failures: bool = False
    """`RetriableAndNonRetriableFailures`: off, a backoffPolicy is as if it were not there, and
    nobody says in a delete why it deletes a pod."""

    @classmethod
    def of(cls, configured: gates.Gates) -> "Switches":
        return cls(
            job_pod_failure_policy=configured.enabled(gates.JOB_POD_FAILURE_POLICY),
            job_pod_replacement_policy=configured.enabled(gates.JOB_POD_REPLACEMENT_POLICY),
            pod_disruption_conditions=configured.enabled(gates.POD_DISRUPTION_CONDITIONS),
            retriable_and_non_retriable_failures=configured.enabled(
                gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES
            ),
        )


ALL_ON = Switches()
"""Those of Kubernetes: all that are on by default."""
