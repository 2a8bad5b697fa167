# SPDX-License-Identifier: Apache-2.0
"""Whether a node takes a pod, and if not, why, in the words of Kubernetes.

A `Place` is a node as the scheduler sees it: what it is and what is left of
it. The order of the questions is that of Kubernetes' filters, and the first
that is answered with no gives the reasons. An objection is resolvable when
pods that leave could lift it; preemption looks at no others. Affinity between
pods, topology spread and volumes are not looked at.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from refloat.api import structs
from refloat.api.core import Node, Pod, Taint
from refloat.policy import demand as demands
from refloat.policy import tolerations
from refloat.policy.demand import ANY_ADDRESS, CPU, MEMORY, PODS, Demand, Needs, Port

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=tolerations.NO_SCHEDULE)
NOT_READY = "node.kubernetes.io/not-ready"

NO_NODES = "no nodes available to schedule pods"
CONTRADICTION = "pod affinity terms conflict"


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a node does not take a pod."""

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
    """What is left of a node."""

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
        """Whether a pod still fits in, whatever else the node is."""
        free = self.free
        for name, amount in demand.needs:
            if amount > free.get(name, 0):
                return False
        return self.pods > 0 and not (demand.ports and _conflict(demand.ports, self.ports))


@dataclass(frozen=True, slots=True)
class Tenant:
    """A pod that has its place on a node, or is about to be bound there."""

    pod: Pod
    needs: Needs
    ports: tuple[Port, ...]

    @property
    def priority(self) -> int:
        return demands.priority(self.pod)


@dataclass(slots=True)
class Place:
    """A node as the scheduler sees it; `known` is False while only pods tell of it."""

    name: str
    known: bool = False
    unschedulable: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    offers: dict[str, int] = field(default_factory=dict)
    room: Room = field(default_factory=Room)
    tenants: dict[str, Tenant] = field(default_factory=dict)  # by uid
    priorities: Counter[int] = field(default_factory=Counter)  # of the tenants
    expected: dict[str, Demand] = field(default_factory=dict)  # nominated pods, by uid
    version: int = 0  # grows with each change of any of it
    emptied: tuple[int, int, Room] | None = None  # kept by `preemption` for a version

    def describe(
        self, node: Node, *, overlook_not_ready: bool = False, force_eviction: bool = False
    ) -> bool:
        """Take over what the node is now; whether anything of that has changed."""
        facts = (
            True,
            node.spec.unschedulable,
            node.metadata.labels or {},
            _taints(node, overlook_not_ready=overlook_not_ready, force_eviction=force_eviction),
        )
        offers = demands.amounts(node.status.allocatable)
        if (self.known, self.unschedulable, self.labels, self.taints) == facts and (
            self.offers == offers
        ):
            return False
        self.known, self.unschedulable, self.labels, self.taints = facts
        self.offers = offers
        self._measure()
        return True

    def forget(self) -> None:
        """The node is gone; its pods may still be there."""
        self.known, self.offers = False, {}
        self._measure()

    def _measure(self) -> None:
        self.room = Room(dict(self.offers), self.offers.get(PODS, 0))
        for tenant in self.tenants.values():
            self.room.take(tenant.needs, tenant.ports)

    def add(self, uid: str, tenant: Tenant) -> None:
        self.tenants[uid] = tenant
        self.priorities[tenant.priority] += 1
        self.room.take(tenant.needs, tenant.ports)

    def remove(self, uid: str) -> None:
        tenant = self.tenants.pop(uid)
        self.room.give(tenant.needs, tenant.ports)
        self.priorities[tenant.priority] -= 1
        if not self.priorities[tenant.priority]:
            del self.priorities[tenant.priority]

    def room_for(self, demand: Demand, but: str = "") -> Room:
        """What is left when those who were promised a place before have theirs.

        A copy only if there are such: pods nominated for this node, of the
        demand's priority or above, other than the one with the uid `but`.
        """
        if not self.expected:
            return self.room
        return with_expected(self.room, self.expected, demand, but)


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


def objection(demand: Demand, place: Place, but: str = "") -> Objection | None:
    """Why the node does not take such a pod; None if it does."""
    if (against := unfit(demand, place)) is not None:
        return against
    room = place.room_for(demand, but)
    return None if room.suffices(demand) else lacking(demand, room, place)


def unfit(demand: Demand, place: Place) -> Objection | None:
    """What stands against the node whatever pods are on it."""
    names = demand.affinity.names
    if names is not None and place.name not in names:
        return NOT_NAMED
    if place.unschedulable and not _tolerated(demand, UNSCHEDULABLE_TAINT):
        return CORDONED
    if place.taints and _repelled(demand, place.taints):
        return TAINTED
    return None if _selected(demand, place) else NOT_SELECTED


def _tolerated(demand: Demand, taint: Taint) -> bool:
    return tolerations.is_tolerated(taint, demand.tolerations)


def _repelled(demand: Demand, taints: tuple[Taint, ...]) -> bool:
    found = tolerations.untolerated(taints, demand.tolerations, tolerations.REPELLING)
    return found is not None


def _selected(demand: Demand, place: Place) -> bool:
    labels = place.labels
    for key, value in demand.selector:
        if labels.get(key) != value:
            return False
    affinity = demand.affinity
    return affinity.required is None or affinity.matches(place.name, labels)


def lacking(demand: Demand, room: Room, place: Place) -> Objection:
    """What there is too little of; not to be mended if the whole node has too little."""
    if demand.ports and _conflict(demand.ports, room.ports):
        return PORTS_TAKEN
    few = ("Too many pods",) if room.pods <= 0 else ()
    short = [(name, n) for name, n in demand.needs if n > room.free.get(name, 0)]
    resolvable = all(amount <= place.offers.get(name, 0) for name, amount in short)
    return _insufficient(few, tuple(name for name, _ in short), resolvable=resolvable)


@lru_cache(1024)
def _insufficient(few: tuple[str, ...], names: tuple[str, ...], *, resolvable: bool) -> Objection:
    return Objection((*few, *(f"Insufficient {name}" for name in names)), resolvable)


def _conflict(wanted: Iterable[Port], taken: Mapping[Port, int]) -> bool:
    """The same number and protocol, on one address or on all."""
    return any(
        (protocol, number) == (other, taken_number)
        and (address == taken_address or ANY_ADDRESS in (address, taken_address))
        for address, protocol, number in wanted
        for taken_address, other, taken_number in taken
    )


def dislikes(demand: Demand, place: Place) -> int:
    """How many taints only ask to be avoided, and are not tolerated."""
    return sum(
        taint.effect == tolerations.PREFER_NO_SCHEDULE and not _tolerated(demand, taint)
        for taint in place.taints
    )


def share_taken(place: Place) -> float:
    """How much of the node is taken: the parts of its cpu, memory and pods, added."""
    offers, free = place.offers, place.room.free
    share = 0.0
    if cpu := offers.get(CPU):
        share += 1 - free[CPU] / cpu
    if memory := offers.get(MEMORY):
        share += 1 - free[MEMORY] / memory
    if pods := offers.get(PODS):
        share += 1 - place.room.pods / pods
    return share


def _taints(node: Node, *, overlook_not_ready: bool, force_eviction: bool) -> tuple[Taint, ...]:
    """Its taints; without the one that every new node has, if nobody is there to remove it.

    Those of KEP-36 do nothing while their gate is off.
    """
    taints = node.spec.taints or ()
    if taints and not force_eviction:
        taints = tuple(each for each in taints if each.effect != tolerations.FORCE_EVICTION)
    if not (taints and overlook_not_ready and structs.is_true(node.status.conditions, "Ready")):
        return taints
    return tuple(
        each
        for each in taints
        if not (each.key == NOT_READY and each.effect == tolerations.NO_SCHEDULE)
    )


def message(total: int, tally: Mapping[str, int]) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 ...`, sorted as texts."""
    said = sorted(f"{count} {reason}" for reason, count in tally.items() if count)
    return f"0/{total} nodes are available: {', '.join(said)}."
