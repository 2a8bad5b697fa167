# SPDX-License-Identifier: Apache-2.0
"""The node lifecycle controller (behaviour C3): its parts, joined.

Four queues: the pass over nodes that changed or are overdue (`monitor`), the
NoSchedule taints of each node, the zones in which nodes wait for NoExecute
taints, and pods that were bound. Handlers note what they see in the book at
once, so that a slow pass never makes a node look silent.
"""

import asyncio
from collections.abc import Sequence

from refloat.api.coordination import Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client.contract import Client
from refloat.controllers.node_lifecycle.book import Book
from refloat.controllers.node_lifecycle.events import Teller
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.monitor import LEASE_NAMESPACE, Monitor
from refloat.controllers.node_lifecycle.pods import Pods
from refloat.controllers.node_lifecycle.settings import Settings
from refloat.controllers.node_lifecycle.tainting import Evictions, NoSchedule
from refloat.controllers.node_lifecycle.writes import Writes
from refloat.controllers.node_lifecycle.zones import Zones
from refloat.runtime import index
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import Reconciler
from refloat.runtime.recorder import Sink

NAME = "node-lifecycle-controller"

POD_INDEXES = (index.NODE,)

# The one key of the monitor's queue.
_PASS = "pass"  # noqa: S105 - not a password

# Pods that the pass did not see are few (as in Kubernetes).
_POD_WORKERS = 4


class NodeLifecycle:
    """Starts and stops like a controller, after its informers have synced."""

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
        settings: Settings | None = None,
    ) -> None:
        """The informer of pods must have `POD_INDEXES`."""
        self._settings = settings or Settings()
        self._clock = clock
        self._instruments = instruments
        self._nodes = nodes.cache
        self._leases = leases
        self._started = False
        self._book = Book(self._settings.health)
        self._join(client, pods, sink, metrics)
        nodes.add_handler(self._saw_node)
        leases.add_handler(self._saw_lease)
        pods.add_handler(self._saw_pod)

    def _join(
        self, client: Client, pods: Informer[Pod], sink: Sink, metrics: NodeLifecycleMetrics
    ) -> None:
        settings, workers = self._settings, self._settings.workers
        writes, teller = Writes(client, self._clock, settings), Teller(sink)
        zones = Zones(settings.zones, metrics)
        evictions = Evictions(writes, zones, self._nodes, self._clock, metrics)
        self._zone_queue = self._controller("zones", evictions, workers)
        marks = Pods(
            writes,
            teller,
            pods.cache,
            self._nodes,
            self._book,
            clock=self._clock,
            says_lost=not settings.taint_eviction,
        )
        self._pod_queue = self._controller("pods", marks, _POD_WORKERS)
        self._node_queue = self._controller("nodes", NoSchedule(writes, self._nodes), workers)
        monitor = Monitor(
            client,
            writes,
            teller,
            marks,
            zones,
            self._book,
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
        """Begin to act: every node is seen for the first time now (behaviour C3.10)."""
        self._started = True
        for node in self._nodes:
            self._saw_node(None, node)
        self._monitor.queue.add(_PASS)
        for each in self._controllers:
            each.start()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._started = False
        ended = await asyncio.gather(*(each.stop(drain_seconds) for each in self._controllers))
        return all(ended)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        if not self._started:
            return
        if new is None:
            assert old is not None
            self._book.gone(old)
            return
        now = self._clock.monotonic()
        self._book.saw(new, now=now, wall=self._clock.now())
        if old is None:
            lease = self._leases.cache.get(f"{LEASE_NAMESPACE}/{new.metadata.name}")
            if lease is not None:
                self._book.renewed(lease, now)
        self._node_queue.queue.add(new.metadata.name)

    def _saw_lease(self, old: Lease | None, new: Lease | None) -> None:
        if self._started and new is not None and new.metadata.namespace == LEASE_NAMESPACE:
            self._book.renewed(new, self._clock.monotonic())

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        if not self._started or new is None or not new.spec.node_name:
            return
        if old is None or old.spec.node_name != new.spec.node_name:
            self._pod_queue.queue.add(key_of(new))
