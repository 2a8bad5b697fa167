# SPDX-License-Identifier: Apache-2.0
"""One node's resources and pods, kept up to date for the scheduler and the node's agent.

`policy.scheduling.fit` decides with these facts, through `fit.NodeView`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from refloat.api import structs
from refloat.api.core import Node, Taint
from refloat.policy.scheduling import demand as demands
from refloat.policy.scheduling import tolerations
from refloat.policy.scheduling.demand import PODS, Demand
from refloat.policy.scheduling.fit import Room, Tenant

NOT_READY = "node.kubernetes.io/not-ready"


@dataclass(slots=True)
class NodeInfo:
    """The facts about one node; `known` is False while only pods name the node."""

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
    version: int = 0  # grows with each change
    _room_above: tuple[int, int, Room] | None = None  # for a version and a priority

    def describe(
        self, node: Node, *, overlook_not_ready: bool = False, force_eviction: bool = False
    ) -> bool:
        """Update from the node object; return whether anything changed."""
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
        """The node was deleted; its pods may still exist."""
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

    def room_above(self, priority: int) -> Room:
        """The room once all pods of lower priority are gone; callers must not change it.

        Computed once for a version of the node. Most nodes have not changed
        since the last pod of this priority asked.
        """
        cached = self._room_above
        if cached is not None and cached[:2] == (self.version, priority):
            return cached[2]
        room = self.room.copy()
        for tenant in self.tenants.values():
            if tenant.priority < priority:
                room.give(tenant.needs, tenant.ports)
        self._room_above = (self.version, priority, room)
        return room


def _taints(node: Node, *, overlook_not_ready: bool, force_eviction: bool) -> tuple[Taint, ...]:
    """The taints that count for scheduling.

    Every new node has the not-ready taint. With `overlook_not_ready`, no
    controller removes this taint, so a Ready node counts as without it. Taints
    of KEP-36 have no effect while their gate is off.
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
