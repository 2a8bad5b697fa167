# SPDX-License-Identifier: Apache-2.0
"""Whether a node accepts a pod that was bound to it, in the words of its rejection.

The scheduler decided with its cache; the node decides with its current state. The checks have the
order of a kubelet, and the first that fails gives reason and message (behaviour D6). The agent
asks, and makes room for critical pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import qos
from refloat.api.core import Pod, Taint
from refloat.policy.scheduling import critical_pods, fit, tolerations
from refloat.policy.scheduling.critical_pods import IsCritical
from refloat.policy.scheduling.demand import PODS, Demand
from refloat.policy.scheduling.fit import NodeView

EVICTED = "Evicted"
NODE_SHUTDOWN = "NodeShutdown"
UNEXPECTED = "UnexpectedAdmissionError"

MEMORY_PRESSURE = "MemoryPressure"

_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect=tolerations.NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node rejects a pod."""

    reason: str
    text: str

    @property
    def message(self) -> str:
        """The message in the pod's status; an event has the text alone."""
        return f"Pod was rejected: {self.text}"


SHUTTING_DOWN = Rejection(NODE_SHUTDOWN, "Pod was rejected as the node is shutting down.")


@dataclass(frozen=True, slots=True)
class Insufficient:
    """Too little of one resource: in thousandths of a cpu, whole units of all others."""

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)

    def rejection(self) -> Rejection:
        return Rejection(
            f"OutOf{self.resource}",
            f"Node didn't have enough resource: {self.resource}, requested: {self.requested}, "
            f"used: {self.used}, capacity: {self.capacity}",
        )


@dataclass(frozen=True, slots=True)
class Unfit:
    """An objection that a kubelet does not resolve by ending pods."""

    predicate: str
    text: str

    def rejection(self) -> Rejection:
        return Rejection(self.predicate, f"Predicate {self.predicate} failed: {self.text}")


AFFINITY = Unfit("NodeAffinity", fit.NOT_SELECTED.reasons[0])
PORTS = Unfit("NodePorts", fit.PORTS_TAKEN.reasons[0])
TAINTS = Unfit("TaintToleration", "node(s) had taints that the pod didn't tolerate")

Objection: TypeAlias = Insufficient | Unfit


def under_pressure(
    pod: Pod,
    conditions: Sequence[str],
    is_critical: IsCritical = critical_pods.has_critical_priority,
) -> Rejection | None:
    """A node under pressure accepts only critical pods (behaviour D6.5).

    If only memory is low, it also accepts pods with a QoS guarantee, or with a toleration for this.
    """
    if not conditions or is_critical(pod):
        return None
    if list(conditions) == [MEMORY_PRESSURE]:
        has_guarantee = critical_pods.qos_class(pod) != qos.BEST_EFFORT
        if has_guarantee or tolerations.is_tolerated(_MEMORY_TAINT, pod.spec.tolerations):
            return None
    return Rejection(EVICTED, f"The node had condition: [{' '.join(conditions)}]. ")


def objections(demand: Demand, node: NodeView, taints: Iterable[Taint] = ()) -> list[Objection]:
    """All objections against the pod; `node` is the node without its taints."""
    reasons: list[Objection] = []
    room, offers = node.room, node.offers
    if room.pods <= 0:
        reasons.append(Insufficient(PODS, 1, len(node.tenants), offers.get(PODS, 0)))
    for name, amount in demand.needs:
        free, capacity = room.free.get(name, 0), offers.get(name, 0)
        # An extended resource that the node does not know is counted by another component.
        if amount > free and ("/" not in name or name in offers):
            reasons.append(Insufficient(name, amount, capacity - free, capacity))
    if fit.unfit(demand, node) is not None:
        reasons.append(AFFINITY)
    if fit.lacking(demand, node.room, node) is fit.PORTS_TAKEN:
        reasons.append(PORTS)
    if tolerations.untolerated(taints, demand.tolerations, (tolerations.NO_EXECUTE,)):
        reasons.append(TAINTS)
    return reasons


def for_critical(objections: Sequence[Objection]) -> tuple[list[Unfit], Mapping[str, int]]:
    """Objections against a critical pod that stay, and the amounts that other pods could free."""
    unfit = [each for each in objections if isinstance(each, Unfit)]
    missing = {each.resource: each.missing for each in objections if isinstance(each, Insufficient)}
    return unfit, missing


def no_room(why: object) -> Rejection:
    """Rejects a critical pod because no set of pods would free enough."""
    return Rejection(
        UNEXPECTED,
        "Unexpected error while attempting to recover from admission failure: "
        f"preemption: error finding a set of pods to preempt: {why}",
    )
