# SPDX-License-Identifier: Apache-2.0
"""How failure recovery works, and whether it does."""

from dataclasses import dataclass, field

from refloat.policy.failure_recovery import FailureRecoveryPolicy


@dataclass(frozen=True, slots=True)
class Settings:
    enabled: bool = False
    """The gate `FailureRecoveryPolicy`. Off, nothing is decided, told or touched."""

    policy: FailureRecoveryPolicy = field(default_factory=FailureRecoveryPolicy)
    """What the administrator allows."""

    whole_cluster: bool = True
    """Whether the pods of all namespaces are seen. If not, nobody knows what else runs on a node,
    and no node is declared out of service."""

    says_why: bool = False
    """The gate `RetriableAndNonRetriableFailures`: on, a pod that is ended has the reason
    `NodeLost`, unless it has one."""
