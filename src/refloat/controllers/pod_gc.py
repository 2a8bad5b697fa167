# SPDX-License-Identifier: Apache-2.0
"""Deletes pods that no other controller would delete (behaviour C1).

A pass runs every 20 seconds, as in Kubernetes, but checks only pods of interest: handlers note
pods that have ended, terminating pods without a node, nodes out of service, and node names
that pods have and the cluster does not. In a quiet cluster a pass costs nothing.
`policy.garbage.pod_gc` decides.
"""

import logging
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter

from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.policy.garbage import pod_gc
from refloat.policy.garbage.pod_gc import Cause, PodGCSettings
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.runtime import index, status_writes
from refloat.runtime.cache import key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.reconcile import Result

log = logging.getLogger(__name__)

NAME = "pod-garbage-collector-controller"

# The one key: a pass over everything that was noted.
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
        settings: PodGCSettings | None = None,
        job_gates: JobGates = ALL_ON,
    ) -> None:
        self._client = client
        self._pods = pods.cache
        self._nodes = nodes.cache
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or PodGCSettings()
        self._job_gates = job_gates
        self._over: dict[str, None] = {}  # keys of pods that have ended
        self._unscheduled: dict[str, None] = {}  # keys of terminating pods without a node
        self._out_of_service: dict[str, None] = {}  # names of nodes
        self._missing: dict[str, None] = {}  # names that pods have and no node
        self._quarantine: dict[str, float] = {}  # such a name -> when it may be asked for
        nodes.add_handler(self._node_changed)
        pods.add_handler(self._pod_changed)
        self.controller: Controller[str] = Controller(
            NAME,
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(workers=1),
        )
        self.controller.queue.add(_PASS)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod, new = change.current, change.new
        key, node = key_of(pod), pod.spec.node_name
        _note(self._over, key, new is not None and pod_gc.is_over(new))
        _note(self._unscheduled, key, new is not None and new.is_terminating and not node)
        if new is not None and node and node not in self._nodes:
            self._missing[node] = None

    def _node_changed(self, change: Change[Node]) -> None:
        name, new = change.current.metadata.name, change.new
        _note(self._out_of_service, name, new is not None and pod_gc.is_out_of_service(new))
        _note(self._missing, name, new is None and self._pods.count(index.NODE, name) > 0)

    async def reconcile(self, key: str) -> Result:
        await self._collect(pod_gc.excess(self._known(self._over), self._settings.threshold))
        dead = [pod for name in self._out_of_service for pod in self._pods.by(index.NODE, name)]
        await self._collect([pod for pod in dead if pod.is_terminating], "out-of-service")
        await self._collect(await self._orphans(), "orphaned")
        await self._collect(self._known(self._unscheduled), "unscheduled")
        return Result(requeue_after=self._settings.period)

    def _known(self, keys: Iterable[str]) -> list[Pod]:
        return [pod for key in keys if (pod := self._pods.get(key)) is not None]

    async def _orphans(self) -> list[Pod]:
        """The pods of nodes that stay deleted for the quarantine (behaviour C1.5)."""
        now = self._clock.monotonic()
        for name in list(self._missing):
            if name in self._nodes or not self._pods.count(index.NODE, name):
                del self._missing[name]
            else:
                self._quarantine.setdefault(name, now + self._settings.quarantine)
        ripe = [name for name, until in self._quarantine.items() if until <= now]
        for name in ripe:
            del self._quarantine[name]
        orphans: list[Pod] = []
        for name in ripe:
            if name not in self._missing:
                continue
            try:
                await self._client.get(kinds.NODES, name)
            except errors.NotFound:
                orphans += self._pods.by(index.NODE, name)
            except errors.ClientError as error:
                log.warning("%s: node %s: %s; asked again after a quarantine", NAME, name, error)
        return orphans

    async def _collect(self, pods: Iterable[Pod], cause: Cause = "terminated") -> None:
        """Mark pods Failed and delete them; a failure is tried again in the next pass."""
        for pod in pods:
            namespace = pod.metadata.namespace
            try:
                # The status first: a delete that fails leaves a Failed pod (behaviour C1.2).
                status = pod_gc.failing(pod, cause, self._job_gates, now=self._clock.now())
                if status is not None:
                    await status_writes.patch(self._client, kinds.PODS, pod, status)
                options = DeleteOptions(grace_seconds=0, uid=pod.metadata.uid)
                name = pod.metadata.name
                await self._client.delete(kinds.PODS, name, namespace=namespace, options=options)
            except errors.ClientError as error:
                log.warning("%s: pod %s: %s", NAME, key_of(pod), error)
                self._metrics.errors.labels(namespace, cause).inc()
            else:
                log.debug("%s: pod %s/%s is deleted: %s", NAME, namespace, pod.metadata.name, cause)
                self._metrics.deleted.labels(namespace, cause).inc()


def _note(keys: dict[str, None], key: str, there: bool) -> None:
    if there:
        keys[key] = None
    else:
        keys.pop(key, None)


def build(env: ControllerEnv) -> Sequence[Worker]:
    collector = PodGarbageCollector(
        env.client("pod-garbage-collector"),
        env.informer(kinds.PODS, index.NODE),
        env.informer(kinds.NODES),
        clock=env.clock,
        instruments=env.instruments,
        metrics=PodGcMetrics(env.registry),
        settings=env.settings(PodGCSettings),
        job_gates=env.job_gates,
    )
    return [collector.controller]
