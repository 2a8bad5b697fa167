# SPDX-License-Identifier: Apache-2.0
"""Which pods make room for one of higher priority (behaviour C7).

On each node, all pods of lower priority are removed first in thought. If the pod fits then, as many
of them as possible stay: first those that a disruption budget protects, then the more important
ones. The best node breaks the fewest budgets and loses the least. `controllers/scheduler` writes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from refloat.api import selectors, structs
from refloat.api.core import Pod
from refloat.base.rand import Rand
from refloat.policy.scheduling import disruption_target, fit
from refloat.policy.scheduling.demand import Demand
from refloat.policy.scheduling.fit import NodeView, Objection, Room, Tenant

# Nodes with victims that are compared: Kubernetes' own number for up to 1,000 nodes. Kubernetes
# takes a tenth of bigger clusters, which would block all other work of this process.
CANDIDATES = 100

REASON = "PreemptionByScheduler"

NO_VICTIMS = Objection(("No preemption victims found for incoming pod",))
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NEVER = "not eligible due to preemptionPolicy=Never."
ON_ITS_WAY = "not eligible due to a terminating pod on the nominated node."

# Kubernetes puts this first: its scheduler has searched for devices to free, and these pods have
# none.
_NO_CLAIMS = "no new claims to deallocate, preemption:"

Leaving: TypeAlias = Callable[[Pod], bool]
"""Whether a pod has been preempted already."""

# Priorities may be negative; more pods must never look cheaper than fewer.
_LOWEST = 1 << 31


@dataclass(frozen=True, slots=True)
class DisruptionAllowance:
    """What preemption needs of a PodDisruptionBudget."""

    namespace: str
    selector: selectors.LabelSelector
    allowed: int
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose disruption the budget has counted already."""

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
    """The pods that must leave a node, the most important one first."""

    node: str
    pods: tuple[Pod, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class NoVictims:
    """No pod is preempted."""

    reason: str = ""
    """The reason, for the pod's condition; may be empty."""

    keeps_nomination: bool = False
    """Whether the pod stays nominated for the node that it was nominated for."""

    is_of_all_nodes: bool = False
    """Whether preemption was tried on all nodes and helps on none."""


Plan: TypeAlias = Victims | NoVictims


class ClusterView(Protocol):
    """All nodes, as preemption reads them."""

    def __len__(self) -> int:
        """How many nodes there are."""

    @property
    def places(self) -> Mapping[str, NodeView]: ...
    def nominated_node(self, uid: str) -> NodeView | None:
        """The node that the pod is nominated for."""

    def resolvable(self, demand: Demand) -> list[str]:
        """The nodes that would take the pod if other pods left them."""


def plan(
    cluster: ClusterView,
    demand: Demand,
    uid: str,
    *,
    budgets: Sequence[DisruptionAllowance],
    rand: Rand,
    leaving: Leaving,
) -> Plan:
    """The pods to preempt for a pod that fits on no node."""
    if not len(cluster):
        return NoVictims()
    if demand.affinity.names == ():
        return NoVictims("not found", keeps_nomination=True)
    if not demand.preempts:
        return NoVictims(f"{_NO_CLAIMS} {NEVER}", keeps_nomination=True)
    node = cluster.nominated_node(uid)
    if node is not None and node.known and has_lower(demand, node):
        # Wait for a victim that is still leaving the nominated node, if this helps.
        against = fit.objection(demand, node, uid)
        lower = (each.pod for each in node.tenants.values() if each.priority < demand.priority)
        if (against is None or against.resolvable) and any(map(leaving, lower)):
            return NoVictims(f"{_NO_CLAIMS} {ON_ITS_WAY}", keeps_nomination=True)
    return _search(cluster, demand, uid, budgets, rand)


def _search(
    cluster: ClusterView,
    demand: Demand,
    uid: str,
    budgets: Sequence[DisruptionAllowance],
    rand: Rand,
) -> Plan:
    """The best of enough nodes with victims; without any, the objections of all nodes."""
    names = cluster.resolvable(demand)
    start = rand.below(len(names)) if names else 0
    candidates: list[Victims] = []
    tally: Counter[str] = Counter()
    harmless = False
    for name in (*names[start:], *names[:start]):
        answer = on_node(demand, cluster.places[name], budgets, uid)
        if isinstance(answer, Objection):
            tally.update(answer.reasons)
            continue
        candidates.append(answer)
        harmless = harmless or not answer.violations
        if harmless and len(candidates) >= CANDIDATES:
            break
    if candidates:
        return pick(candidates, rand)
    tally[NOT_HELPFUL] += len(cluster) - len(names)
    return NoVictims(f"{_NO_CLAIMS} {fit.message(len(cluster), tally)}", is_of_all_nodes=True)


def on_node(
    demand: Demand, node: NodeView, budgets: Sequence[DisruptionAllowance], uid: str = ""
) -> Victims | Objection:
    """The pods that must leave this node; an objection if that does not help."""
    if not has_lower(demand, node):
        return NO_VICTIMS
    room = _emptied(demand, node, uid)
    if not room.suffices(demand):
        return fit.lacking(demand, room, node)
    room = room.copy()
    lower = [each for each in node.tenants.values() if each.priority < demand.priority]
    protected, others = _split(sorted(lower, key=_importance), budgets)
    violated = _not_spared(demand, room, protected)
    victims = violated + _not_spared(demand, room, others)
    if not victims:
        return NO_VICTIMS
    if violated:
        victims.sort(key=_importance)
    return Victims(node.name, tuple(each.pod for each in victims), len(violated))


def would_help(demand: Demand, node: NodeView, uid: str = "") -> bool:
    """Whether the pod fits once all pods of lower priority are gone."""
    if not demand.preempts or not has_lower(demand, node):
        return False
    return _emptied(demand, node, uid).suffices(demand)


def has_lower(demand: Demand, node: NodeView) -> bool:
    return bool(node.priorities) and min(node.priorities) < demand.priority


def _emptied(demand: Demand, node: NodeView, uid: str) -> Room:
    """The room without the pods of lower priority; callers must not change it."""
    return fit.with_expected(node.room_above(demand.priority), node.expected, demand, uid)


def _not_spared(demand: Demand, room: Room, tenants: Iterable[Tenant]) -> list[Tenant]:
    """Keep each tenant beside which the pod fits; returns the others."""
    victims = []
    for tenant in tenants:
        room.take(tenant.needs, tenant.ports)
        if not room.suffices(demand):
            room.give(tenant.needs, tenant.ports)
            victims.append(tenant)
    return victims


def _split(
    tenants: Iterable[Tenant], budgets: Sequence[DisruptionAllowance]
) -> tuple[list[Tenant], list[Tenant]]:
    """Tenants whose leaving would break a budget, and the others."""
    if not budgets:
        return [], list(tenants)
    remaining = [each.allowed for each in budgets]
    protected: list[Tenant] = []
    others: list[Tenant] = []
    for tenant in tenants:
        breaks = False
        for number, budget in enumerate(budgets):
            if budget.protects(tenant.pod):
                remaining[number] -= 1  # of all its budgets, also after one is broken
                breaks = breaks or remaining[number] < 0
        (protected if breaks else others).append(tenant)
    return protected, others


def _importance(tenant: Tenant) -> tuple[int, str]:
    """The more important one first: of higher priority, then running for longer."""
    return -tenant.priority, _started(tenant.pod)


def _started(pod: Pod) -> str:
    """Times of one form sort as texts; a pod that has not started sorts last."""
    return pod.status.start_time or "~"


def pick(candidates: Sequence[Victims], rand: Rand) -> Victims:
    """The candidate with the least loss; a random one among equals."""
    best, *others = sorted(candidates, key=_loss)
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
    """Whether the pod is deleted because of a preemption; without the condition, any deletion."""
    if not pod.is_terminating:
        return False
    condition = structs.find(pod.status.conditions, disruption_target.TARGET)
    is_marked = condition is not None and (condition.status, condition.reason) == ("True", REASON)
    return is_marked or not by_condition
