# SPDX-License-Identifier: Apache-2.0
"""Failure recovery (KEP-6757): which pods and nodes are checked, and when.

Only pods that are being deleted and unreachable nodes cost anything: the handlers note
them, and a queue brings each back at its exact time. `policy.zombie` and
`policy.out_of_service` decide.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from refloat.api import self_fence, structs
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Namespace, Node, Pod
from refloat.base.clock import Clock
from refloat.base.gates import FAILURE_RECOVERY_POLICY
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.failure_recovery.audit import Audit
from refloat.controllers.failure_recovery.budget_queue import RecoveryLimits
from refloat.controllers.failure_recovery.due_pods import DuePods
from refloat.controllers.failure_recovery.events import COMPONENT, MAX_QUEUED, RecoveryEvents
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.node_recovery import NodeRecovery
from refloat.controllers.failure_recovery.pod_recovery import PodRecovery
from refloat.controllers.failure_recovery.recovery_state import PodCaches, RecoveryState
from refloat.controllers.failure_recovery.settings import FailureRecoverySettings
from refloat.controllers.failure_recovery.writes import LiveNodes, RecoveryWriter
from refloat.policy.recovery import out_of_service, zombie
from refloat.policy.recovery.failure_recovery import FIELD, FailureRecoveryPolicy
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of, split_key
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.informer import Change, Informer
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.manager import Worker
from refloat.runtime.missing_rights import Rights
from refloat.runtime.reconcile import Reconciler
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "failure-recovery-controller"

# Each worker waits for one write at a time, and a lost node may have thousands of pods.
# With ten workers, an embedded cluster that evicts and replaces pods at the same time takes far
# longer to free them. On Kubernetes each worker has a connection of its own (70 KB).
_POD_WORKERS = 20

# How long changes of a node's pods are gathered before the node is checked.
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
        settings: FailureRecoverySettings,
    ) -> None:
        """The informers of pods must have `index.NODE`."""
        self._clock = clock
        self._leases: Cache[Lease] = leases.cache
        self._state = RecoveryState(
            PodCaches([each.cache for each in pods]),
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
            each.add_handler(self._pod_changed)
        nodes.add_handler(self._node_changed)
        leases.add_handler(self._lease_changed)
        namespaces.add_handler(self._namespace_changed)

    def _join(
        self,
        client: Client,
        sink: Sink,
        instruments: Instruments,
        metrics: FailureRecoveryMetrics,
    ) -> None:
        state, clock = self._state, self._clock
        events = RecoveryEvents(sink)
        self._limits = RecoveryLimits(state, events, clock, metrics)
        self.rights = Rights(NAME, metrics.missing_rights, sink)
        self._live_nodes = LiveNodes(client, clock, state.leases, self.rights)
        self._audit = Audit(state, clock, metrics)
        metrics.read_reachable(state.stuck_on_reachable_nodes)
        metrics.read_stuck(state.stuck_on_lost_nodes)
        self._due = DuePods(clock, metrics)
        writes = RecoveryWriter(client, clock, state, self.rights)
        parts = (state, self._live_nodes, writes, self._limits, events, self._audit)
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
        self._state.leases.watch_stops()
        self._limits.begin()
        self._begin()
        self._pods.start()
        self._nodes.start()

    def lead(self, *, leads: bool) -> None:
        """Act from now on as the elected process of the cluster, or stop. Without a call it acts.

        Another process may have acted before. Writes of this process from its last term may
        still be under way; they still count for the budget.
        """
        self._state.leads = leads
        if self._started:
            self._limits.resume()
            self._begin()

    def _begin(self) -> None:
        """Silences of leases count from now."""
        self._state.leases.begin(self._leases)
        self._look_at_all()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._started = False
        self._state.leases.close()
        both = (self._pods.stop(drain_seconds), self._nodes.stop(drain_seconds))
        all_stopped = all(await asyncio.gather(*both))
        self._due.clear()  # the process that acts next counts anew
        return all_stopped

    def update_settings(self, settings: FailureRecoverySettings) -> None:
        """Apply new settings, and check all unreachable nodes and their pods again."""
        self._use(settings)
        if self._started:
            self._limits.resume()
            self._due.clear()
            self._look_at_all()

    def _use(self, settings: FailureRecoverySettings) -> None:
        if settings.policy.taint and not settings.whole_cluster:
            log.warning(
                "%s: no node is tainted out-of-service: with --namespace Refloat does not see"
                " all pods of a node",
                FIELD,
            )
            settings = replace(settings, policy=replace(settings.policy, taint=()))
        self._state.settings = settings
        if settings.policy.has_rules and not settings.enabled:
            log.warning(
                "%s has rules, but the feature gate FailureRecoveryPolicy is off:"
                " nothing is recovered",
                FIELD,
            )

    def _look_at_all(self) -> None:
        """All unreachable nodes and their pods; all keys that waited are among them."""
        for node in self._state.nodes:
            if zombie.is_unreachable(node):
                self._look_at_pods(node.metadata.name)
            if zombie.is_unreachable(node) or out_of_service.is_ours(node):
                self._nodes.queue.add(node.metadata.name)

    def _look_at_pods(self, node: str) -> None:
        for pod in self._state.pods.on(node):
            if pod.is_terminating:
                self._look_at(pod)

    def _look_at(self, pod: Pod) -> None:
        """Queue the pod; most pods that Refloat has freed need no further decision."""
        if pod.is_terminal and not self._state.settings.policy.deletes:
            self._pod_recovery.ended(key_of(pod), pod)
        else:
            self._pods.queue.add(key_of(pod))

    # -- what is seen

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, new = change.current, change.new
        if pod.is_terminal:  # also if it is gone: no reconcile will read it then
            self._pod_recovery.settle(key_of(pod), pod)
        if new is None:
            self._state.terminating.pop(key_of(pod), None)
            self._pod_recovery.forget(key_of(pod))
        elif new.is_terminating:
            self._state.terminating[key_of(new)] = None
            if self._started and new.spec.node_name in self._state.lost:
                self._look_at(new)
        if (
            self._started
            and self._state.settings.policy.taint
            and pod.spec.node_name in self._state.lost
        ):
            self._nodes.queue.add_after(pod.spec.node_name, _GATHER_SECONDS)

    def _node_changed(self, change: Change[Node]) -> None:
        old, new, name = change.old, change.new, change.current.metadata.name
        was_lost, is_lost = name in self._state.lost, new is not None and zombie.is_unreachable(new)
        if is_lost and not was_lost:
            self._state.lost[name] = None
        elif was_lost and not is_lost:
            del self._state.lost[name]
            self._live_nodes.forget(name)
        if new is None:
            self._audit.forget(name)
        if not self._started:
            return
        edge, node = was_lost != is_lost, new
        if edge or (is_lost and _readiness(old) != _readiness(new)):
            self._look_at_pods(name)
        if node is not None and (edge or is_lost or out_of_service.is_ours(node)):
            self._nodes.queue.add(name)
        if edge or old is None or new is None:
            for key in self._limits.released():
                queue = self._pods if split_key(key)[0] else self._nodes
                queue.queue.add(key)
            self._pod_recovery.serve()

    def _lease_changed(self, change: Change[Lease]) -> None:
        old, new, meta = change.old, change.new, change.current.metadata
        name = meta.name
        if meta.namespace != NODE_NAMESPACE:
            return
        self._state.leases.observe(name, new)
        if not self._started or name not in self._state.lost:
            return
        if old is None or new is None:
            # Without a Lease nothing is forced, so creation and deletion change decisions.
            self._look_at_pods(name)
            self._nodes.queue.add(name)
        elif self_fence.read_listed(old) != self_fence.read_listed(new):
            # The Lease lists other pods than before, so more pods may be armed.
            self._look_at_pods(name)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        old, new = change.old, change.new
        if (
            not self._started
            or new is None
            or self._state.settings.policy.annotated.namespaces.empty
        ):
            return
        if old is None or old.metadata.labels != new.metadata.labels:
            for key in self._state.terminating:
                if split_key(key)[0] == new.metadata.name:
                    self._pods.queue.add(key)


def _readiness(node: Node | None) -> str | None:
    """The status of its Ready condition."""
    ready = None if node is None else structs.find(node.status.conditions, "Ready")
    return None if ready is None else ready.status


def build(env: ControllerEnv) -> Sequence[Worker]:
    def settings() -> FailureRecoverySettings:
        return FailureRecoverySettings(
            env.gates.enabled(FAILURE_RECOVERY_POLICY),
            env.settings(FailureRecoveryPolicy),
            whole_cluster=not env.namespaces,
            says_why=env.job_gates.retriable_and_non_retriable_failures,
        )

    client, election = env.client("zombie-controller"), env.election(NAME)
    recovery = FailureRecovery(
        election.guard(client),
        env.namespaced(kinds.PODS, index.NODE),
        env.informer(kinds.NODES),
        env.node_leases(),
        env.informer(kinds.NAMESPACES),
        clock=env.clock,
        sink=env.recorder(client, COMPONENT, sourced=True, queued=MAX_QUEUED),
        instruments=env.instruments,
        metrics=FailureRecoveryMetrics(env.registry),
        settings=settings(),
    )

    def contend() -> None:
        election.use(is_on=settings().enabled, forces=settings().policy.mode != "Report")

    def update() -> None:
        recovery.update_settings(settings())
        contend()

    contend()
    election.join(lambda acts: recovery.lead(leads=acts))
    env.on_update(update)
    env.ready_when(f"rights/{NAME}", lambda: recovery.rights.missing)
    return [recovery]
