# SPDX-License-Identifier: Apache-2.0
"""How fast nodes may be tainted, from how many are well (behaviour C3.12-C3.15).

When much of a zone is down, or all of a cluster, it is rather the control
plane that is cut off than the nodes: then pods are evicted slowly or not at
all. Who counts the nodes and who taints them is the node lifecycle
controller's.
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
class Settings:
    """Kubernetes' own values (C3.1)."""

    rate: float = 0.1
    """Nodes tainted a second in a zone that is well, or wholly down while others are well."""

    secondary_rate: float = 0.01
    """The same in a large zone of which much is down; in a small one nothing is tainted."""

    large_zone: int = 50
    """A zone of more nodes than this is large."""

    unhealthy: float = 0.55
    """The part of a zone's nodes that makes it a partial disruption."""


DEFAULTS = Settings()


@dataclass(slots=True)
class Count:
    """The nodes of a zone that are counted."""

    ready: int = 0
    not_ready: int = 0

    @property
    def size(self) -> int:
        return self.ready + self.not_ready


@dataclass(frozen=True, slots=True)
class Plan:
    """What changes when the nodes have been counted."""

    states: Mapping[str, State]
    """Of all zones, from now on."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """Of the zones whose rate is set anew, in nodes a second."""

    all_down: bool = False
    """No node that is counted is ready, in no zone."""

    enters: bool = False
    """All is down, and was not in these zones: taints are to be taken off again."""

    leaves: bool = False
    """All was down and something is well again: every node begins its grace anew."""


def zone_of(node: Node) -> str:
    """Region and zone in one text, as Kubernetes joins them; empty without both (C3.12)."""
    labels = node.metadata.labels or {}
    zone, region = _first(labels, _ZONE_LABELS), _first(labels, _REGION_LABELS)
    return f"{region}:\0:{zone}" if zone or region else ""


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if name in labels), "")


def is_counted(node: Node) -> bool:
    return EXCLUDED_LABEL not in (node.metadata.labels or {})


def state_of(count: Count, settings: Settings) -> State:
    """The state of one zone (C3.13)."""
    if not count.ready and count.not_ready:
        return "FullDisruption"
    if count.not_ready > _FEW and count.not_ready / count.size >= settings.unhealthy:
        return "PartialDisruption"
    return "Normal"


def rate_of(state: State, size: int, settings: Settings) -> float:
    """How many nodes of a zone are tainted a second (C3.14)."""
    if state != "PartialDisruption":
        return settings.rate
    return settings.secondary_rate if size > settings.large_zone else 0.0


def plan(before: Mapping[str, State], counts: Mapping[str, Count], settings: Settings) -> Plan:
    """What becomes of each zone that has nodes; `before` has their states, if known."""
    now = {zone: state_of(count, settings) for zone, count in counts.items() if count.size}
    held: dict[str, State] = {zone: before.get(zone, "Initial") for zone in now}
    all_down, were_down = _all_down(now), _all_down(held)
    if all_down and were_down:
        return Plan(now, all_down=True)
    if all_down:
        return Plan(now, dict.fromkeys(now, 0.0), all_down=True, enters=True)
    changed = now if were_down else {z: state for z, state in now.items() if state != held[z]}
    rates = {zone: rate_of(state, counts[zone].size, settings) for zone, state in changed.items()}
    return Plan(now, rates, leaves=were_down)


def _all_down(states: Mapping[str, State]) -> bool:
    return set(states.values()) == {"FullDisruption"}


@dataclass(slots=True)
class Bucket:
    """So many a second, one at once; kept as the time of the next one, so nothing ticks."""

    rate: float
    next_at: float = 0.0

    def take(self, now: float) -> bool:
        if self.rate <= 0 or now < self.next_at - 1e-6:
            return False
        self.next_at = now + 1 / self.rate
        return True

    def wait(self, now: float) -> float | None:
        """How long until there is one; none while there are none at all."""
        return None if self.rate <= 0 else max(0.0, self.next_at - now)

    def change(self, rate: float, now: float) -> None:
        """Another rate from now on; whoever had to wait starts its wait anew."""
        if rate == self.rate:
            return
        had = self.take(now)
        self.rate = rate
        self.next_at = now if had or rate <= 0 else now + 1 / rate
