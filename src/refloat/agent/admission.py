# SPDX-License-Identifier: Apache-2.0
"""A node's door: whether it takes a pod, and who has to leave for a critical one.

What is asked, and in which words a pod is turned away, is pure and in
`policy.node_admission`; here are the facts that it is asked about. Resources
are counted as pods come and go, so an admission does not add up all pods.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.agent.gate import LATER, Later, Tenants
from refloat.agent.status import Ending
from refloat.agent.worker import Tell
from refloat.api.core import Node, Pod, Taint
from refloat.client import errors
from refloat.policy import critical_pods, node_admission
from refloat.policy import demand as demands
from refloat.policy.critical_pods import IsCritical
from refloat.policy.demand import PODS
from refloat.policy.fit import Place, Tenant
from refloat.policy.node_admission import Objection, Rejection

log = logging.getLogger(__name__)

PREEMPTING = Ending(
    "Preempting",
    "Preempted in order to admit critical pod",
    insists=False,
    disruption="Pod was preempted by Kubelet to accommodate a critical pod.",
)

Check: TypeAlias = Callable[[Pod], Rejection | None]
"""A question of the agent's own, asked before all others."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node knows of itself."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    fetch: Callable[[], Awaitable[Node]]
    """The node's object: others give it labels and taints too."""

    pressure: Callable[[], Sequence[str]] = tuple
    """What it is low on, by the names of its conditions."""

    is_shutting_down: Callable[[], bool] = bool
    is_critical: IsCritical = critical_pods.has_critical_priority
    checks: Sequence[Check] = field(default_factory=tuple)


class Admission:
    """The `Gate` of one node."""

    def __init__(self, facts: NodeFacts, tenants: Tenants, tell: Tell) -> None:
        self._facts = facts
        self._tenants = tenants
        self._tell = tell
        self._demands = demands.Demands()
        self._taints: tuple[Taint, ...] = ()
        offers = demands.amounts(facts.capacity)
        self._place = Place(facts.name, known=True, labels=facts.labels, offers=offers)
        self._place.room.free.update(offers)
        self._place.room.pods = offers.get(PODS, 0)

    def joined(self, pod: Pod) -> None:
        if pod.metadata.uid in self._place.tenants:
            return
        demand = self._demands.of(pod)
        self._place.add(pod.metadata.uid, Tenant(pod, demand.needs, demand.ports))

    def left(self, uid: str) -> None:
        if uid in self._place.tenants:
            self._place.remove(uid)

    async def admit(self, pod: Pod) -> Ending | Later | None:
        rejection = self._first(pod)
        if rejection is None:
            verdict = self._judge(pod, await self._objections(pod))
            if isinstance(verdict, Later):
                return verdict
            rejection = verdict
        if rejection is None and self._facts.is_shutting_down():
            rejection = node_admission.SHUTTING_DOWN
        if rejection is None:
            return None
        self._tell(pod, "Warning", rejection.reason, rejection.text)
        return Ending(rejection.reason, rejection.message, rejected=True)

    def _first(self, pod: Pod) -> Rejection | None:
        """What is asked before anything is counted."""
        for check in self._facts.checks:
            if (found := check(pod)) is not None:
                return found
        return node_admission.under_pressure(pod, self._facts.pressure(), self._facts.is_critical)

    async def _objections(self, pod: Pod) -> list[Objection]:
        """The node is read when its own labels do not do, or it was last seen tainted."""
        found = self._known_objections(pod)
        if node_admission.AFFINITY not in found and node_admission.TAINTS not in found:
            return found
        try:
            self.learn(await self._facts.fetch())
        except errors.ClientError:
            log.debug("node %s: judged by what is known", self._facts.name)
        # Meanwhile others may have come.
        return self._known_objections(pod)

    def learn(self, node: Node) -> None:
        """Take over what others wrote about the node."""
        self._place.labels = {**self._facts.labels, **(node.metadata.labels or {})}
        self._taints = node.spec.taints or ()

    def _known_objections(self, pod: Pod) -> list[Objection]:
        demand = self._demands.of(pod)
        return node_admission.objections(demand, self._place, self._taints)

    def _judge(self, pod: Pod, found: Sequence[Objection]) -> Rejection | Later | None:
        if not found:
            return None
        if not self._facts.is_critical(pod):
            return found[0].rejection()
        unfit, missing = node_admission.for_critical(found)
        return unfit[0].rejection() if unfit else self._make_room(pod, missing)

    def _make_room(self, pod: Pod, missing: Mapping[str, int]) -> Rejection | Later:
        """End others for a critical pod, and let it wait until they have gone."""
        active = self._tenants.active()
        leaving = [each for each in active if self._tenants.is_ending(each.metadata.uid)]
        missing = _less(missing, leaving)
        if not missing:
            return LATER
        staying = [each for each in active if not self._tenants.is_ending(each.metadata.uid)]
        found = critical_pods.victims(pod, staying, missing, self._facts.is_critical)
        if isinstance(found, critical_pods.Unreachable):
            return node_admission.no_room(found)
        for victim in found:
            self._tell(victim, "Warning", PREEMPTING.reason, PREEMPTING.message)
            self._tenants.kill(victim.metadata.uid, PREEMPTING)
        return LATER


def _less(missing: Mapping[str, int], leaving: Iterable[Pod]) -> dict[str, int]:
    left = dict(missing)
    for pod in leaving:
        for name, amount in (*demands.needs(pod), (PODS, 1)):
            if name in left:
                left[name] -= amount
    return {name: amount for name, amount in left.items() if amount > 0}
