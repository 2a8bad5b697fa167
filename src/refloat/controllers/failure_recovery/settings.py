# SPDX-License-Identifier: Apache-2.0
"""Settings of failure recovery."""

from dataclasses import dataclass, field

from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy


@dataclass(frozen=True, slots=True)
class FailureRecoverySettings:
    enabled: bool = False
    """The gate `FailureRecoveryPolicy`. Off, failure recovery does nothing."""

    policy: FailureRecoveryPolicy = field(default_factory=FailureRecoveryPolicy)
    """What the administrator allows."""

    whole_cluster: bool = True
    """Whether Refloat sees the pods of all namespaces. If not, other pods may run on a node, so
    Refloat taints no node out of service."""

    says_why: bool = False
    """The gate `RetriableAndNonRetriableFailures`: on, a pod that Refloat ends gets the reason
    `NodeLost`, unless the pod has a reason."""
