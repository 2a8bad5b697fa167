# SPDX-License-Identifier: Apache-2.0
"""Decides whether a node admits a pod, and which pods it preempts for a critical one.

`policy.node_admission` has the rules and the messages; this module has the facts
of the node. Resources are counted as pods join and leave, so an admission does not
add up all pods.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from refloat.agent.pod_gate import LATER, ActivePods, Later
from refloat.agent.pod_status import Ending
from refloat.agent.pod_worker import RecordPodEvent
from refloat.api.core import Node, Pod, Taint
from refloat.client import errors
from refloat.policy.node import node_admission
from refloat.policy.node.node_admission import Objection, Rejection
from refloat.policy.scheduling import critical_pods
from refloat.policy.scheduling import demand as demands
from refloat.policy.scheduling.critical_pods import IsCritical
from refloat.policy.scheduling.demand import PODS
from refloat.policy.scheduling.fit import Tenant
from refloat.runtime.node_info import NodeInfo

log = logging.getLogger(__name__)

PREEMPTING = Ending(
    "Preempting",
    "Preempted in order to admit critical pod",
    insists=False,
    disruption="Pod was preempted by Kubelet to accommodate a critical pod.",
)

Check: TypeAlias = Callable[[Pod], Rejection | None]
"""A check of the agent that runs before those of a kubelet."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The facts of a node that admission depends on."""

    name: str
    labels: Mapping[str, str]
    capacity: Mapping[str, str]
    fetch: Callable[[], Awaitable[Node]]
    """Reads the Node: other components add labels and taints."""

    pressure: Callable[[], Sequence[str]] = tuple
    """The pressure conditions that are True."""

    is_shutting_down: Callable[[], bool] = bool
    is_critical: IsCritical = critical_pods.has_critical_priority
    checks: Sequence[Check] = field(default_factory=tuple)


class NodeAdmission:
    """The `Gate` of one node."""

    def __init__(self, facts: NodeFacts, pods: ActivePods, record_event: RecordPodEvent) -> None:
        self._facts = facts
        self._pods = pods
        self._record_event = record_event
        self._demands = demands.Demands()
        self._taints: tuple[Taint, ...] = ()
        offers = demands.amounts(facts.capacity)
        self._place = NodeInfo(facts.name, known=True, labels=facts.labels, offers=offers)
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
        # First the checks that need no count of resources.
        rejections = (rejection for check in self._facts.checks if (rejection := check(pod)))
        rejection = next(rejections, None) or node_admission.under_pressure(
            pod, self._facts.pressure(), self._facts.is_critical
        )
        if rejection is None:
            objections = self._objections(pod)
            if node_admission.AFFINITY in objections or node_admission.TAINTS in objections:
                # Others may have changed the labels or the taints of the node.
                try:
                    self.learn(await self._facts.fetch())
                except errors.ClientError:
                    log.debug("node %s: cannot read its Node object", self._facts.name)
                objections = self._objections(pod)  # other pods may have joined meanwhile
            verdict = self._judge(pod, objections)
            if isinstance(verdict, Later):
                return verdict
            rejection = verdict
        if rejection is None and self._facts.is_shutting_down():
            rejection = node_admission.SHUTTING_DOWN
        if rejection is None:
            return None
        self._record_event(pod, "Warning", rejection.reason, rejection.text)
        return Ending(rejection.reason, rejection.message, rejected=True)

    def learn(self, node: Node) -> None:
        """Take over labels and taints of the Node object."""
        self._place.labels = {**self._facts.labels, **(node.metadata.labels or {})}
        self._taints = node.spec.taints or ()

    def _objections(self, pod: Pod) -> list[Objection]:
        demand = self._demands.of(pod)
        return node_admission.objections(demand, self._place, self._taints)

    def _judge(self, pod: Pod, objections: Sequence[Objection]) -> Rejection | Later | None:
        if not objections:
            return None
        if not self._facts.is_critical(pod):
            return objections[0].rejection()
        unfit, missing = node_admission.for_critical(objections)
        if unfit:
            return unfit[0].rejection()
        # Preempt pods for a critical pod, which waits until they have ended.
        active = self._pods.active()
        leaving = [each for each in active if self._pods.is_ending(each.metadata.uid)]
        missing = dict(missing)
        for each in leaving:
            for name, amount in (*demands.needs(each), (PODS, 1)):
                if name in missing:
                    missing[name] -= amount
        missing = {name: amount for name, amount in missing.items() if amount > 0}
        if not missing:
            return LATER
        staying = [each for each in active if not self._pods.is_ending(each.metadata.uid)]
        victims = critical_pods.victims(pod, staying, missing, self._facts.is_critical)
        if isinstance(victims, critical_pods.NotEnoughPods):
            return node_admission.no_room(victims)
        for victim in victims:
            self._record_event(victim, "Warning", PREEMPTING.reason, PREEMPTING.message)
            self._pods.kill(victim.metadata.uid, PREEMPTING)
        return LATER
