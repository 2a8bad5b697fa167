# SPDX-License-Identifier: Apache-2.0
"""Failure recovery (KEP-6757): who is looked at, and when.

Only pods that are being deleted and nodes that are lost cost anything: the
handlers note those, and a queue brings each back at its exact time. What is
decided is in `policy.zombie` and `policy.out_of_service`.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from refloat.api import self_fence, structs
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Namespace, Node, Pod
from refloat.base.clock import Clock
from refloat.client.contract import Client
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.bounds import Bounds
from refloat.controllers.failure_recovery.due import DuePods
from refloat.controllers.failure_recovery.events import Teller
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.nodes import NodeRecovery
from refloat.controllers.failure_recovery.pods import PodRecovery
from refloat.controllers.failure_recovery.scene import Pods, Scene
from refloat.controllers.failure_recovery.settings import Settings
from refloat.controllers.failure_recovery.writes import Looks, Writes
from refloat.policy import out_of_service, zombie
from refloat.policy.failure_recovery import FIELD
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of, split_key
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.reconcile import Reconciler
from refloat.runtime.recorder import Sink
from refloat.runtime.rights import Rights

log = logging.getLogger(__name__)

NAME = "failure-recovery-controller"

POD_INDEXES = (index.NODE,)

# Each waits for one write at a time, and a lost node may have thousands of pods.
# With ten, an embedded cluster that evicts and replaces pods meanwhile takes far
# longer to free them; on Kubernetes each has a connection of its own (70 KB).
_POD_WORKERS = 20

# How long changes of a node's pods are gathered before the node is looked at.
_GATHER_SECONDS = 1.0


class FailureRecovery:
    """The handlers, and the controllers behind them."""

    name = NAME

    def __init__(
        self,
        client: Client,
        pods: Sequence[Informer[Pod]],
        nodes: Informer[Node],
        leases: Informer[Lease],
        namespaces: Informer[Namespace],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        metrics: FailureRecoveryMetrics,
        settings: Settings,
    ) -> None:
        """The informers of pods must have `POD_INDEXES`."""
        self._clock = clock
        self._leases: Cache[Lease] = leases.cache
        self._scene = Scene(
            Pods([each.cache for each in pods]),
            nodes.cache,
            namespaces.cache,
            clock,
            node_leases=leases.cache,
            leases=LeaseObserver(clock, lambda: leases.failed_at),
        )
        self._started = False
        self._join(client, sink, instruments, metrics)
        self._use(settings)
        for each in pods:
            each.add_handler(self._saw_pod)
        nodes.add_handler(self._saw_node)
        leases.add_handler(self._saw_lease)
        namespaces.add_handler(self._saw_namespace)

    def _join(
        self,
        client: Client,
        sink: Sink,
        instruments: Instruments,
        metrics: FailureRecoveryMetrics,
    ) -> None:
        scene, clock = self._scene, self._clock
        teller = Teller(sink)
        self._bounds = Bounds(scene, teller, clock, metrics)
        self.rights = Rights(NAME, metrics.missing_rights, sink)
        self._looks = Looks(client, clock, scene.leases, self.rights)
        self._audit = Audit(scene, clock, metrics)
        metrics.read_reachable(scene.stuck_on_reachable_nodes)
        metrics.read_stuck(scene.stuck_on_lost_nodes)
        self._due = DuePods(clock, metrics)
        writes = Writes(client, clock, scene, self.rights)
        parts = (scene, self._looks, writes, self._bounds, teller, self._audit)
        self._pod_recovery = PodRecovery(*parts, clock=clock, due=self._due)
        self._pods = self._controller("pods", self._pod_recovery, instruments, _POD_WORKERS)
        self._pod_recovery.queue = self._pods.queue
        self._nodes = self._controller("nodes", NodeRecovery(*parts, clock=clock), instruments, 1)

    def _controller(
        self, part: str, reconciler: Reconciler[str], instruments: Instruments, workers: int
    ) -> Controller[str]:
        return Controller(
            f"{NAME}/{part}",
            reconciler,
            clock=self._clock,
            instruments=instruments,
            settings=ControllerSettings(workers=workers),
        )

    # -- life

    def start(self) -> None:
        """Begin to act, unless another process leads."""
        self._started = True
        self._scene.leases.watch_stops()
        self._bounds.begin()
        self._begin()
        self._pods.start()
        self._nodes.start()

    def lead(self, *, leads: bool) -> None:
        """Act from now on as the elected process of the cluster, or stop. Without a call it acts.

        Another process may have acted before a new leader. Writes of this one may still be
        under way from when it led last: they go on to count for the budget.
        """
        self._scene.leads = leads
        if self._started:
            self._bounds.take_up()
            self._begin()

    def _begin(self) -> None:
        """Silences of leases count from now."""
        self._scene.leases.begin(self._leases)
        self._look_at_all()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._started = False
        self._scene.leases.close()
        both = (self._pods.stop(drain_seconds), self._nodes.stop(drain_seconds))
        ended = all(await asyncio.gather(*both))
        self._due.clear()  # the process that acts next has its own
        return ended

    def take_up(self, settings: Settings) -> None:
        """Work by other settings from now on, and look at everything that is lost anew."""
        self._use(settings)
        if self._started:
            self._bounds.take_up()
            self._due.clear()
            self._look_at_all()

    @property
    def _tainting(self) -> bool:
        return bool(self._scene.settings.policy.taint)

    def _use(self, settings: Settings) -> None:
        if settings.policy.taint and not settings.whole_cluster:
            log.warning(
                "%s: no node is declared out of service: with --namespace not all pods"
                " of a node are known",
                FIELD,
            )
            settings = replace(settings, policy=replace(settings.policy, taint=()))
        self._scene.settings = settings
        if settings.policy.has_rules and not settings.enabled:
            log.warning(
                "%s has rules, but the feature gate FailureRecoveryPolicy is off:"
                " nothing is recovered",
                FIELD,
            )

    def _look_at_all(self) -> None:
        """All that is lost; in it are all who waited for anything."""
        for node in self._scene.nodes:
            if zombie.is_unreachable(node):
                self._look_at_pods(node.metadata.name)
            if zombie.is_unreachable(node) or out_of_service.is_ours(node):
                self._nodes.queue.add(node.metadata.name)

    def _look_at_pods(self, node: str) -> None:
        for pod in self._scene.pods.on(node):
            if pod.is_terminating:
                self._look_at(pod)

    def _look_at(self, pod: Pod) -> None:
        """Each pod that is freed comes by once more, and mostly there is nothing left to decide."""
        if pod.is_terminal and not self._scene.settings.policy.deletes:
            self._pod_recovery.ended(key_of(pod), pod)
        else:
            self._pods.queue.add(key_of(pod))

    # -- what is seen

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        if new is None:
            self._scene.terminating.pop(key_of(pod), None)
            self._pod_recovery.forget(key_of(pod))
        elif new.is_terminating:
            self._scene.terminating[key_of(new)] = None
            if self._started and new.spec.node_name in self._scene.lost:
                self._look_at(new)
        if self._started and self._tainting and pod.spec.node_name in self._scene.lost:
            self._nodes.queue.add_after(pod.spec.node_name, _GATHER_SECONDS)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        node = new if new is not None else old
        assert node is not None
        name = node.metadata.name
        was, lost = name in self._scene.lost, new is not None and zombie.is_unreachable(new)
        if lost and not was:
            self._scene.lost[name] = None
        elif was and not lost:
            del self._scene.lost[name]
            self._looks.forget(name)
        if new is None:
            self._audit.forget(name)
        if not self._started:
            return
        if lost and _readiness(old) != _readiness(new):
            self._look_at_pods(name)
        self._after_node(name, new, edge=was != lost, counted=old is None or new is None)

    def _after_node(self, name: str, node: Node | None, *, edge: bool, counted: bool) -> None:
        if edge:
            self._look_at_pods(name)
        if node is not None and (edge or name in self._scene.lost or out_of_service.is_ours(node)):
            self._nodes.queue.add(name)
        if edge or counted:
            for key in self._bounds.released():
                queue = self._pods if split_key(key)[0] else self._nodes
                queue.queue.add(key)
            self._pod_recovery.serve()

    def _saw_lease(self, old: Lease | None, new: Lease | None) -> None:
        lease = new if new is not None else old
        assert lease is not None
        name = lease.metadata.name
        if lease.metadata.namespace != NODE_NAMESPACE:
            return
        self._scene.leases.observe(name, new)
        if not self._started or name not in self._scene.lost:
            return
        if old is None or new is None:
            # Without a lease nothing is forced, so its creation and deletion change decisions.
            self._look_at_pods(name)
            self._nodes.queue.add(name)
        elif self_fence.read_listed(old) != self_fence.read_listed(new):
            # The Lease lists other pods than before: those that were not armed may be now.
            self._look_at_pods(name)

    def _saw_namespace(self, old: Namespace | None, new: Namespace | None) -> None:
        if (
            not self._started
            or new is None
            or self._scene.settings.policy.annotated.namespaces.empty
        ):
            return
        if old is None or old.metadata.labels != new.metadata.labels:
            for key in self._scene.terminating:
                if split_key(key)[0] == new.metadata.name:
                    self._pods.queue.add(key)


def _readiness(node: Node | None) -> str | None:
    """The status of its Ready condition."""
    ready = None if node is None else structs.find(node.status.conditions, "Ready")
    return None if ready is None else ready.status
