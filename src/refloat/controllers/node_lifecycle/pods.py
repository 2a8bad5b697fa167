# SPDX-License-Identifier: Apache-2.0
"""Says on pods that their node is not ready (behaviour C3.6).

For all pods of a node when it is lost, and for one that is bound to such a
node later. Nothing is deleted here, ever (C3.18).
"""

import contextlib
import logging
from collections.abc import Awaitable

from refloat.api import structs
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.controllers.node_lifecycle.book import Book
from refloat.controllers.node_lifecycle.events import Teller
from refloat.controllers.node_lifecycle.writes import Writes
from refloat.policy import node_health
from refloat.runtime import index
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


class Pods:
    """Marks pods; as a reconciler, those that were bound: a key is a pod's."""

    def __init__(
        self,
        writes: Writes,
        teller: Teller,
        pods: Cache[Pod],
        nodes: Cache[Node],
        book: Book,
        *,
        clock: Clock,
        says_lost: bool,
    ) -> None:
        self._writes = writes
        self._teller = teller
        self._pods = pods
        self._nodes = nodes
        self._book = book
        self._clock = clock
        self._says_lost = says_lost

    async def reconcile(self, key: str) -> Result:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name not in self._book:
            return DONE
        node = self._nodes.get(pod.spec.node_name)
        ready = None if node is None else structs.find(node.status.conditions, node_health.READY)
        if ready is not None and ready.status != "True":
            await self._mark(pod, lost=ready.status == "Unknown")
        return DONE

    async def mark_all(self, node: str) -> bool:
        """Those of a lost node; whether all of them say so now."""
        pods = self._pods.by(index.NODE, node)
        return all([await self._try(pod, self._mark(pod, lost=True)) for pod in pods])

    async def clear_all(self, node: str) -> bool:
        """Those of a node that is back no longer say that it is lost."""
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
        status = node_health.found_status(pod)
        if status is not None:
            with contextlib.suppress(errors.NotFound):
                await self._writes.pod_status(pod, status)

    async def _mark(self, pod: Pod, *, lost: bool) -> None:
        lost = lost and self._says_lost
        status = node_health.pod_status(pod, now=self._clock.now(), lost=lost)
        if status is None:
            return
        try:
            await self._writes.pod_status(pod, status)
        except errors.NotFound:
            return  # its end is not told of
        if "conditions" in status:
            self._teller.pod_not_ready(pod)
