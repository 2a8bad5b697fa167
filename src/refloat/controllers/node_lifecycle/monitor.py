# SPDX-License-Identifier: Apache-2.0
"""The pass over the nodes (behaviour C3.3-C3.6, C3.8-C3.10, C3.15).

For each node in order: is the node new, is it lost, count it in its zone, set the NoExecute
taint, mark its pods. A node whose check fails is checked again in the next pass. After all
nodes the pass judges the zones.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from refloat.api import conditions, structs
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.node_lifecycle.events import NodeEvents
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.node_records import NodeRecord, NodeRecords
from refloat.controllers.node_lifecycle.pod_readiness import PodReadiness
from refloat.controllers.node_lifecycle.settings import NodeLifecycleSettings
from refloat.controllers.node_lifecycle.writes import NodeWriter
from refloat.controllers.node_lifecycle.zones import Zones
from refloat.policy.node import node_health, node_taints
from refloat.policy.scheduling.tolerations import NO_EXECUTE
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import Result

log = logging.getLogger(__name__)

# If this process did nothing for such a part of the grace period, it was stopped, or the machine
# slept. Load alone makes no such pause: there are ten passes in a grace period.
STOP_PART = 0.5


class Monitor:
    """The reconciler, with one key that returns after each period."""

    def __init__(
        self,
        client: Client,
        writes: NodeWriter,
        events: NodeEvents,
        pods: PodReadiness,
        zones: Zones,
        records: NodeRecords,
        *,
        nodes: Cache[Node],
        leases: Informer[Lease],
        wake: Callable[[str], object],
        clock: Clock,
        metrics: NodeLifecycleMetrics,
        settings: NodeLifecycleSettings,
    ) -> None:
        """`wake` queues zones in which nodes may be tainted."""
        self._client = client
        self._writes = writes
        self._events = events
        self._pods = pods
        self._zones = zones
        self._records = records
        self._nodes = nodes
        self._leases = leases
        self._wake = wake
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._awake: dict[str, None] = {}  # zones in which something may be tainted now
        self._all_down = False  # while all nodes are down, NoExecute taints are removed
        self._behind = ""  # the version of a Lease that the cache has not seen
        self._ran_at: float | None = None  # when this process last ran

    async def reconcile(self, key: str) -> Result:
        self._notice_stop()
        started = self._clock.monotonic()
        for name, uid in self._records.take_removed().items():
            self._events.removed(name, uid)
            if name not in self._records:
                self._zones.forget(name)
        await self._look_at(self._records.take(started))
        now = self._clock.monotonic()
        plan = self._zones.judge(now)
        self._awake.update(dict.fromkeys(plan.rates))
        # A new zone with a ready node ends this state, too, without `leaves`.
        self._all_down = plan.enters or (self._all_down and plan.all_down)
        if plan.leaves:
            log.info("some nodes are ready again: silence counts from now on")
            self._records.restart_silence(now)
        if plan.enters:
            log.warning("no node is ready: this controller evicts no pods until a node is")
            tainted = filter(node_taints.no_execute_held, self._nodes)
            await self._look_at([key_of(node) for node in tainted])
        # Wake zones only now: no node is tainted before the pass knows how many are down.
        awake, self._awake = self._awake, {}
        for zone in awake:
            self._wake(zone)
        self._metrics.all.observe(self._clock.monotonic() - started)
        return Result(requeue_after=self._settings.health.period)

    def _notice_stop(self) -> None:
        """Restart all silences after a stop of this process.

        Signs of life from that time were not read yet, and if the API server stopped too, no node
        could renew its Lease.
        """
        now = self._clock.monotonic()
        before, self._ran_at = self._ran_at, now
        if before is not None and now - before > STOP_PART * self._settings.health.grace:
            log.warning("this process did not run for %.0f s: silence counts anew", now - before)
            self._records.restart_silence(now)

    async def _look_at(self, names: Iterable[str]) -> None:
        """Check all nodes, some at once; nodes that were not reached are queued again."""
        todo = deque(names)
        try:
            workers = min(len(todo), self._settings.workers)
            await asyncio.gather(*(self._work(todo) for _ in range(workers)))
        finally:
            for name in todo:
                self._records.requeue(name)

    async def _work(self, todo: deque[str]) -> None:
        while todo:
            name = todo.popleft()
            started = self._clock.monotonic()
            done = False
            try:
                done = await self._look(name)
            except errors.NotFound:
                done = True  # the node is deleted, which the watch will show
            except errors.ClientError as error:
                log.warning("node %s: %s; again in the next pass", name, error)
            finally:
                if not done:
                    self._records.requeue(name)
            self._metrics.one.observe(self._clock.monotonic() - started)
            # Thousands of checks that write nothing must not block other tasks.
            await self._clock.sleep(0)

    async def _look(self, name: str) -> bool:
        """Check one node; whether nothing is left to do until it changes."""
        node, entry = self._nodes.get(name), self._records.get(name)
        if node is None or entry is None or node.metadata.uid != entry.uid:
            return True
        if entry.is_new:
            # A node that this process never saw starts without NoExecute taints (C3.10).
            node = await self._writes.lift_taints(node)
            self._events.registered(name, entry.uid)
            entry.is_new = False
            # The process that wrote Unknown may have ended before it marked the pods.
            entry.pods_pending = _ready(node) == "Unknown"
        self._notice_stop()
        current = await self._judge(node, entry)
        if current is None:
            return False
        self._zones.count(current)
        if structs.find(current.status.conditions, node_health.READY) is None:
            return True
        await self._taint(current)
        if _ready(current) == "True":
            entry.event_pending = entry.pods_pending = False
            return await self._pods.clear_all(name)
        # The node is not ready: send an event, and mark its pods (C3.6).
        if entry.event_pending:
            entry.event_pending = False
            self._events.not_ready(name, entry.uid)
        if entry.pods_pending:
            entry.pods_pending = not await self._pods.mark_all(name)
        return not entry.pods_pending

    async def _judge(self, node: Node, entry: NodeRecord) -> Node | None:
        """Write a lost node's conditions; the node after the write, None if unsure."""
        name = node.metadata.name
        if not self._records.is_lost(name, self._clock.monotonic()) or _ready(node) == "Unknown":
            return node
        if await self._is_behind(name):
            return None
        # Noted first: the write may happen though its answer is lost.
        entry.event_pending = entry.event_pending or _ready(node) == "True"
        entry.pods_pending |= entry.event_pending or not self._settings.taint_eviction

        def unknown(latest: Node) -> Object | None:
            now = self._clock.monotonic()
            entry.health = entry.health.after_status(latest, now)
            if not self._records.is_lost(name, now):
                return None  # the node gave a sign of life since
            changes = node_health.lost_conditions(latest, now=self._clock.now())
            return (
                {"status": conditions.merged(latest.status.conditions, changes)}
                if changes
                else None
            )

        current = await self._writes.node(node, unknown, subresource="status")
        # This write is no sign of life.
        entry.health = replace(entry.health, heartbeat=node_health.heartbeat(current))
        return current

    async def _is_behind(self, name: str) -> bool:
        """Whether the API server has a newer Lease of this node than the cache (C3.3).

        Then the whole cache may be old, and no node is lost until the cache has this Lease.
        """
        if self._behind and not self._leases.has_seen(self._behind):
            return True
        self._behind = ""
        try:
            lease = await self._client.get(kinds.LEASES, name, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            return False
        cached = self._leases.cache.get(f"{NODE_NAMESPACE}/{name}")
        version = "" if cached is None else cached.metadata.resource_version
        if lease.metadata.resource_version == version:
            return False
        self._behind = lease.metadata.resource_version
        log.warning("node %s: its lease on the server is newer than in the cache", name)
        return True

    async def _taint(self, node: Node) -> None:
        """Queue the zone for a first NoExecute taint; swap another one at once (C3.8)."""
        taints = node_taints.no_execute_held(node)
        add, remove = node_taints.no_execute(node)
        if _ready(node) == "True":
            self._zones.drop(node.metadata.name)
        if taints and (self._all_down or _ready(node) == "True"):
            node = await self._writes.lift_taints(node)
        elif remove:
            await self._writes.swap_taints(node, NO_EXECUTE, node_taints.no_execute)
        elif add:
            self._awake[self._zones.enqueue(node)] = None


def _ready(node: Node) -> str:
    """The status of the Ready condition; empty without the condition."""
    ready = structs.find(node.status.conditions, node_health.READY)
    return "" if ready is None else ready.status
