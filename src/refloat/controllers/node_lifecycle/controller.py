# SPDX-License-Identifier: Apache-2.0
"""The node lifecycle controller (behaviour C3), made from its parts.

Four queues: the pass over nodes that changed or are overdue (`monitor`), the NoSchedule
taints of each node, the zones in which nodes wait for NoExecute taints, and pods that were
bound. Handlers note observations in the records at once, so that a slow pass never makes a
node look silent.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.node_lifecycle.events import COMPONENT, NodeEvents
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.monitor import Monitor
from refloat.controllers.node_lifecycle.node_records import NodeRecords
from refloat.controllers.node_lifecycle.pod_readiness import PodReadiness
from refloat.controllers.node_lifecycle.settings import NodeLifecycleSettings
from refloat.controllers.node_lifecycle.taint_queue import NoExecuteTaints, NoScheduleTaints
from refloat.controllers.node_lifecycle.writes import NodeWriter
from refloat.controllers.node_lifecycle.zones import Zones
from refloat.runtime import index
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.informer import Change, Informer
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.manager import Worker
from refloat.runtime.reconcile import Reconciler
from refloat.runtime.recorder import Sink

NAME = "node-lifecycle-controller"

# The one key of the monitor's queue.
_PASS = "pass"  # noqa: S105 - not a password

# Few pods are bound between two passes (as in Kubernetes).
_POD_WORKERS = 4


class NodeLifecycle:
    """The worker: starts and stops like a controller, after its informers have synced."""

    name = NAME

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        pods: Informer[Pod],
        leases: Informer[Lease],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        metrics: NodeLifecycleMetrics,
        settings: NodeLifecycleSettings | None = None,
    ) -> None:
        """The informer of pods must have `index.NODE`."""
        self._settings = settings or NodeLifecycleSettings()
        self._clock = clock
        self._instruments = instruments
        self._nodes = nodes.cache
        self._leases = leases
        self._started = False
        self._records = NodeRecords(self._settings.health, LeaseObserver(clock, by_renew_time=True))
        self._join(client, pods, sink, metrics)
        nodes.add_handler(self._node_changed)
        leases.add_handler(self._lease_changed)
        pods.add_handler(self._pod_changed)

    def _join(
        self, client: Client, pods: Informer[Pod], sink: Sink, metrics: NodeLifecycleMetrics
    ) -> None:
        settings, workers = self._settings, self._settings.workers
        writes, events = NodeWriter(client, self._clock, settings), NodeEvents(sink)
        zones = Zones(settings.zones, metrics)
        evictions = NoExecuteTaints(writes, zones, self._nodes, self._clock, metrics)
        self._zone_queue = self._controller("zones", evictions, workers)
        marks = PodReadiness(
            writes,
            events,
            pods.cache,
            self._nodes,
            self._records,
            clock=self._clock,
            says_lost=not settings.taint_eviction,
        )
        self._pod_queue = self._controller("pods", marks, _POD_WORKERS)
        self._node_queue = self._controller("nodes", NoScheduleTaints(writes, self._nodes), workers)
        monitor = Monitor(
            client,
            writes,
            events,
            marks,
            zones,
            self._records,
            nodes=self._nodes,
            leases=self._leases,
            wake=self._zone_queue.queue.add,
            clock=self._clock,
            metrics=metrics,
            settings=settings,
        )
        self._monitor = self._controller("monitor", monitor, 1)

    def _controller(self, part: str, reconciler: Reconciler[str], workers: int) -> Controller[str]:
        return Controller(
            f"{NAME}/{part}",
            reconciler,
            clock=self._clock,
            instruments=self._instruments,
            settings=ControllerSettings(workers=workers),
        )

    @property
    def _controllers(self) -> Sequence[Controller[str]]:
        return (self._monitor, self._zone_queue, self._node_queue, self._pod_queue)

    def start(self) -> None:
        """Begin to act: every node counts as new now (behaviour C3.10)."""
        self._started = True
        for node in self._nodes:
            self._node_changed(Change(None, node))
        self._monitor.queue.add(_PASS)
        for each in self._controllers:
            each.start()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._started = False
        results = await asyncio.gather(*(each.stop(drain_seconds) for each in self._controllers))
        return all(results)

    def _node_changed(self, change: Change[Node]) -> None:
        new = change.new
        if not self._started:
            return
        if new is None:
            self._records.remove_node(change.current)
            return
        now = self._clock.monotonic()
        self._records.observe_node(new, now=now, wall=self._clock.now())
        if change.old is None:
            lease = self._leases.cache.get(f"{NODE_NAMESPACE}/{new.metadata.name}")
            if lease is not None:
                self._records.observe_lease(lease)
        self._node_queue.queue.add(new.metadata.name)

    def _lease_changed(self, change: Change[Lease]) -> None:
        new = change.new
        if self._started and new is not None and new.metadata.namespace == NODE_NAMESPACE:
            self._records.observe_lease(new)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if not self._started or new is None or not new.spec.node_name:
            return
        if old is None or old.spec.node_name != new.spec.node_name:
            self._pod_queue.queue.add(key_of(new))


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("node-controller")
    has_taint_eviction = "taint-eviction-controller" in env.controllers
    lifecycle = NodeLifecycle(
        client,
        env.informer(kinds.NODES),
        env.informer(kinds.PODS, index.NODE),
        env.node_leases(),
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
        metrics=NodeLifecycleMetrics(env.registry),
        settings=replace(env.settings(NodeLifecycleSettings), taint_eviction=has_taint_eviction),
    )
    return [lifecycle]
