# SPDX-License-Identifier: Apache-2.0
"""All nodes and who is on them, as the scheduler last knew it: its memory.

Where a pod goes is decided on this and nothing else. A pod takes its place
the moment that is decided, long before a watch tells of it, so no place is
given away twice. Nothing here reads or writes the API; who feeds it is in
`controllers/scheduler`.

Changes of nodes go into two histories, and each ranking reads on from where
it has come to: in the one of gains before it chooses, in the one of all
changes before it says why it found nothing. So a change costs nothing for
demands that nobody has any more.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from refloat.api.core import Node, Pod
from refloat.base.rand import Rand
from refloat.policy import demand as demands
from refloat.policy import fit
from refloat.policy.demand import Demand
from refloat.policy.fit import Place, Tenant
from refloat.policy.ranking import Ranking

# Rankings that are kept. Each has about 250 bytes for every node that it has
# looked at: 80 MB with 5,000 nodes, should there be so many demands at a time.
RANKINGS = 64

# Changes that are kept for rankings to read on from; who is further behind begins anew.
HISTORY = 20_000


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
        """Who has changed, each once; None if that is not known any more."""
        if cursor < self.dropped:
            return None
        found = self.names[cursor - self.dropped :]
        return found if len(found) < 2 else dict.fromkeys(found)


@dataclass(slots=True)
class _Known:
    """A ranking, and how far it has read."""

    ranking: Ranking
    gains: int
    changes: int
    hopeless: tuple[int, str] | None = None
    """When last nobody could be preempted, and what was said."""


class Cluster:
    """The nodes, their pods, and who was promised a place."""

    def __init__(
        self, rand: Rand, *, overlook_not_ready: bool = False, force_eviction: bool = False
    ) -> None:
        self._rand = rand
        self._overlook_not_ready = overlook_not_ready
        self._force_eviction = force_eviction
        self.places: dict[str, Place] = {}
        self._of: dict[str, Place] = {}  # by the uid of a pod that is there
        self._promised: dict[str, Place] = {}  # by the uid of a nominated pod
        self._names: list[str] | None = None
        self._count = 0
        self._known: OrderedDict[Demand, _Known] = OrderedDict()
        self._gains = _History()
        self._changes = _History()

    def __len__(self) -> int:
        """How many nodes there are."""
        return self._count

    def put_node(self, node: Node) -> Place | None:
        """A node is there, or has changed; None if nobody need care."""
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
        self._gained(place)  # rankings must not count it any more
        self._tidy(place)

    def put_pod(self, pod: Pod, node: str, demand: Demand | None = None) -> None:
        """The pod has its place on this node: bound there, or about to be."""
        uid = pod.metadata.uid
        held = self._of.get(uid)
        if held is not None and held.name == node:
            before = held.tenants[uid]
            if _weighs_the_same(before.pod, pod):
                held.tenants[uid] = Tenant(pod, before.needs, before.ports)
                return
        self.remove_pod(uid)
        self.withdraw(uid)
        if demand is None:
            tenant = Tenant(pod, demands.needs(pod), demands.ports(pod))
        else:
            tenant = Tenant(pod, demand.needs, demand.ports)
        place = self._of[uid] = self._place(node)
        place.add(uid, tenant)
        self._changed(place)

    def remove_pod(self, uid: str) -> Place | None:
        """The pod needs its place no more; the place that it had."""
        place = self._of.pop(uid, None)
        if place is not None:
            place.remove(uid)
            self._gained(place)
            self._tidy(place)
        return place

    def node_of(self, uid: str) -> str | None:
        place = self._of.get(uid)
        return None if place is None else place.name

    def promise(self, uid: str, node: str, demand: Demand) -> None:
        """Keep room on a node for a pod that is nominated for it."""
        held = self._promised.get(uid)
        if held is not None and held.name == node and held.expected[uid] is demand:
            return
        self.withdraw(uid)
        place = self._promised[uid] = self._place(node)
        place.expected[uid] = demand
        self._changed(place)

    def withdraw(self, uid: str) -> Place | None:
        """The pod is nominated no more; the place that was kept for it."""
        place = self._promised.pop(uid, None)
        if place is not None:
            del place.expected[uid]
            self._gained(place)
            self._tidy(place)
        return place

    def promised(self, uid: str) -> Place | None:
        return self._promised.get(uid)

    def choose(self, demand: Demand, uid: str = "") -> str | None:
        """The node for such a pod: the one that it is nominated for, or the best."""
        place = self._promised.get(uid)
        if place is not None and place.known and fit.objection(demand, place, uid) is None:
            return place.name
        return self._ranked(demand).ranking.best(self.places)

    @property
    def version(self) -> int:
        """Grows with each change of any node or its pods."""
        return self._changes.end

    def objections(self, demand: Demand) -> str:
        """Why no node takes such a pod, after `choose` has found none."""
        if not self._count:
            return fit.NO_NODES
        if demand.affinity.names == ():
            return f"0/{self._count} nodes are available: {fit.CONTRADICTION}."
        return fit.message(self._count, self._complete(demand).ranking.tally(self._count))

    def resolvable(self, demand: Demand) -> list[str]:
        """The nodes that would take it if pods left them, after `choose` has found none."""
        return self._complete(demand).ranking.resolvable()

    def hopeless(self, demand: Demand) -> str | None:
        """What was said when nobody could be preempted, if nothing has come free since."""
        found = self._ranked(demand).hopeless
        return found[1] if found is not None and found[0] == self._gains.end else None

    def note_hopeless(self, demand: Demand, said: str) -> None:
        self._ranked(demand).hopeless = (self._gains.end, said)

    def _place(self, name: str) -> Place:
        place = self.places.get(name)
        if place is None:
            place = self.places[name] = Place(name)
        return place

    def _tidy(self, place: Place) -> None:
        if not (place.known or place.tenants or place.expected):
            self.places.pop(place.name, None)

    def _changed(self, place: Place) -> None:
        place.version += 1
        self._changes.add(place.name)

    def _gained(self, place: Place) -> None:
        self._changed(place)
        self._gains.add(place.name)

    def _ranked(self, demand: Demand) -> _Known:
        """The ranking for this demand, which knows of every gain."""
        known = self._known.get(demand)
        gains = None if known is None else self._gains.since(known.gains)
        if known is None or gains is None:
            return self._begin(demand)
        self._known.move_to_end(demand)
        self._tell(known.ranking, gains)
        known.gains = self._gains.end
        return known

    def _complete(self, demand: Demand) -> _Known:
        """The ranking for this demand, all of whose objections are of now."""
        known = self._ranked(demand)
        changes = self._changes.since(known.changes)
        if changes is None:
            known = self._begin(demand)
            known.ranking.best(self.places)
        else:
            self._tell(known.ranking, changes)
            known.changes = self._changes.end
        return known

    def _begin(self, demand: Demand) -> _Known:
        ranking = Ranking(demand, self._sorted_names(), self._rand)
        known = self._known[demand] = _Known(ranking, self._gains.end, self._changes.end)
        self._known.move_to_end(demand)
        if len(self._known) > RANKINGS:
            self._known.popitem(last=False)
        return known

    def _tell(self, ranking: Ranking, names: Iterable[str]) -> None:
        for name in names:
            ranking.update(name, self.places.get(name))

    def _sorted_names(self) -> Sequence[str]:
        """In a list that is replaced, never changed: rankings go through it bit by bit."""
        if self._names is None:
            self._names = sorted(name for name, each in self.places.items() if each.known)
        return self._names


def _weighs_the_same(before: Pod, after: Pod) -> bool:
    """Whether a new version takes the same room; caches share parts that are equal."""
    old, new = before.spec, after.spec
    return old is new or (
        old.containers == new.containers
        and old.init_containers == new.init_containers
        and old.resources == new.resources
        and old.overhead == new.overhead
        and old.priority == new.priority
    )
