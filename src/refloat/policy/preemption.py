# SPDX-License-Identifier: Apache-2.0
"""Which pods make room for one of higher priority (behaviour C7).

On a node first all pods of lower priority are thought away; if the pod fits
then, as many of them as possible stay, those that a disruption budget
protects first, then the more important ones. Among nodes the one wins where
the fewest budgets are broken and the least is lost. Who writes what to whom
is in `controllers/scheduler`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import selectors, structs
from refloat.api.core import Pod
from refloat.base.rand import Rand
from refloat.policy import disruption, fit
from refloat.policy.cluster import Cluster
from refloat.policy.demand import Demand
from refloat.policy.fit import Objection, Place, Room, Tenant

# Nodes on which victims were found and are compared: Kubernetes' own number for
# up to a thousand nodes. It takes a tenth of bigger clusters, which would hold up
# everybody else in this process.
CANDIDATES = 100

REASON = "PreemptionByScheduler"

NO_VICTIMS = Objection(("No preemption victims found for incoming pod",))
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NEVER = "not eligible due to preemptionPolicy=Never."
ON_ITS_WAY = "not eligible due to a terminating pod on the nominated node."

# What Kubernetes says before: its scheduler has looked for devices that could be
# freed, and these pods have none.
_NO_CLAIMS = "no new claims to deallocate, preemption:"

Leaving: TypeAlias = Callable[[Pod], bool]
"""Whether a pod was preempted already."""

# Priorities may be negative; more pods must never look cheaper than fewer.
_LOWEST = 1 << 31


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget, as far as it matters here."""

    namespace: str
    selector: selectors.LabelSelector
    allowed: int
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose disruption it has taken into account already."""

    def protects(self, pod: Pod) -> bool:
        meta = pod.metadata
        return (
            self.namespace == meta.namespace
            and bool(meta.labels)
            and not self.selector.empty
            and self.selector.matches(meta.labels or {})
            and meta.name not in self.disrupted
        )


@dataclass(frozen=True, slots=True)
class Victims:
    """Who must leave a node, the most important one first."""

    node: str
    pods: tuple[Pod, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class Nobody:
    """Nobody is preempted, and what is said of it, if anything."""

    said: str = ""
    keeps_promise: bool = False
    """Whether the pod stays nominated for the node that it was nominated for."""


Plan: TypeAlias = Victims | Nobody


def plan(
    cluster: Cluster,
    demand: Demand,
    uid: str,
    *,
    budgets: Sequence[Budget],
    rand: Rand,
    leaving: Leaving,
) -> Plan:
    """Whom to preempt for a pod that no node takes."""
    if not len(cluster):
        return Nobody()
    if demand.affinity.names == ():
        return Nobody("not found", keeps_promise=True)
    if not demand.preempts:
        return Nobody(f"{_NO_CLAIMS} {NEVER}", keeps_promise=True)
    place = cluster.promised(uid)
    if place is not None and _must_wait(demand, place, uid, leaving):
        return Nobody(f"{_NO_CLAIMS} {ON_ITS_WAY}", keeps_promise=True)
    found = _search(cluster, demand, uid, budgets, rand)
    return found if isinstance(found, Victims) else Nobody(f"{_NO_CLAIMS} {found}")


def _must_wait(demand: Demand, place: Place, uid: str, leaving: Leaving) -> bool:
    """Whether somebody is leaving the node that the pod is nominated for, and that helps."""
    if not place.known or not has_lower(demand, place):
        return False
    against = fit.objection(demand, place, uid)
    if against is not None and not against.resolvable:
        return False
    return any(
        tenant.priority < demand.priority and leaving(tenant.pod)
        for tenant in place.tenants.values()
    )


def _search(
    cluster: Cluster, demand: Demand, uid: str, budgets: Sequence[Budget], rand: Rand
) -> Victims | str:
    """Whom to preempt; why that does not help anywhere."""
    # What is said of all pods with this demand does not hold for one that has a place promised.
    is_like_others = cluster.promised(uid) is None
    if is_like_others and (known := cluster.hopeless(demand)) is not None:
        return known
    names = cluster.resolvable(demand)
    start = rand.below(len(names)) if names else 0
    found, tally = _candidates(cluster, demand, uid, (*names[start:], *names[:start]), budgets)
    if found:
        return pick(found, rand)
    tally[NOT_HELPFUL] += len(cluster) - len(names)
    said = fit.message(len(cluster), tally)
    if is_like_others:
        cluster.note_hopeless(demand, said)
    return said


def _candidates(
    cluster: Cluster, demand: Demand, uid: str, names: Iterable[str], budgets: Sequence[Budget]
) -> tuple[list[Victims], Counter[str]]:
    """Enough nodes on which it works, and why it does not on the others."""
    found: list[Victims] = []
    tally: Counter[str] = Counter()
    harmless = False
    for name in names:
        answer = on_node(demand, cluster.places[name], budgets, uid)
        if isinstance(answer, Objection):
            for reason in answer.reasons:
                tally[reason] += 1
            continue
        found.append(answer)
        harmless = harmless or not answer.violations
        if harmless and len(found) >= CANDIDATES:
            break
    return found, tally


def on_node(
    demand: Demand, place: Place, budgets: Sequence[Budget], uid: str = ""
) -> Victims | Objection:
    """Who must leave this node; an objection if that does not help either."""
    if not has_lower(demand, place):
        return NO_VICTIMS
    room = _emptied(demand, place, uid)
    if not room.suffices(demand):
        return fit.lacking(demand, room, place)
    room = room.copy()
    lower = [each for each in place.tenants.values() if each.priority < demand.priority]
    protected, others = _split(sorted(lower, key=_importance), budgets)
    violated = _not_spared(demand, room, protected)
    gone = violated + _not_spared(demand, room, others)
    if not gone:
        return NO_VICTIMS
    if violated:
        gone.sort(key=_importance)
    return Victims(place.name, tuple(each.pod for each in gone), len(violated))


def would_help(demand: Demand, place: Place, uid: str = "") -> bool:
    """Whether the pod fits once all pods of lower priority are gone."""
    if not demand.preempts or not has_lower(demand, place):
        return False
    return _emptied(demand, place, uid).suffices(demand)


def has_lower(demand: Demand, place: Place) -> bool:
    return bool(place.priorities) and min(place.priorities) < demand.priority


def _emptied(demand: Demand, place: Place, uid: str) -> Room:
    """The room without those of lower priority, not to be changed.

    Worked out once for a version of the place: most nodes are the same as when
    the last pod of this priority looked.
    """
    known = place.emptied
    if known is not None and known[:2] == (place.version, demand.priority):
        room = known[2]
    else:
        room = place.room.copy()
        for tenant in place.tenants.values():
            if tenant.priority < demand.priority:
                room.give(tenant.needs, tenant.ports)
        place.emptied = (place.version, demand.priority, room)
    return fit.with_expected(room, place.expected, demand, uid)


def _not_spared(demand: Demand, room: Room, tenants: Iterable[Tenant]) -> list[Tenant]:
    """Let each stay if the pod fits beside it; those who cannot."""
    gone = []
    for tenant in tenants:
        room.take(tenant.needs, tenant.ports)
        if not room.suffices(demand):
            room.give(tenant.needs, tenant.ports)
            gone.append(tenant)
    return gone


def _split(
    tenants: Iterable[Tenant], budgets: Sequence[Budget]
) -> tuple[list[Tenant], list[Tenant]]:
    """Those whose leaving would break a budget, and the others."""
    if not budgets:
        return [], list(tenants)
    left = [each.allowed for each in budgets]
    protected: list[Tenant] = []
    others: list[Tenant] = []
    for tenant in tenants:
        broken = _breaks(tenant.pod, budgets, left)
        (protected if broken else others).append(tenant)
    return protected, others


def _breaks(pod: Pod, budgets: Sequence[Budget], left: list[int]) -> bool:
    for number, budget in enumerate(budgets):
        if budget.protects(pod):
            left[number] -= 1
            if left[number] < 0:
                return True
    return False


def _importance(tenant: Tenant) -> tuple[int, str]:
    """The more important one first: of higher priority, then running for longer."""
    return -tenant.priority, _started(tenant.pod)


def _started(pod: Pod) -> str:
    """Times of one form sort as texts; who has not started is the latest of all."""
    return pod.status.start_time or "~"


def pick(found: Sequence[Victims], rand: Rand) -> Victims:
    """Where the least is lost; chance among equals."""
    best, *others = sorted(found, key=_loss)
    equal = [best, *(each for each in others if _loss(each) == _loss(best))]
    latest = max(_earliest(each) for each in equal)
    return rand.choice([each for each in equal if _earliest(each) == latest])


def _loss(victims: Victims) -> tuple[int, int, int, int]:
    priorities = [pod.spec.priority or 0 for pod in victims.pods]
    total = sum(each + _LOWEST for each in priorities)
    return victims.violations, max(priorities, default=-_LOWEST), total, len(priorities)


def _earliest(victims: Victims) -> str:
    """When the first of the most important victims was started."""
    highest = max((pod.spec.priority or 0 for pod in victims.pods), default=0)
    times = [_started(pod) for pod in victims.pods if (pod.spec.priority or 0) == highest]
    return min(times, default="~")


def is_leaving(pod: Pod, *, by_condition: bool) -> bool:
    """Deleted because of a preemption, as far as one can tell without the condition."""
    if not pod.is_terminating:
        return False
    condition = structs.find(pod.status.conditions, disruption.TARGET)
    told = condition is not None and (condition.status, condition.reason) == ("True", REASON)
    return told or not by_condition
