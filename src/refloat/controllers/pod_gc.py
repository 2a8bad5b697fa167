# SPDX-License-Identifier: Apache-2.0
"""Deletes pods that nobody else ever would (behaviour C1).

It looks every 20 seconds, as Kubernetes does, but only at what may concern
it: handlers note pods that are over, terminating pods without a node, nodes
out of service, and node names that pods have and the cluster does not. A pass
over a quiet cluster costs nothing. What it decides is in `policy.pod_gc`.
"""

import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy import pod_gc
from refloat.policy.pod_gc import Cause, Settings
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime import index, statuses
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.reconcile import Result

log = logging.getLogger(__name__)

NAME = "pod-garbage-collector-controller"

POD_INDEXES = (index.NODE,)

# The one key there is: a look at everything that was noted.
_PASS = "pass"  # noqa: S105 - not a password


class PodGcMetrics:
    """Under Kubernetes' names (behaviour C1.10)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("namespace", "reason")
        self.deleted = Counter(
            "pod_gc_collector_force_delete_pods_total",
            "Pods that were deleted by force, by namespace and cause.",
            labels,
            registry=registry,
        )
        self.errors = Counter(
            "pod_gc_collector_force_delete_pod_errors_total",
            "Pods that could not be deleted by force, by namespace and cause.",
            labels,
            registry=registry,
        )


class PodGarbageCollector:
    """The reconciler, and the controller around it."""

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        nodes: Informer[Node],
        *,
        clock: Clock,
        instruments: Instruments,
        metrics: PodGcMetrics,
        settings: Settings | None = None,
        switches: Switches = ALL_ON,
    ) -> None:
        self._client = client
        self._pods = pods.cache
        self._nodes = nodes.cache
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or Settings()
        self._switches = switches
        self._over: dict[str, None] = {}  # keys of pods that have ended
        self._unscheduled: dict[str, None] = {}  # keys of terminating pods without a node
        self._out_of_service: dict[str, None] = {}  # names of nodes
        self._missing: dict[str, None] = {}  # names that pods have and no node
        self._quarantine: dict[str, float] = {}  # such a name -> when it may be asked for
        nodes.add_handler(self._saw_node)
        pods.add_handler(self._saw_pod)
        self.controller: Controller[str] = Controller(
            NAME,
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(workers=1),
        )
        self.controller.queue.add(_PASS)

    def _saw_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        key, node = key_of(pod), pod.spec.node_name
        _note(self._over, key, new is not None and pod_gc.is_over(new))
        _note(self._unscheduled, key, new is not None and new.is_terminating and not node)
        if new is not None and node and node not in self._nodes:
            self._missing[node] = None

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        node = new if new is not None else old
        assert node is not None
        name = node.metadata.name
        _note(self._out_of_service, name, new is not None and pod_gc.is_out_of_service(new))
        _note(self._missing, name, new is None and self._pods.count(index.NODE, name) > 0)

    async def reconcile(self, key: str) -> Result:
        await self._collect(pod_gc.excess(self._known(self._over), self._settings.threshold))
        await self._collect(self._on_dead_nodes(), "out-of-service")
        await self._collect(await self._orphans(), "orphaned")
        await self._collect(self._known(self._unscheduled), "unscheduled")
        return Result(requeue_after=self._settings.period)

    def _known(self, keys: Iterable[str]) -> list[Pod]:
        return [pod for key in keys if (pod := self._pods.get(key)) is not None]

    def _on_dead_nodes(self) -> list[Pod]:
        return [
            pod
            for name in self._out_of_service
            for pod in self._pods.by(index.NODE, name)
            if pod.is_terminating
        ]

    async def _orphans(self) -> list[Pod]:
        """The pods of nodes that are gone for good (behaviour C1.5)."""
        now = self._clock.monotonic()
        for name in list(self._missing):
            if name in self._nodes or not self._pods.count(index.NODE, name):
                del self._missing[name]
            else:
                self._quarantine.setdefault(name, now + self._settings.quarantine)
        ripe = [name for name, until in self._quarantine.items() if until <= now]
        for name in ripe:
            del self._quarantine[name]
        gone = [name for name in ripe if name in self._missing and await self._is_gone(name)]
        return [pod for name in gone for pod in self._pods.by(index.NODE, name)]

    async def _is_gone(self, name: str) -> bool:
        try:
            await self._client.get(kinds.NODES, name)
        except errors.NotFound:
            return True
        except errors.ClientError as error:
            log.warning("%s: node %s: %s; asked again after a quarantine", NAME, name, error)
        return False

    async def _collect(self, pods: Iterable[Pod], cause: Cause = "terminated") -> None:
        """One after the other; one that cannot be collected is tried in the next pass."""
        for pod in pods:
            namespace = pod.metadata.namespace
            try:
                await self._fail_and_delete(pod, cause)
            except errors.ClientError as error:
                log.warning("%s: pod %s: %s", NAME, key_of(pod), error)
                self._metrics.errors.labels(namespace, cause).inc()
            else:
                log.debug("%s: pod %s/%s is deleted: %s", NAME, namespace, pod.metadata.name, cause)
                self._metrics.deleted.labels(namespace, cause).inc()

    async def _fail_and_delete(self, pod: Pod, cause: Cause) -> None:
        """The status first: a delete that fails leaves a pod that has failed (behaviour C1.2)."""
        meta = pod.metadata
        status = pod_gc.failing(pod, cause, self._switches, now=self._clock.now())
        if status is not None:
            await statuses.patch(self._client, kinds.PODS, pod, status)
        options = DeleteOptions(grace_seconds=0, uid=meta.uid)
        await self._client.delete(kinds.PODS, meta.name, namespace=meta.namespace, options=options)


def _note(noted: dict[str, None], key: str, there: bool) -> None:
    if there:
        noted[key] = None
    else:
        noted.pop(key, None)
