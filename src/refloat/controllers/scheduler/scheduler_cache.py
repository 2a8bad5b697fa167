# SPDX-License-Identifier: Apache-2.0
"""The scheduler's memory: all nodes and their pods.

The scheduler decides on this cache alone. A pod takes its room at the moment of the decision,
long before the watch shows the pod, so no room is used twice. This module neither reads nor
writes the API; `scheduler` updates the cache.

Changes of nodes are kept in two histories. A ranking reads the history of gains before it
chooses a node, and the history of all changes before it explains why no node fits. So a change
costs nothing for demands that no pod has any more.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from refloat.api.core import Node, Pod
from refloat.base.rand import Rand
from refloat.controllers.scheduler.node_ranking import NodeRanking
from refloat.policy.scheduling import demand as demands
from refloat.policy.scheduling import fit
from refloat.policy.scheduling.demand import Demand
from refloat.policy.scheduling.fit import Tenant
from refloat.runtime.node_info import NodeInfo

# Rankings that are kept. Each has about 250 bytes for every node that it has checked: 80 MB with
# 5,000 nodes, if there are so many demands at a time.
RANKINGS = 64

# Changes that are kept for rankings; a ranking that is further behind is made again.
HISTORY = 20_000

# The part of a pod's spec that decides how much room the pod takes.
_ROOM_OF = attrgetter("containers", "init_containers", "resources", "overhead", "priority")


@dataclass(slots=True)
class _History:
    """Names of nodes that have changed, the latest last."""

    names: list[str] = field(default_factory=list)
    dropped: int = 0

    @property
    def end(self) -> int:
        return self.dropped + len(self.names)

    def add(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) > HISTORY:
            del self.names[: HISTORY // 2]
            self.dropped += HISTORY // 2

    def since(self, cursor: int) -> Iterable[str] | None:
        """The nodes that changed since `cursor`; None if the history is too short."""
        if cursor < self.dropped:
            return None
        names = self.names[cursor - self.dropped :]
        return names if len(names) < 2 else dict.fromkeys(names)


@dataclass(slots=True)
class _CachedRanking:
    """A ranking, and how far it has read the histories."""

    ranking: NodeRanking
    gains: int
    changes: int
    hopeless: tuple[int, str] | None = None
    """When no preemption was possible the last time, and the message."""


class SchedulerCache:
    """The nodes, their pods, and the nominated pods."""

    def __init__(
        self, rand: Rand, *, overlook_not_ready: bool = False, force_eviction: bool = False
    ) -> None:
        self._rand = rand
        self._overlook_not_ready = overlook_not_ready
        self._force_eviction = force_eviction
        self.places: dict[str, NodeInfo] = {}
        self._of: dict[str, NodeInfo] = {}  # by the uid of a pod that is there
        self._nominated_nodes: dict[str, NodeInfo] = {}  # by the uid of a nominated pod
        self._names: list[str] | None = None
        self._count = 0
        self._known: OrderedDict[Demand, _CachedRanking] = OrderedDict()
        self._gains = _History()
        self._changes = _History()

    def __len__(self) -> int:
        """How many nodes there are."""
        return self._count

    def put_node(self, node: Node) -> NodeInfo | None:
        """Note a new or changed node; None if the change does not matter."""
        place = self._place(node.metadata.name)
        is_new = not place.known
        changed = place.describe(
            node,
            overlook_not_ready=self._overlook_not_ready,
            force_eviction=self._force_eviction,
        )
        if not changed:
            return None
        if is_new:
            self._count += 1
            self._names = None
        self._gained(place)
        return place

    def remove_node(self, name: str) -> None:
        place = self.places[name]
        place.forget()
        self._count -= 1
        self._names = None
        self._gained(place)  # rankings must no longer count the node
        self._tidy(place)

    def put_pod(self, pod: Pod, node: str, demand: Demand | None = None) -> None:
        """Reserve the room of a pod that is bound to this node, or will be."""
        uid = pod.metadata.uid
        current = self._of.get(uid)
        if current is not None and current.name == node:
            before = current.tenants[uid]
            old, new = before.pod.spec, pod.spec
            # Caches share equal parts of two versions.
            if old is new or _ROOM_OF(old) == _ROOM_OF(new):
                current.tenants[uid] = Tenant(pod, before.needs, before.ports)
                return
        self.remove_pod(uid)
        self.withdraw_nomination(uid)
        if demand is None:
            tenant = Tenant(pod, demands.needs(pod), demands.ports(pod))
        else:
            tenant = Tenant(pod, demand.needs, demand.ports)
        place = self._of[uid] = self._place(node)
        place.add(uid, tenant)
        self._changed(place)

    def remove_pod(self, uid: str) -> NodeInfo | None:
        """Free the room of a pod; returns its node."""
        place = self._of.pop(uid, None)
        if place is not None:
            place.remove(uid)
            self._gained(place)
            self._tidy(place)
        return place

    def node_of(self, uid: str) -> str | None:
        place = self._of.get(uid)
        return None if place is None else place.name

    def nominate(self, uid: str, node: str, demand: Demand) -> None:
        """Keep room on a node for a pod that is nominated for it."""
        current = self._nominated_nodes.get(uid)
        if current is not None and current.name == node and current.expected[uid] is demand:
            return
        self.withdraw_nomination(uid)
        place = self._nominated_nodes[uid] = self._place(node)
        place.expected[uid] = demand
        self._changed(place)

    def withdraw_nomination(self, uid: str) -> NodeInfo | None:
        """End the nomination of a pod; returns the node."""
        place = self._nominated_nodes.pop(uid, None)
        if place is not None:
            del place.expected[uid]
            self._gained(place)
            self._tidy(place)
        return place

    def nominated_node(self, uid: str) -> NodeInfo | None:
        return self._nominated_nodes.get(uid)

    def choose(self, demand: Demand, uid: str = "") -> str | None:
        """The node for a pod with this demand: its nominated node, or the best one."""
        place = self._nominated_nodes.get(uid)
        if place is not None and place.known and fit.objection(demand, place, uid) is None:
            return place.name
        return self._ranked(demand).ranking.best(self.places)

    @property
    def version(self) -> int:
        """A number that grows with each change of a node or its pods."""
        return self._changes.end

    def objections(self, demand: Demand) -> str:
        """Why no node takes such a pod, after `choose` has found none."""
        if not self._count:
            return fit.NO_NODES
        if demand.affinity.names == ():
            return f"0/{self._count} nodes are available: {fit.CONTRADICTION}."
        return fit.message(self._count, self._complete(demand).ranking.tally(self._count))

    def resolvable(self, demand: Demand) -> list[str]:
        """The nodes that would fit if pods left them, after `choose` has found none."""
        return self._complete(demand).ranking.resolvable()

    def hopeless(self, demand: Demand) -> str | None:
        """The message of the last failed preemption, if nothing was freed since."""
        entry = self._ranked(demand).hopeless
        return entry[1] if entry is not None and entry[0] == self._gains.end else None

    def note_hopeless(self, demand: Demand, message: str) -> None:
        self._ranked(demand).hopeless = (self._gains.end, message)

    def _place(self, name: str) -> NodeInfo:
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = NodeInfo(name)
        return place

    def _tidy(self, place: NodeInfo) -> None:
        if not (place.known or place.tenants or place.expected):
            self.places.pop(place.name, None)

    def _changed(self, place: NodeInfo) -> None:
        place.version += 1
        self._changes.add(place.name)

    def _gained(self, place: NodeInfo) -> None:
        self._changed(place)
        self._gains.add(place.name)

    def _ranked(self, demand: Demand) -> _CachedRanking:
        """The ranking for this demand, updated with all gains."""
        entry = self._known.get(demand)
        gains = None if entry is None else self._gains.since(entry.gains)
        if entry is None or gains is None:
            return self._begin(demand)
        self._known.move_to_end(demand)
        self._update(entry.ranking, gains)
        entry.gains = self._gains.end
        return entry

    def _complete(self, demand: Demand) -> _CachedRanking:
        """The ranking for this demand, with all objections up to date."""
        entry = self._ranked(demand)
        changes = self._changes.since(entry.changes)
        if changes is None:
            entry = self._begin(demand)
            entry.ranking.best(self.places)
        else:
            self._update(entry.ranking, changes)
            entry.changes = self._changes.end
        return entry

    def _begin(self, demand: Demand) -> _CachedRanking:
        # Rankings read the list step by step, so it is replaced and never changed.
        if self._names is None:
            self._names = sorted(name for name, each in self.places.items() if each.known)
        ranking = NodeRanking(demand, self._names, self._rand)
        entry = self._known[demand] = _CachedRanking(ranking, self._gains.end, self._changes.end)
        self._known.move_to_end(demand)
        if len(self._known) > RANKINGS:
            self._known.popitem(last=False)
        return entry

    def _update(self, ranking: NodeRanking, names: Iterable[str]) -> None:
        for name in names:
            ranking.update(name, self.places.get(name))
