# SPDX-License-Identifier: Apache-2.0
"""How fast nodes may be tainted, by the share of ready nodes (behaviour C3.12-C3.15).

When much of a zone or all of a cluster is down, the control plane is probably cut off, not the
nodes: then pods are evicted slowly or not at all. The node lifecycle controller counts and taints
the nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from refloat.api.core import Node

EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"

_ZONE_LABELS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION_LABELS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")

# Fewer nodes than this are never a partial disruption.
_FEW = 2

State: TypeAlias = Literal["Initial", "Normal", "PartialDisruption", "FullDisruption"]


@dataclass(frozen=True, slots=True)
class DisruptionModeSettings:
    """Kubernetes' own values (C3.1)."""

    rate: float = 0.1
    """Nodes tainted per second in a healthy zone, or in a zone that is all down while others are
    not."""

    secondary_rate: float = 0.01
    """The same in a large zone of which much is down; in a small one nothing is tainted."""

    large_zone: int = 50
    """A zone of more nodes than this is large."""

    unhealthy: float = 0.55
    """The part of a zone's nodes that makes it a partial disruption."""


DEFAULTS = DisruptionModeSettings()


@dataclass(frozen=True, slots=True)
class Count:
    """The nodes of a zone that are counted."""

    ready: int = 0
    not_ready: int = 0

    @property
    def size(self) -> int:
        return self.ready + self.not_ready


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """The changes after a count of the nodes."""

    states: Mapping[str, State]
    """Of all zones, from now on."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Of the zones whose rate is set anew, in nodes a second."""

    all_down: bool = False
    """No counted node of any zone is ready."""

    enters: bool = False
    """All zones are down now, and were not before: remove the taints again."""

    leaves: bool = False
    """All zones were down, and one is up again: the grace period of each node starts again."""


def zone_of(node: Node) -> str:
    """Region and zone in one text, as Kubernetes joins them; empty without both (C3.12)."""
    labels = node.metadata.labels or {}
    zone, region = _first(labels, _ZONE_LABELS), _first(labels, _REGION_LABELS)
    return f"{region}:\0:{zone}" if zone or region else ""


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if name in labels), "")


def is_counted(node: Node) -> bool:
    return EXCLUDED_LABEL not in (node.metadata.labels or {})


def state_of(count: Count, settings: DisruptionModeSettings) -> State:
    """The state of one zone (C3.13)."""
    if not count.ready and count.not_ready:
        return "FullDisruption"
    if count.not_ready > _FEW and count.not_ready / count.size >= settings.unhealthy:
        return "PartialDisruption"
    return "Normal"


def rate_of(state: State, size: int, settings: DisruptionModeSettings) -> float:
    """How many nodes of a zone are tainted a second (C3.14)."""
    if state != "PartialDisruption":
        return settings.rate
    return settings.secondary_rate if size > settings.large_zone else 0.0


def plan(
    before: Mapping[str, State], counts: Mapping[str, Count], settings: DisruptionModeSettings
) -> ZonePlan:
    """The plan for all zones with nodes; `before` has their last states, if known."""
    now = {zone: state_of(count, settings) for zone, count in counts.items() if count.size}
    previous: dict[str, State] = {zone: before.get(zone, "Initial") for zone in now}
    all_down, were_down = _all_down(now), _all_down(previous)
    if all_down and were_down:
        return ZonePlan(now, all_down=True)
    if all_down:
        return ZonePlan(now, dict.fromkeys(now, 0.0), all_down=True, enters=True)
    changed = now if were_down else {z: state for z, state in now.items() if state != previous[z]}
    rates = {zone: rate_of(state, counts[zone].size, settings) for zone, state in changed.items()}
    return ZonePlan(now, rates, leaves=were_down)


def _all_down(states: Mapping[str, State]) -> bool:
    return set(states.values()) == {"FullDisruption"}
