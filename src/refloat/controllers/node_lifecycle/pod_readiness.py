# SPDX-License-Identifier: Apache-2.0
"""Marks the pods of nodes that are not ready (behaviour C3.6).

All pods of a node when the node is lost, and pods that are bound to such a node later. This
module never deletes pods (C3.18).
"""

import contextlib
import logging
from collections.abc import Awaitable

from refloat.api import structs
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.node_lifecycle.events import NodeEvents
from refloat.controllers.node_lifecycle.node_records import NodeRecords
from refloat.controllers.node_lifecycle.writes import NodeWriter
from refloat.policy.node import node_health
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


class PodReadiness:
    """Marks pods; also the reconciler of pods that were bound."""

    def __init__(
        self,
        writes: NodeWriter,
        events: NodeEvents,
        pods: Cache[Pod],
        nodes: Cache[Node],
        records: NodeRecords,
        *,
        clock: Clock,
        says_lost: bool,
    ) -> None:
        self._writes = writes
        self._events = events
        self._pods = pods
        self._nodes = nodes
        self._records = records
        self._clock = clock
        self._says_lost = says_lost

    async def reconcile(self, key: str) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name not in self._records:
            return DONE
        node = self._nodes.get(pod.spec.node_name)
        ready = None if node is None else structs.find(node.status.conditions, node_health.READY)
        if ready is not None and ready.status != "True":
            await self._mark(pod, is_lost=ready.status == "Unknown")
        return DONE

    async def mark_all(self, node: str) -> bool:
        """Mark the pods of a lost node; whether all writes succeeded."""
        pods = self._pods.by(index.NODE, node)
        return all([await self._try(pod, self._mark(pod, is_lost=True)) for pod in pods])

    async def clear_all(self, node: str) -> bool:
        """Remove the reason NodeLost from the pods of a node that returned."""
        if not self._says_lost:
            return True
        pods = self._pods.by(index.NODE, node)
        return all([await self._try(pod, self._clear(pod)) for pod in pods])

    async def _try(self, pod: Pod, write: Awaitable[None]) -> bool:
        try:
            await write
        except errors.ClientError as error:
            log.info("pod %s: %s; again in the next pass", key_of(pod), error)
            return False
        return True

    async def _clear(self, pod: Pod) -> None:
        status = node_health.recovered_pod_status(pod)
        if status is not None:
            with contextlib.suppress(errors.NotFound):
                await self._writes.pod_status(pod, status)

    async def _mark(self, pod: Pod, *, is_lost: bool) -> None:
        is_lost = is_lost and self._says_lost
        status = node_health.pod_status(pod, now=self._clock.now(), is_lost=is_lost)
        if status is None:
            return
        try:
            await self._writes.pod_status(pod, status)
        except errors.NotFound:
            return  # no event for a deleted pod
        if "conditions" in status:
            self._events.pod_not_ready(pod)
