# SPDX-License-Identifier: Apache-2.0
"""Makes room for a pod: chooses victims and deletes them.

A victim is remembered from the request for its deletion until the watch shows the deletion.
So a pod that is scheduled again before that does not choose other victims. After a restart
the nomination in the preemptor's status and the condition on the victims show the same.
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
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.controllers.scheduler.settings import SchedulerSettings
from refloat.policy.scheduling import preemption
from refloat.policy.scheduling.demand import Demand
from refloat.policy.scheduling.preemption import DisruptionAllowance, NoVictims, Plan, Victims
from refloat.runtime import cache
from refloat.runtime.informer import Change

log = logging.getLogger(__name__)


class Preemptor:
    """Plans and executes preemptions; knows disruption budgets and current victims."""

    def __init__(
        self,
        client: Client,
        cluster: SchedulerCache,
        *,
        clock: Clock,
        rand: Rand,
        events: writes.SchedulerEvents,
        settings: SchedulerSettings,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._clock = clock
        self._rand = rand
        self._events = events
        self._settings = settings
        self._budgets: dict[str, DisruptionAllowance] = {}
        self._victims: dict[str, None] = {}  # uids of victims until the watch shows their deletion

    def budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        key = cache.key_of(change.current)
        if change.new is None:
            self._budgets.pop(key, None)
        else:
            self._budgets[key] = _budget(change.new)

    def pod_deleted(self, uid: str) -> None:
        """The watch shows the deletion of a pod."""
        self._victims.pop(uid, None)

    def plan(self, pod: Pod, demand: Demand) -> Plan:
        # A pod with a nominated node may get another answer than other pods with its demand.
        is_nominated = self._cluster.nominated_node(pod.metadata.uid) is not None
        if not is_nominated and (text := self._cluster.hopeless(demand)) is not None:
            return NoVictims(text)
        plan = preemption.plan(
            self._cluster,
            demand,
            pod.metadata.uid,
            budgets=tuple(self._budgets.values()),
            rand=self._rand,
            leaving=lambda pod: (
                pod.metadata.uid in self._victims
                or preemption.is_leaving(pod, by_condition=self._settings.pod_disruption_conditions)
            ),
        )
        if isinstance(plan, NoVictims) and plan.is_of_all_nodes and not is_nominated:
            self._cluster.note_hopeless(demand, plan.reason)
        return plan

    async def make_room(self, by: Pod, victims: Victims, outranked: Sequence[Pod]) -> None:
        """Delete the victims side by side; raises the first error."""
        for pod in outranked:
            await writes.denominate(self._client, pod)
        still_there = [pod for pod in victims.pods if not pod.is_terminating]
        doing = [self._preempt(pod, by, victims.node) for pod in still_there]
        for answer in await asyncio.gather(*doing, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def _preempt(self, victim: Pod, by: Pod, node: str) -> None:
        uid = victim.metadata.uid
        self._victims[uid] = None
        deleted = False
        try:
            deleted = await writes.preempt(
                self._client,
                victim,
                scheduler=by.spec.scheduler_name,
                now=self._clock.now(),
                with_condition=self._settings.pod_disruption_conditions,
                with_reason=self._settings.deletion_reasons,
            )
        finally:
            if not deleted:
                self._victims.pop(uid, None)
        if deleted:
            text = "scheduler: pod %s/%s on node %s makes room for pod %s/%s"
            keys = (victim.metadata.namespace, victim.metadata.name, node)
            log.debug(text, *keys, by.metadata.namespace, by.metadata.name)
            self._events.preempted(victim, by, node)


def _budget(budget: PodDisruptionBudget) -> DisruptionAllowance:
    selector = budget.spec.selector
    return DisruptionAllowance(
        budget.metadata.namespace,
        selectors.from_object(None if selector is None else msgspec.to_builtins(selector)),
        budget.status.disruptions_allowed,
        frozenset(budget.status.disrupted_pods or ()),
    )
