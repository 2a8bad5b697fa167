# SPDX-License-Identifier: Apache-2.0
"""Makes room for a pod: whom it may drive out, and driving them out.

A victim is remembered from the moment that its deletion is asked for until
the watch tells of it, so that a pod that is looked at again meanwhile does
not choose other victims. After a restart the promise in the preemptor's
status and the condition on its victims say the same.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from refloat.api import selectors
from refloat.api.core import Pod
from refloat.api.policy import PodDisruptionBudget
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client.contract import Client
from refloat.controllers.scheduler import writes
from refloat.controllers.scheduler.settings import Settings
from refloat.policy import preemption
from refloat.policy.cluster import Cluster
from refloat.policy.demand import Demand
from refloat.policy.preemption import Budget, Plan, Victims
from refloat.runtime import cache

log = logging.getLogger(__name__)


class Preemptor:
    """Knows the disruption budgets and who was preempted."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        *,
        clock: Clock,
        rand: Rand,
        tell: writes.Teller,
        settings: Settings,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._rand = rand
        self._tell = tell
        self._settings = settings
        self._budgets: dict[str, Budget] = {}
        self._doomed: dict[str, None] = {}  # uids of victims that no watch has told of

    def saw_budget(self, old: PodDisruptionBudget | None, new: PodDisruptionBudget | None) -> None:
        told = new if new is not None else old
        assert told is not None
        if new is None:
            self._budgets.pop(cache.key_of(told), None)
        else:
            self._budgets[cache.key_of(told)] = _budget(new)

    def saw_leaving(self, uid: str) -> None:
        """The watch tells that a pod was deleted."""
        self._doomed.pop(uid, None)

    def plan(self, pod: Pod, demand: Demand) -> Plan:
        return preemption.plan(
            self._cluster,
            demand,
            pod.metadata.uid,
            budgets=tuple(self._budgets.values()),
            rand=self._rand,
            leaving=self._is_leaving,
        )

    def _is_leaving(self, pod: Pod) -> bool:
        by_condition = self._settings.pod_disruption_conditions
        return pod.metadata.uid in self._doomed or preemption.is_leaving(
            pod, by_condition=by_condition
        )

    async def make_room(self, by: Pod, victims: Victims, outranked: Sequence[Pod]) -> None:
        """Drive the victims out, side by side; raises what the first of them failed with."""
        for pod in outranked:
            await writes.denominate(self._client, pod)
        still_there = [pod for pod in victims.pods if not pod.is_terminating]
        doing = [self._drive_out(pod, by, victims.node) for pod in still_there]
        for answer in await asyncio.gather(*doing, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def _drive_out(self, victim: Pod, by: Pod, node: str) -> None:
        uid = victim.metadata.uid
        self._doomed[uid] = None
        gone = False
        try:
            gone = await writes.preempt(
                self._client,
                victim,
                scheduler=by.spec.scheduler_name,
                now=self._clock.now(),
                with_condition=self._settings.pod_disruption_conditions,
                with_reason=self._settings.deletion_reasons,
            )
        finally:
            if not gone:
                self._doomed.pop(uid, None)
        if gone:
            text = "scheduler: pod %s/%s on node %s makes room for pod %s/%s"
            keys = (victim.metadata.namespace, victim.metadata.name, node)
            log.debug(text, *keys, by.metadata.namespace, by.metadata.name)
            self._tell.preempted(victim, by, node)


def _budget(budget: PodDisruptionBudget) -> Budget:
    selector = budget.spec.selector
    return Budget(
        budget.metadata.namespace,
        selectors.from_object(None if selector is None else msgspec.to_builtins(selector)),
        budget.status.disruptions_allowed,
        frozenset(budget.status.disrupted_pods or ()),
    )
