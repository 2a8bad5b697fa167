# SPDX-License-Identifier: Apache-2.0
"""Settings of the node lifecycle controller, with Kubernetes' defaults (behaviour C3.1)."""

from dataclasses import dataclass

from refloat.policy.node import disruption_mode, node_health


@dataclass(frozen=True, slots=True)
class NodeLifecycleSettings:
    health: node_health.NodeHealthSettings = node_health.DEFAULTS
    zones: disruption_mode.DisruptionModeSettings = disruption_mode.DEFAULTS

    attempts: int = 5
    """How often a write on a node is tried in one pass (C3.5)."""

    attempt_seconds: float = 0.02
    """From one such attempt to the next."""

    workers: int = 8
    """Nodes worked on at once; most of the time goes into waiting for answers."""

    taint_eviction: bool = True
    """Whether taint eviction runs, too. If not, the pods of a lost node get the reason `NodeLost`,
    because no other controller shows why they hang (KEP-3329)."""
