# SPDX-License-Identifier: Apache-2.0
"""How the node lifecycle controller works; every default is Kubernetes' (behaviour C3.1)."""

from dataclasses import dataclass

from refloat.policy import disruption_mode, node_health


@dataclass(frozen=True, slots=True)
class Settings:
    health: node_health.Settings = node_health.DEFAULTS
    zones: disruption_mode.Settings = disruption_mode.DEFAULTS

    attempts: int = 5
    """How often a write on a node is tried in one look (C3.5)."""

    attempt_seconds: float = 0.02
    """From one such attempt to the next."""

    workers: int = 8
    """Nodes worked on at once; most of the time goes into waiting for answers."""

    taint_eviction: bool = True
    """Whether taint eviction runs beside it. If not, the pods of a lost node get the reason
    `NodeLost`: nobody else would say why they hang (KEP-3329)."""
