# SPDX-License-Identifier: Apache-2.0
"""The scheduler: which pod is looked at when, and what is done about it.

Decisions are made one after the other, the most important pod first, and each
before anything is awaited: what a pod is given is taken in memory (`cluster`)
before its bind is sent. The writes of several pods then run side by side.

A pod that no node takes waits in the backlog until something changes that
may help it: a node that appears or changes, a pod that leaves, a promise that
is withdrawn. Nothing is looked at again because time has passed.

What a pod says of why it waits must stay true meanwhile. So after each change
the reasons are compared, once for each demand, and pods whose reason is another
one now are looked at again; so many at a time that the work is bounded.
"""

import logging

from refloat.api.core import Node, Pod
from refloat.api.policy import PodDisruptionBudget
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.controllers.scheduler import writes
from refloat.controllers.scheduler.backlog import Backlog
from refloat.controllers.scheduler.preempting import Preemptor
from refloat.controllers.scheduler.settings import Settings
from refloat.policy import demand as demands
from refloat.policy import fit, preemption
from refloat.policy.cluster import Cluster
from refloat.policy.demand import Demand, Demands
from refloat.policy.fit import Place
from refloat.policy.preemption import Victims
from refloat.runtime import cache
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "scheduler"

# A key of the queue that is no pod's.
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
        settings: Settings | None = None,
    ) -> None:
        self._client = client
        self._pods = pods
        self._clock = clock
        self._rand = rand
        self._settings = settings or Settings()
        self._tell = writes.Teller(sink)
        self._cluster = Cluster(
            rand,
            overlook_not_ready=self._settings.overlook_not_ready,
            force_eviction=self._settings.force_eviction,
        )
        self._demands = Demands()
        self._backlog = Backlog()
        self._is_check_planned = False
        self._unchecked: dict[Demand, None] = {}  # whose reasons are still to be compared
        self._checked_version = 0  # of the cluster, when the present round of checks began
        self._unsure: dict[str, None] = {}  # uids of pods whose bind was not answered
        self._nominees: dict[str, str] = {}  # keys of pods that have a node promised, by uid
        self._preemptor = Preemptor(
            client, self._cluster, clock=clock, rand=rand, tell=self._tell, settings=self._settings
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
        nodes.add_handler(self._saw_node)
        budgets.add_handler(self._preemptor.saw_budget)
        pods.add_handler(self._saw_pod)

    def _rank(self, key: str) -> int:
        pod = self._pods.cache.get(key)
        return 0 if pod is None else -demands.priority(pod)

    # What is seen.

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        if new is None:
            assert old is not None
            self._cluster.remove_node(old.metadata.name)
            self._gained(self._cluster.places.get(old.metadata.name))
        elif (place := self._cluster.put_node(new)) is not None:
            self._gained(place)
        self._plan_check()

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        uid = pod.metadata.uid
        if new is None or new.is_terminating:
            self._preemptor.saw_leaving(uid)
        if new is None or new.is_terminal or (new.is_terminating and not new.spec.node_name):
            self._is_over(pod)
        elif new.spec.node_name:
            self._backlog.leave(cache.key_of(new))
            self._unsure.pop(uid, None)
            self._settle(new, new.spec.node_name)
        elif self._is_ours(new):
            self._wants_place(old, new)
        self._plan_check()

    def _settle(self, pod: Pod, node: str, demand: Demand | None = None) -> None:
        """Give it its place; one that it had or was promised elsewhere comes free."""
        uid = pod.metadata.uid
        self._nominees.pop(uid, None)
        if self._cluster.node_of(uid) != node:
            self._gained(self._cluster.remove_pod(uid))
            promised = self._cluster.withdraw(uid)
            self._cluster.put_pod(pod, node, demand)
            self._gained(promised)
        else:
            self._cluster.put_pod(pod, node, demand)

    def _is_over(self, pod: Pod) -> None:
        """It needs no place, or none any more."""
        uid = pod.metadata.uid
        self._backlog.leave(cache.key_of(pod))
        self._unsure.pop(uid, None)
        self._nominees.pop(uid, None)
        self._gained(self._cluster.remove_pod(uid))
        self._gained(self._cluster.withdraw(uid))
        if not pod.spec.node_name and self._is_ours(pod):
            # It may have been called for room that came, and not have taken it.
            self._call_next(self._demands.of(pod))

    def _wants_place(self, old: Pod | None, new: Pod) -> None:
        key, uid = cache.key_of(new), new.metadata.uid
        if self._cluster.node_of(uid) is not None:
            return  # it is being bound
        demand = self._demands.of(new)
        was = None if old is None or not self._is_ours(old) else self._demands.of(old)
        released = self._saw_promise(old, new, demand)
        if was is not demand or released:
            self._backlog.leave(key)
        if key not in self._backlog:
            self.controller.queue.add(key)

    def _saw_promise(self, old: Pod | None, new: Pod, demand: Demand) -> bool:
        """Keep what its status promises, whoever made the promise; whether it is taken back.

        A promise is made in memory before it is written, so a status that does
        not tell of one, and did not before, says nothing.
        """
        if node := new.status.nominated_node_name:
            self._promise(new, node, demand)
        elif old is not None and old.status.nominated_node_name:
            return self._release(new)
        return False

    def _promise(self, pod: Pod, node: str, demand: Demand) -> None:
        uid = pod.metadata.uid
        self._nominees[uid] = cache.key_of(pod)
        self._cluster.promise(uid, node, demand)

    def _release(self, pod: Pod) -> bool:
        """It is promised nothing any more; whether it was."""
        uid = pod.metadata.uid
        held = self._nominees.pop(uid, None) is not None
        self._gained(self._cluster.withdraw(uid))
        return held

    def _is_ours(self, pod: Pod) -> bool:
        spec = pod.spec
        return not spec.scheduling_gates and spec.scheduler_name == self._settings.name

    # Who is called.

    def _gained(self, place: Place | None) -> None:
        """Something of this node may have come free: call whom that may help."""
        if place is None or not self._backlog:
            return
        for demand in self._backlog:
            self._offer(place, demand)
        for uid in place.expected:
            self._call(self._nominees.get(uid))

    def _offer(self, place: Place, demand: Demand) -> None:
        if not place.known or fit.unfit(demand, place) is not None:
            return
        if place.room_for(demand).suffices(demand):
            self._call(self._backlog.first(demand))
        elif preemption.would_help(demand, place):
            self._call(self._backlog.first_without_promise(demand))

    def _call_next(self, demand: Demand) -> None:
        """Somebody with this demand did not use up what came free: there may be more."""
        key = self._backlog.first(demand)
        if key is not None and self._cluster.choose(demand) is not None:
            self._call(key)

    def _call(self, key: str | None) -> None:
        if key is not None and self._backlog.leave(key):
            self.controller.queue.add(key)

    # Whether reasons are still true.

    def _plan_check(self) -> None:
        if self._is_check_planned or not self._backlog:
            return
        if self._unchecked or self._cluster.version != self._checked_version:
            self._is_check_planned = True
            self.controller.queue.add_after(REASONS, self._settings.reason_seconds)

    def _check_reasons(self) -> None:
        """Call pods whose reason is not true any more, as many as may be called at once."""
        self._is_check_planned = False
        if not self._unchecked:
            self._unchecked = dict.fromkeys(self._backlog)
            self._checked_version = self._cluster.version
        pods = self._settings.reasons_at_once
        for demand in list(self._unchecked)[: self._settings.demands_at_once]:
            keys = self._outdated(demand, pods)
            for key in keys:
                self._call(key)
            pods -= len(keys)
            if pods <= 0:
                break  # there may be more with this demand
            del self._unchecked[demand]
        self._plan_check()

    def _outdated(self, demand: Demand, limit: int) -> list[str]:
        if self._cluster.choose(demand) is not None:
            first = self._backlog.first(demand)
            return [] if first is None else [first]
        return self._backlog.with_other_reason(demand, self._cluster.objections(demand), limit)

    # What is done.

    async def reconcile(self, key: str) -> Result:
        if key == REASONS:
            self._check_reasons()
            return DONE
        self._backlog.leave(key)
        pod = self._pods.cache.get(key)
        if pod is None or not self._is_pending(pod):
            return DONE
        uid = pod.metadata.uid
        held = self._cluster.node_of(uid)
        if held is not None:
            if uid in self._unsure:
                await self._bind(pod, held)
            return DONE  # else it is bound, and the watch has not told yet
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
            # It is gone, bound already or being deleted. The watch tells which,
            # and corrects who holds the place.
            self._unsure.pop(meta.uid, None)
        except errors.Unreachable:
            self._give_back(pod)
            raise
        except (errors.Timeout, errors.Unavailable):
            # It may have happened: the place is kept, and asked for again.
            raise
        except errors.ClientError:
            self._give_back(pod)
            raise
        else:
            self._unsure.pop(meta.uid, None)
            log.debug("%s: pod %s is bound to node %s", NAME, cache.key_of(pod), node)
            self._tell.scheduled(pod, node)

    def _give_back(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._unsure.pop(uid, None)
        place = self._cluster.remove_pod(uid)
        if node := pod.status.nominated_node_name:
            self._promise(pod, node, self._demands.of(pod))
        self._gained(place)

    async def _refuse(self, key: str, pod: Pod, demand: Demand) -> None:
        """Say why there is no node for it, and make room if it may."""
        reason, plan = self._cluster.objections(demand), self._preemptor.plan(pod, demand)
        said = reason
        if isinstance(plan, Victims):
            self._promise(pod, plan.node, demand)
            # Where one could preempt, the next one may.
            self._call(self._backlog.first_without_promise(demand))
        else:
            said = f"{said} {plan.said}".rstrip()
            if not plan.keeps_promise:
                self._release(pod)
        promised = self._cluster.promised(pod.metadata.uid)
        nominated = "" if promised is None else promised.name
        self._backlog.wait(key, demand, promised=promised is not None, reason=reason)
        self._plan_check()
        try:
            told = await writes.refuse(self._client, pod, said, nominated, self._clock.now())
        except (errors.NotFound, errors.Conflict):
            return  # it is gone, and the watch will tell
        if told:
            log.debug("%s: pod %s waits: %s", NAME, key, said)
            self._tell.failed(pod, said)
        if isinstance(plan, Victims):
            await self._preemptor.make_room(pod, plan, self._outranked(demand, plan.node))

    def _outranked(self, demand: Demand, node: str) -> list[Pod]:
        """Pods of lower priority that are nominated for the node, and must look elsewhere."""
        place = self._cluster.places.get(node)
        keys = [
            self._nominees.get(uid, "")
            for uid, each in (place.expected.items() if place is not None else ())
            if each.priority < demand.priority
        ]
        found = (self._pods.cache.get(key) for key in keys)
        return [pod for pod in found if pod is not None]
