# SPDX-License-Identifier: Apache-2.0
"""The pass over the nodes (behaviour C3.3-C3.6, C3.8-C3.10, C3.15).

One look at a node is a ladder: is it new, is it lost, what does its zone make
of it, which NoExecute taint is due, do its pods say so. A look that fails is
taken again in the next pass. After all looks the zones are judged.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from refloat.api import conditions, coordination, structs
from refloat.api.coordination import Lease
from refloat.api.core import Node
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.controllers.node_lifecycle.book import Book, Entry
from refloat.controllers.node_lifecycle.events import Teller
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.node_lifecycle.pods import Pods
from refloat.controllers.node_lifecycle.settings import Settings
from refloat.controllers.node_lifecycle.writes import Writes
from refloat.controllers.node_lifecycle.zones import Zones
from refloat.policy import node_health, node_taints
from refloat.policy.tolerations import NO_EXECUTE
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import Result

log = logging.getLogger(__name__)

LEASE_NAMESPACE = coordination.NODE_NAMESPACE

# If this process did nothing for such a part of the grace period, it was stopped, or the machine
# slept. A pass comes ten times in a grace period, so load alone makes no such pause.
STOP_PART = 0.5


class Monitor:
    """The reconciler; it has one key, and comes again after each period."""

    def __init__(
        self,
        client: Client,
        writes: Writes,
        teller: Teller,
        pods: Pods,
        zones: Zones,
        book: Book,
        *,
        nodes: Cache[Node],
        leases: Informer[Lease],
        wake: Callable[[str], object],
        clock: Clock,
        metrics: NodeLifecycleMetrics,
        settings: Settings,
    ) -> None:
        """`wake` is told of zones in which something may be tainted."""
        self._client = client
        self._writes = writes
        self._teller = teller
        self._pods = pods
        self._zones = zones
        self._book = book
        self._nodes = nodes
        self._leases = leases
        self._wake = wake
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._awake: dict[str, None] = {}  # zones in which something may be tainted now
        self._all_down = False  # since that was so, NoExecute taints are taken off
        self._behind = ""  # the version of a lease that we have not seen
        self._ran_at: float | None = None  # when this process was last seen to run

    async def reconcile(self, key: str) -> Result:
        self._notice_stop()
        started = self._clock.monotonic()
        for name, uid in self._book.take_gone().items():
            self._teller.removed(name, uid)
            if name not in self._book:
                self._zones.forget(name)
        await self._look_at(self._book.take(started))
        await self._judge_zones()
        self._wake_zones()
        self._metrics.all.observe(self._clock.monotonic() - started)
        return Result(requeue_after=self._settings.health.period)

    def _notice_stop(self) -> None:
        """Begin all silences anew after a stop of this process.

        Signs of life that came meanwhile were not read yet, and if the API server stopped too,
        no node could give any.
        """
        now = self._clock.monotonic()
        before, self._ran_at = self._ran_at, now
        if before is not None and now - before > STOP_PART * self._settings.health.grace:
            log.warning("this process did not run for %.0f s: silence counts anew", now - before)
            self._book.begin_anew(now)

    async def _look_at(self, names: Iterable[str]) -> None:
        """At all of them, some at once; those that were not reached come again."""
        todo = deque(names)
        try:
            workers = min(len(todo), self._settings.workers)
            await asyncio.gather(*(self._work(todo) for _ in range(workers)))
        finally:
            for name in todo:
                self._book.again(name)

    async def _work(self, todo: deque[str]) -> None:
        while todo:
            name = todo.popleft()
            started = self._clock.monotonic()
            done = False
            try:
                done = await self._look(name)
            except errors.NotFound:
                done = True  # it is gone, and the watch will say so
            except errors.ClientError as error:
                log.warning("node %s: %s; again in the next pass", name, error)
            finally:
                if not done:
                    self._book.again(name)
            self._metrics.one.observe(self._clock.monotonic() - started)
            # Thousands of looks that write nothing must not keep others waiting.
            await self._clock.sleep(0)

    async def _look(self, name: str) -> bool:
        """Whether nothing is left to do until something changes."""
        node, entry = self._nodes.get(name), self._book.get(name)
        if node is None or entry is None or node.metadata.uid != entry.uid:
            return True
        if entry.is_new:
            node = await self._welcome(node, entry)
        self._notice_stop()
        judged = await self._judge(node, entry)
        if judged is None:
            return False
        self._zones.count(judged)
        if structs.find(judged.status.conditions, node_health.READY) is None:
            return True
        await self._taint(judged)
        return await self._tell(judged, entry)

    async def _welcome(self, node: Node, entry: Entry) -> Node:
        """A node that was never seen starts without NoExecute taints (C3.10)."""
        node = await self._writes.lift_taints(node)
        self._teller.registered(node.metadata.name, entry.uid)
        entry.is_new = False
        # Whoever wrote that it is lost may have ended before its pods said so.
        entry.pods_pending = _ready(node) == "Unknown"
        return node

    async def _judge(self, node: Node, entry: Entry) -> Node | None:
        """Say that it is lost, if it is; the node as it is then. None: it cannot be told."""
        name = node.metadata.name
        if not self._book.is_lost(name, self._clock.monotonic()) or _ready(node) == "Unknown":
            return node
        if await self._is_behind(name):
            return None
        # Noted first: the write may happen and its answer be lost.
        entry.untold = entry.untold or _ready(node) == "True"
        entry.pods_pending |= entry.untold or not self._settings.taint_eviction

        def unknown(seen: Node) -> Object | None:
            now = self._clock.monotonic()
            entry.health.posted(seen, now)
            if not entry.health.is_lost(self._settings.health, now):
                return None  # it beat while we wrote
            lost = node_health.lost_conditions(seen, now=self._clock.now())
            return {"status": conditions.merged(seen.status.conditions, lost)} if lost else None

        judged = await self._writes.node(node, unknown, subresource="status")
        entry.health.heartbeat = node_health.heartbeat(judged)  # that was no sign of life
        return judged

    async def _is_behind(self, name: str) -> bool:
        """Does the server know of a newer lease than we (C3.3)?

        Then all that we know may be old, and nobody is called lost until we have
        caught up with that lease.
        """
        if self._behind and not self._leases.has_seen(self._behind):
            return True
        self._behind = ""
        try:
            lease = await self._client.get(kinds.LEASES, name, namespace=LEASE_NAMESPACE)
        except errors.NotFound:
            return False
        if lease.metadata.resource_version == self._lease_version(name):
            return False
        self._behind = lease.metadata.resource_version
        log.warning("the lease of node %s is newer than what was seen of it", name)
        return True

    def _lease_version(self, name: str) -> str:
        lease = self._leases.cache.get(f"{LEASE_NAMESPACE}/{name}")
        return "" if lease is None else lease.metadata.resource_version

    async def _taint(self, node: Node) -> None:
        """The first NoExecute taint waits for its turn, another in its place does not (C3.8)."""
        held = node_taints.no_execute_held(node)
        add, remove = node_taints.no_execute(node)
        if _ready(node) == "True":
            self._zones.drop(node.metadata.name)
        if held and (self._all_down or _ready(node) == "True"):
            node = await self._writes.lift_taints(node)
        elif remove:
            await self._writes.swap_taints(node, NO_EXECUTE, node_taints.no_execute)
        elif add:
            self._awake[self._zones.enqueue(node)] = None

    async def _tell(self, node: Node, entry: Entry) -> bool:
        """Say that it is not ready, once, and have its pods say so (C3.6)."""
        if _ready(node) == "True":
            entry.untold = entry.pods_pending = False
            return await self._pods.clear_all(node.metadata.name)
        if entry.untold:
            entry.untold = False
            self._teller.not_ready(node.metadata.name, entry.uid)
        if entry.pods_pending:
            entry.pods_pending = not await self._pods.mark_all(node.metadata.name)
        return not entry.pods_pending

    async def _judge_zones(self) -> None:
        now = self._clock.monotonic()
        plan = self._zones.judge(now)
        self._awake.update(dict.fromkeys(plan.rates))
        # It ends also without `leaves`: in a zone that was not there before.
        self._all_down = plan.enters or (self._all_down and plan.all_down)
        if plan.leaves:
            log.info("some nodes are ready again: silence counts from now on")
            self._book.begin_anew(now)
        if plan.enters:
            log.warning("no node is ready: no pod is made to leave while that is so")
            tainted = filter(node_taints.no_execute_held, self._nodes)
            await self._look_at([key_of(node) for node in tainted])

    def _wake_zones(self) -> None:
        """Only now: nobody is tainted before it is clear how many are down."""
        awake, self._awake = self._awake, {}
        for zone in awake:
            self._wake(zone)


def _ready(node: Node) -> str:
    """The status of its Ready condition; empty if it has none."""
    ready = structs.find(node.status.conditions, node_health.READY)
    return "" if ready is None else ready.status
