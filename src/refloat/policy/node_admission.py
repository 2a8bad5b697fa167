# SPDX-License-Identifier: Apache-2.0
"""Whether a node takes a pod that was bound to it, in the words of its rejection.

The scheduler decided with what it knew; the node decides with what is. The
order of the questions is a kubelet's, and the first that is answered with no
gives reason and message (behaviour D6). Who asks, and what is done for a
critical pod, is in the agent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from refloat.api import qos
from refloat.api.core import Pod, Taint
from refloat.policy import critical_pods, fit, tolerations
from refloat.policy.critical_pods import IsCritical
from refloat.policy.demand import PODS, Demand
from refloat.policy.fit import Place

EVICTED = "Evicted"
NODE_SHUTDOWN = "NodeShutdown"
UNEXPECTED = "UnexpectedAdmissionError"

MEMORY_PRESSURE = "MemoryPressure"

_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect=tolerations.NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a node does not take a pod."""

    reason: str
    text: str

    @property
    def message(self) -> str:
        """As it stands in the pod's status; an event has the text alone."""
        return f"Pod was rejected: {self.text}"


SHUTTING_DOWN = Rejection(NODE_SHUTDOWN, "Pod was rejected as the node is shutting down.")


@dataclass(frozen=True, slots=True)
class Insufficient:
    """Of one resource there is too little: thousandths of a cpu, whole units of all others."""

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
    """Pods that leave would change nothing, or a kubelet does not make them leave for it."""

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
    """A node that is low takes critical pods alone (behaviour D6.5).

    If only memory is low, it takes whoever was promised some, or puts up with it.
    """
    if not conditions or is_critical(pod):
        return None
    if list(conditions) == [MEMORY_PRESSURE] and _bears_low_memory(pod):
        return None
    return Rejection(EVICTED, f"The node had condition: [{' '.join(conditions)}]. ")


def _bears_low_memory(pod: Pod) -> bool:
    if critical_pods.qos_class(pod) != qos.BEST_EFFORT:
        return True
    return tolerations.is_tolerated(_MEMORY_TAINT, pod.spec.tolerations)


def objections(demand: Demand, place: Place, taints: Iterable[Taint] = ()) -> list[Objection]:
    """All that stands against the pod; `place` is the node without its taints."""
    found: list[Objection] = [*_lacking(demand, place)]
    if fit.unfit(demand, place) is not None:
        found.append(AFFINITY)
    if fit.lacking(demand, place.room, place) is fit.PORTS_TAKEN:
        found.append(PORTS)
    if tolerations.untolerated(taints, demand.tolerations, (tolerations.NO_EXECUTE,)):
        found.append(TAINTS)
    return found


def _lacking(demand: Demand, place: Place) -> Iterable[Insufficient]:
    room, offers = place.room, place.offers
    if room.pods <= 0:
        yield Insufficient(PODS, 1, len(place.tenants), offers.get(PODS, 0))
    for name, amount in demand.needs:
        # What the node never heard of is somebody else's to count.
        if "/" in name and name not in offers:
            continue
        free, capacity = room.free.get(name, 0), offers.get(name, 0)
        if amount > free:
            yield Insufficient(name, amount, capacity - free, capacity)


def for_critical(found: Sequence[Objection]) -> tuple[list[Unfit], Mapping[str, int]]:
    """What stands against a critical pod for good, and what others could leave it."""
    unfit = [each for each in found if isinstance(each, Unfit)]
    missing = {each.resource: each.missing for each in found if isinstance(each, Insufficient)}
    return unfit, missing


def no_room(why: object) -> Rejection:
    """No pods that could be ended would leave a critical one enough."""
    return Rejection(
        UNEXPECTED,
        "Unexpected error while attempting to recover from admission failure: "
        f"preemption: error finding a set of pods to preempt: {why}",
    )
