# SPDX-License-Identifier: Apache-2.0
"""The scheduler: which pod is scheduled when.

Decisions are made one after the other, the most important pod first, and each before the next
await: the scheduler reserves the room in memory (`scheduler_cache`) before it sends the bind.
The writes of several pods then run side by side.

A pod without a node waits in `unschedulable_pods` until a change may help: a node appears or
changes, a pod leaves, a nomination ends. Time alone never triggers a new attempt.

The reason in a waiting pod's condition must stay true. So after changes the scheduler compares
the reasons, once for each demand, and schedules pods with an outdated reason again; the number
is bounded.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from refloat.api.core import Node, Pod
from refloat.api.policy import PodDisruptionBudget
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION
from refloat.base.rand import Rand
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.scheduler import writes
from refloat.controllers.scheduler.preemption import Preemptor
from refloat.controllers.scheduler.scheduler_cache import SchedulerCache
from refloat.controllers.scheduler.settings import SchedulerSettings
from refloat.controllers.scheduler.unschedulable_pods import UnschedulablePods
from refloat.policy.scheduling import demand as demands
from refloat.policy.scheduling import fit, preemption
from refloat.policy.scheduling.demand import Demand, Demands
from refloat.policy.scheduling.preemption import Victims
from refloat.runtime import cache
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.node_info import NodeInfo
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "scheduler"

# The key that checks the reasons; no pod has this key.
REASONS = ""


class Scheduler:
    """The reconciler; a key is a pod's."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        nodes: Informer[Node],
        budgets: Informer[PodDisruptionBudget],
        *,
        clock: Clock,
        rand: Rand,
        sink: Sink,
        instruments: Instruments,
        settings: SchedulerSettings | None = None,
    ) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._rand = rand
        self._settings = settings or SchedulerSettings()
        self._events = writes.SchedulerEvents(sink)
        self._cluster = SchedulerCache(
            rand,
            overlook_not_ready=self._settings.overlook_not_ready,
            force_eviction=self._settings.force_eviction,
        )
        self._demands = Demands()
        self._unschedulable = UnschedulablePods()
        self._is_check_planned = False
        self._unchecked: dict[Demand, None] = {}  # demands whose reasons must still be compared
        self._checked_version = 0  # of the cluster at the start of the current checks
        self._unsure: dict[str, None] = {}  # uids of pods whose bind had no answer
        self._nominees: dict[str, str] = {}  # keys of nominated pods, by uid
        self._preemptor = Preemptor(
            client,
            self._cluster,
            clock=clock,
            rand=rand,
            events=self._events,
            settings=self._settings,
        )
        self.controller: Controller[str] = Controller(
            NAME,
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(
                workers=self._settings.at_once, backoff=self._settings.backoff
            ),
            rank=self._rank,
        )
        nodes.add_handler(self._node_changed)
        budgets.add_handler(self._preemptor.budget_changed)
        pods.add_handler(self._pod_changed)

    def _rank(self, key: str) -> int:
        pod = self._pods.cache.get(key)
        return 0 if pod is None else -demands.priority(pod)

    # -- handlers

    def _node_changed(self, change: Change[Node]) -> None:
        name = change.current.metadata.name
        if change.new is None:
            self._cluster.remove_node(name)
            self._gained(self._cluster.places.get(name))
        elif (place := self._cluster.put_node(change.new)) is not None:
            self._gained(place)
        self._plan_check()

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, new = change.current, change.new
        uid = pod.metadata.uid
        if new is None or new.is_terminating:
            self._preemptor.pod_deleted(uid)
        if new is None or new.is_terminal or (new.is_terminating and not new.spec.node_name):
            self._is_over(pod)
        elif new.spec.node_name:
            self._unschedulable.leave(cache.key_of(new))
            self._unsure.pop(uid, None)
            self._settle(new, new.spec.node_name)
        elif self._is_ours(new):
            self._wants_place(change.old, new)
        self._plan_check()

    def _settle(self, pod: Pod, node: str, demand: Demand | None = None) -> None:
        """Reserve the room for the pod; frees its room or nomination on other nodes."""
        uid = pod.metadata.uid
        self._nominees.pop(uid, None)
        if self._cluster.node_of(uid) != node:
            self._gained(self._cluster.remove_pod(uid))
            place = self._cluster.withdraw_nomination(uid)
            self._cluster.put_pod(pod, node, demand)
            self._gained(place)
        else:
            self._cluster.put_pod(pod, node, demand)

    def _is_over(self, pod: Pod) -> None:
        """The pod needs no node any more."""
        uid = pod.metadata.uid
        self._unschedulable.leave(cache.key_of(pod))
        self._unsure.pop(uid, None)
        self._nominees.pop(uid, None)
        self._gained(self._cluster.remove_pod(uid))
        self._gained(self._cluster.withdraw_nomination(uid))
        if not pod.spec.node_name and self._is_ours(pod):
            # The pod may have been queued for free room and not have used the room.
            self._call_next(self._demands.of(pod))

    def _wants_place(self, old: Pod | None, new: Pod) -> None:
        key, uid = cache.key_of(new), new.metadata.uid
        if self._cluster.node_of(uid) is not None:
            return  # the bind is under way
        demand = self._demands.of(new)
        was = None if old is None or not self._is_ours(old) else self._demands.of(old)
        # A nomination is made in memory before it is written, so a status without one matters
        # only if the last status had one.
        released = False
        if node := new.status.nominated_node_name:
            self._nominate(new, node, demand)
        elif old is not None and old.status.nominated_node_name:
            released = self._release(new)
        if was is not demand or released:
            self._unschedulable.leave(key)
        if key not in self._unschedulable:
            self.controller.queue.add(key)

    def _nominate(self, pod: Pod, node: str, demand: Demand) -> None:
        uid = pod.metadata.uid
        self._nominees[uid] = cache.key_of(pod)
        self._cluster.nominate(uid, node, demand)

    def _release(self, pod: Pod) -> bool:
        """End the nomination of a pod; whether it was nominated."""
        uid = pod.metadata.uid
        was_nominated = self._nominees.pop(uid, None) is not None
        self._gained(self._cluster.withdraw_nomination(uid))
        return was_nominated

    def _is_ours(self, pod: Pod) -> bool:
        spec = pod.spec
        return not spec.scheduling_gates and spec.scheduler_name == self._settings.name

    # -- waiting pods

    def _gained(self, place: NodeInfo | None) -> None:
        """A node may have free room: queue the pods that this may help."""
        if place is None or not self._unschedulable:
            return
        for demand in self._unschedulable:
            if not place.known or fit.unfit(demand, place) is not None:
                continue
            if fit.room_for(demand, place).suffices(demand):
                self._call(self._unschedulable.first(demand))
            elif preemption.would_help(demand, place):
                self._call(self._unschedulable.first_without_nomination(demand))
        for uid in place.expected:
            self._call(self._nominees.get(uid))

    def _call_next(self, demand: Demand) -> None:
        """Queue the next pod with this demand if room is left."""
        key = self._unschedulable.first(demand)
        if key is not None and self._cluster.choose(demand) is not None:
            self._call(key)

    def _call(self, key: str | None) -> None:
        if key is not None and self._unschedulable.leave(key):
            self.controller.queue.add(key)

    # -- outdated reasons

    def _plan_check(self) -> None:
        if self._is_check_planned or not self._unschedulable:
            return
        if self._unchecked or self._cluster.version != self._checked_version:
            self._is_check_planned = True
            self.controller.queue.add_after(REASONS, self._settings.reason_seconds)

    def _check_reasons(self) -> None:
        """Queue pods whose reason is outdated, up to a bound."""
        self._is_check_planned = False
        if not self._unchecked:
            self._unchecked = dict.fromkeys(self._unschedulable)
            self._checked_version = self._cluster.version
        pods = self._settings.reasons_at_once
        for demand in list(self._unchecked)[: self._settings.demands_at_once]:
            if self._cluster.choose(demand) is not None:
                first = self._unschedulable.first(demand)
                keys = [] if first is None else [first]
            else:
                reason = self._cluster.objections(demand)
                keys = self._unschedulable.with_other_reason(demand, reason, pods)
            for key in keys:
                self._call(key)
            pods -= len(keys)
            if pods <= 0:
                break  # more pods with this demand may wait
            del self._unchecked[demand]
        self._plan_check()

    # -- reconcile

    async def reconcile(self, key: str) -> Result:
        if key == REASONS:
            self._check_reasons()
            return DONE
        self._unschedulable.leave(key)
        pod = self._pods.cache.get(key)
        if pod is None or not self._is_pending(pod):
            return DONE
        uid = pod.metadata.uid
        assumed_node = self._cluster.node_of(uid)
        if assumed_node is not None:
            if uid in self._unsure:
                await self._bind(pod, assumed_node)
            return DONE  # else the pod is bound, and the watch has not shown this yet
        demand = self._demands.of(pod)
        node = self._cluster.choose(demand, uid)
        if node is None:
            await self._refuse(key, pod, demand)
            return DONE
        self._settle(pod, node, demand)
        self._call_next(demand)
        await self._bind(pod, node)
        return DONE

    def _is_pending(self, pod: Pod) -> bool:
        is_free = not (pod.spec.node_name or pod.is_terminating or pod.is_terminal)
        return is_free and self._is_ours(pod)

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        self._unsure[meta.uid] = None
        try:
            await self._client.bind(meta.name, node, namespace=meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            # The pod is deleted, being deleted or bound. The watch shows which, and corrects the
            # cache.
            self._unsure.pop(meta.uid, None)
        except errors.Unreachable:
            self._give_back(pod)
            raise
        except (errors.Timeout, errors.Unavailable):
            # The bind may have happened: keep the room, and bind again.
            raise
        except errors.ClientError:
            self._give_back(pod)
            raise
        else:
            self._unsure.pop(meta.uid, None)
            log.debug("%s: pod %s is bound to node %s", NAME, cache.key_of(pod), node)
            self._events.scheduled(pod, node)

    def _give_back(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._unsure.pop(uid, None)
        place = self._cluster.remove_pod(uid)
        if node := pod.status.nominated_node_name:
            self._nominate(pod, node, self._demands.of(pod))
        self._gained(place)

    async def _refuse(self, key: str, pod: Pod, demand: Demand) -> None:
        """Write why no node fits, and preempt other pods if that helps."""
        reason, plan = self._cluster.objections(demand), self._preemptor.plan(pod, demand)
        message = reason
        if isinstance(plan, Victims):
            self._nominate(pod, plan.node, demand)
            # Where one pod could preempt, the next one may, too.
            self._call(self._unschedulable.first_without_nomination(demand))
        else:
            message = f"{message} {plan.reason}".rstrip()
            if not plan.keeps_nomination:
                self._release(pod)
        place = self._cluster.nominated_node(pod.metadata.uid)
        nominated = "" if place is None else place.name
        self._unschedulable.wait(key, demand, nominated=place is not None, reason=reason)
        self._plan_check()
        try:
            is_new = await writes.refuse(self._client, pod, message, nominated, self._clock.now())
        except (errors.NotFound, errors.Conflict):
            return  # the watch will show the change
        if is_new:
            log.debug("%s: pod %s waits: %s", NAME, key, message)
            self._events.failed(pod, message)
        if isinstance(plan, Victims):
            await self._preemptor.make_room(pod, plan, self._outranked(demand, plan.node))

    def _outranked(self, demand: Demand, node: str) -> list[Pod]:
        """Pods of lower priority that lose their nomination for the node."""
        place = self._cluster.places.get(node)
        keys = [
            self._nominees.get(uid, "")
            for uid, each in (place.expected.items() if place is not None else ())
            if each.priority < demand.priority
        ]
        pods = (self._pods.cache.get(key) for key in keys)
        return [pod for pod in pods if pod is not None]


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("kube-scheduler")
    settings = replace(
        env.settings(SchedulerSettings),
        pod_disruption_conditions=env.job_gates.pod_disruption_conditions,
        deletion_reasons=env.job_gates.retriable_and_non_retriable_failures,
        # No other controller would remove the taint of new nodes.
        overlook_not_ready="node-lifecycle-controller" not in env.controllers,
        force_eviction=env.gates.enabled(TAINT_FORCE_EVICTION),
    )
    scheduler = Scheduler(
        client,
        env.informer(kinds.PODS),
        env.informer(kinds.NODES),
        env.informer(kinds.POD_DISRUPTION_BUDGETS),
        clock=env.clock,
        rand=env.rand,
        sink=env.recorder(client, settings.name),
        instruments=env.instruments,
        settings=settings,
    )
    return [scheduler.controller]
