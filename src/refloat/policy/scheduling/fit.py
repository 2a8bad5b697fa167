# SPDX-License-Identifier: Apache-2.0
"""Whether a pod fits on a node, and if not, why, in the words of Kubernetes.

The checks run in the order of Kubernetes' filters, and the first one that
fails gives the reasons. An objection is resolvable if it could go away when
pods leave the node; preemption considers only these. Pod affinity, topology
spread and volumes are not checked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from refloat.api.core import Pod, Taint
from refloat.policy.scheduling import demand as demands
from refloat.policy.scheduling import tolerations
from refloat.policy.scheduling.demand import ANY_ADDRESS, CPU, MEMORY, PODS, Demand, Needs, Port

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=tolerations.NO_SCHEDULE)

NO_NODES = "no nodes available to schedule pods"
CONTRADICTION = "pod affinity terms conflict"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a pod does not fit on a node."""

    reasons: tuple[str, ...]
    resolvable: bool = False


NOT_NAMED = Objection(("node(s) didn't satisfy plugin(s) [NodeAffinity]",))
CORDONED = Objection(("node(s) were unschedulable",))
TAINTED = Objection(("node(s) had untolerated taint(s)",))
NOT_SELECTED = Objection(("node(s) didn't match Pod's node affinity/selector",))
PORTS_TAKEN = Objection(
    ("node(s) didn't have free ports for the requested pod ports",), resolvable=True
)


@dataclass(slots=True)
class Room:
    """The free resources of a node."""

    free: dict[str, int] = field(default_factory=dict)
    pods: int = 0
    ports: Counter[Port] = field(default_factory=Counter)

    def copy(self) -> "Room":
        return Room(dict(self.free), self.pods, self.ports.copy() if self.ports else Counter())

    def take(self, needs: Needs, ports: Iterable[Port]) -> None:
        free = self.free
        for name, amount in needs:
            free[name] = free.get(name, 0) - amount
        self.pods -= 1
        for port in ports:
            self.ports[port] += 1

    def give(self, needs: Needs, ports: Iterable[Port]) -> None:
        free = self.free
        for name, amount in needs:
            free[name] = free.get(name, 0) + amount
        self.pods += 1
        for port in ports:
            self.ports[port] -= 1
            if not self.ports[port]:
                del self.ports[port]

    def suffices(self, demand: Demand) -> bool:
        """Whether the free resources suffice for a pod."""
        free = self.free
        for name, amount in demand.needs:
            if amount > free.get(name, 0):
                return False
        return self.pods > 0 and not (demand.ports and _conflict(demand.ports, self.ports))


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod that is bound to a node, or is about to be."""

    pod: Pod
    needs: Needs
    ports: tuple[Port, ...]

    @property
    def priority(self) -> int:
        return demands.priority(self.pod)


class NodeView(Protocol):
    """A node as a decision reads it; `runtime.node_info.NodeInfo` keeps one up to date."""

    @property
    def name(self) -> str: ...
    @property
    def known(self) -> bool:
        """False while pods name the node but the node itself was not observed."""

    @property
    def unschedulable(self) -> bool: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def taints(self) -> tuple[Taint, ...]: ...
    @property
    def offers(self) -> Mapping[str, int]: ...
    @property
    def room(self) -> Room: ...
    @property
    def tenants(self) -> Mapping[str, Tenant]:
        """Pods on the node, by uid."""

    @property
    def priorities(self) -> Mapping[int, int]:
        """How many tenants have each priority."""

    @property
    def expected(self) -> Mapping[str, Demand]:
        """Demands of the pods that are nominated for the node, by uid."""

    def room_above(self, priority: int) -> Room:
        """The room once all pods of lower priority are gone; callers must not change it."""


def room_for(demand: Demand, node: NodeView, but: str = "") -> Room:
    """What is left once each pod with an earlier claim is on the node.

    These are the pods nominated for this node, of the demand's priority or above, except the one
    with the uid `but`. Without such pods this is the node's own room, not a copy.
    """
    return with_expected(node.room, node.expected, demand, but) if node.expected else node.room


def with_expected(
    room: Room, expected: Mapping[str, Demand], demand: Demand, but: str = ""
) -> Room:
    before = [
        each for uid, each in expected.items() if uid != but and each.priority >= demand.priority
    ]
    if before:
        room = room.copy()
        for each in before:
            room.take(each.needs, each.ports)
    return room


def objection(demand: Demand, node: NodeView, but: str = "") -> Objection | None:
    """Why such a pod does not fit on the node; None if it does."""
    if (against := unfit(demand, node)) is not None:
        return against
    room = room_for(demand, node, but)
    return None if room.suffices(demand) else lacking(demand, room, node)


def unfit(demand: Demand, node: NodeView) -> Objection | None:
    """What stands against the node whatever pods are on it."""
    names = demand.affinity.names
    if names is not None and node.name not in names:
        return NOT_NAMED
    if node.unschedulable and not _tolerated(demand, UNSCHEDULABLE_TAINT):
        return CORDONED
    if node.taints and tolerations.untolerated(
        node.taints, demand.tolerations, tolerations.REPELLING
    ):
        return TAINTED
    labels, affinity = node.labels, demand.affinity
    for key, value in demand.selector:
        if labels.get(key) != value:
            return NOT_SELECTED
    if affinity.required is None or affinity.matches(node.name, labels):
        return None
    return NOT_SELECTED


def _tolerated(demand: Demand, taint: Taint) -> bool:
    return tolerations.is_tolerated(taint, demand.tolerations)


def lacking(demand: Demand, room: Room, node: NodeView) -> Objection:
    """The missing resources; not resolvable if the whole node has too little."""
    if demand.ports and _conflict(demand.ports, room.ports):
        return PORTS_TAKEN
    few = ("Too many pods",) if room.pods <= 0 else ()
    short = [(name, n) for name, n in demand.needs if n > room.free.get(name, 0)]
    resolvable = all(amount <= node.offers.get(name, 0) for name, amount in short)
    return _insufficient(few, tuple(name for name, _ in short), resolvable=resolvable)


@lru_cache(1024)
def _insufficient(few: tuple[str, ...], names: tuple[str, ...], *, resolvable: bool) -> Objection:
    return Objection((*few, *(f"Insufficient {name}" for name in names)), resolvable)


def _conflict(ports: Iterable[Port], others: Mapping[Port, int]) -> bool:
    """The same number and protocol, on one address or on all."""
    return any(
        (protocol, number) == (other, taken_number)
        and (address == taken_address or ANY_ADDRESS in (address, taken_address))
        for address, protocol, number in ports
        for taken_address, other, taken_number in others
    )


def dislikes(demand: Demand, node: NodeView) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        taint.effect == tolerations.PREFER_NO_SCHEDULE and not _tolerated(demand, taint)
        for taint in node.taints
    )


def share_taken(node: NodeView) -> float:
    """How much of the node is in use: the shares of its cpu, memory and pods, added."""
    offers, free = node.offers, node.room.free
    share = 0.0
    if cpu := offers.get(CPU):
        share += 1 - free[CPU] / cpu
    if memory := offers.get(MEMORY):
        share += 1 - free[MEMORY] / memory
    if pods := offers.get(PODS):
        share += 1 - node.room.pods / pods
    return share


def message(total: int, tally: Mapping[str, int]) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 ...`, sorted as texts."""
    parts = sorted(f"{count} {reason}" for reason, count in tally.items() if count)
    return f"0/{total} nodes are available: {', '.join(parts)}."
