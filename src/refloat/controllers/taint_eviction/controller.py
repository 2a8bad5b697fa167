# SPDX-License-Identifier: Apache-2.0
"""Taint eviction (behaviour C2): countdowns for pods, and their deletion.

Handlers decide about observed changes and note countdowns; a queue returns each pod at its
time. Countdowns are in memory only, and start again with the process (C2.6).
`policy.taint_timers` decides; the node lifecycle controller sets the taints of lost nodes.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from refloat.api import conditions
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.controllers.taint_eviction.metrics import TaintEvictionMetrics
from refloat.policy.job import pod_reason
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.node import taint_timers
from refloat.policy.scheduling import disruption_target
from refloat.runtime import cache, index, status_writes
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "taint-eviction-controller"

# What adding up fractions of seconds leaves behind.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class TaintEvictionSettings:
    """How pods are deleted; Kubernetes' own values (C2.9)."""

    attempts: int = 5
    """In a row; when all fail, the pod is tried again with the queue's back-off."""

    attempt_seconds: float = 0.01
    """From one attempt to the next."""

    workers: int = 20
    """Pods deleted at once, each with up to three requests. Kubernetes has no bound."""


@dataclass(slots=True)
class _Countdown:
    """The countdown of one pod, kept until the pod is deleted or may stay."""

    about: Reference
    due: float
    firing: bool = False  # too late to cancel


class TaintEviction:
    """The reconciler, and the controller around it; a key is a pod's."""

    name = NAME

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        nodes: Informer[Node],
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        metrics: TaintEvictionMetrics,
        settings: TaintEvictionSettings | None = None,
        job_gates: JobGates = ALL_ON,
    ) -> None:
        """The informer of pods must have `index.NODE`."""
        self._client = client
        self._pods = pods.cache
        self._nodes = nodes.cache
        self._clock = clock
        self._sink = sink
        self._metrics = metrics
        self._settings = settings or TaintEvictionSettings()
        self._job_gates = job_gates
        self._countdowns: dict[str, _Countdown] = {}
        self._started = False
        self._controller: Controller[str] = Controller(
            NAME,
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(workers=self._settings.workers),
        )
        nodes.add_handler(self._node_changed)
        pods.add_handler(self._pod_changed)

    def start(self) -> None:
        """Begin to act: all countdowns start now, whenever the taints were added."""
        self._started = True
        for node in self._nodes:
            self._look_at_node(node)
        self._controller.start()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        self._started = False
        return await self._controller.stop(drain_seconds)

    def _node_changed(self, change: Change[Node]) -> None:
        """Start or end countdowns when the taints of a node change.

        When a node is deleted, its countdowns continue (C2.8). When a node with its name
        appears, they continue or end by its taints.
        """
        old, new = change.old, change.new
        if not self._started or new is None:
            return
        before = None if old is None else taint_timers.executing(old.spec.taints)
        if before != taint_timers.executing(new.spec.taints):
            self._look_at_node(new, lifted=before != ())

    def _look_at_node(self, node: Node, *, lifted: bool = False) -> None:
        if lifted or taint_timers.executing(node.spec.taints):
            for pod in self._pods.by(index.NODE, node.metadata.name):
                self._look_at_pod(pod, node)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if not self._started:
            return
        if new is None:
            self._cancel(cache.key_of(change.current))
        elif old is None or _matters(old) != _matters(new):
            node = self._nodes.get(new.spec.node_name)
            if node is not None and taint_timers.executing(node.spec.taints):
                self._look_at_pod(new, node)

    def _look_at_pod(self, pod: Pod, node: Node) -> None:
        key = cache.key_of(pod)
        taints = taint_timers.executing(node.spec.taints)
        step = taint_timers.decide(taints, pod.spec.tolerations, counting=key in self._countdowns)
        if step.act == "cancel":
            self._cancel(key)
        elif step.act == "start":
            self._begin(key, pod, step.seconds)
        elif step.act == "evict":
            countdown = self._countdowns.get(key)
            if countdown is not None and countdown.firing:
                return
            self._cancel(key)
            self._begin(key, pod, 0.0)

    def _begin(self, key: str, pod: Pod, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        self._countdowns[key] = _Countdown(Reference.of(kinds.PODS, pod), due)
        self._controller.queue.add_after(key, seconds)
        log.debug("%s: pod %s leaves node %s in %g s", NAME, key, pod.spec.node_name, seconds)

    def _cancel(self, key: str) -> None:
        """Cancel a countdown; the queue still returns the key, which then does nothing."""
        countdown = self._countdowns.pop(key, None)
        if countdown is not None and not countdown.firing:
            log.debug("%s: pod %s may stay", NAME, key)
            self._send(countdown, key, "Cancelling deletion of Pod")

    def _send(self, countdown: _Countdown, key: str, what: str) -> None:
        self._sink.event(
            countdown.about, "Normal", "TaintManagerEviction", "Evict", f"{what} {key}"
        )

    async def reconcile(self, key: str) -> Result:
        countdown = self._countdowns.get(key)
        if countdown is None:
            return DONE
        wait = countdown.due - self._clock.monotonic()
        if wait > _ROUNDING:  # a cancelled countdown was due sooner
            return Result(requeue_after=wait)
        if not countdown.firing:
            countdown.firing = True
            self._send(countdown, key, "Marking for deletion Pod")
        await self._evict(countdown)
        log.debug("%s: pod %s is deleted", NAME, key)
        if self._countdowns.get(key) is countdown:
            del self._countdowns[key]
        self._metrics.deletions.inc()
        self._metrics.latency.observe(self._clock.monotonic() - countdown.due)
        return DONE

    async def _evict(self, countdown: _Countdown) -> None:
        for _ in range(self._settings.attempts - 1):
            try:
                return await self._mark_and_delete(countdown.about)
            except errors.ClientError as error:
                log.info("pod %s: %s; again", countdown.about.name, error)
            await self._clock.sleep(self._settings.attempt_seconds)
        return await self._mark_and_delete(countdown.about)

    async def _mark_and_delete(self, about: Reference) -> None:
        """Write the condition first: a Job must see why its pod ended (KEP-3329)."""
        try:
            pod = await self._client.get(kinds.PODS, about.name, namespace=about.namespace)
            if pod.metadata.uid != about.uid:
                return  # another pod with its name, which has its own countdown
            if self._job_gates.pod_disruption_conditions:
                await self._mark(pod)
            await self._client.delete(
                kinds.PODS,
                about.name,
                namespace=about.namespace,
                options=DeleteOptions(
                    uid=about.uid,
                    reason=pod_reason.delete_reason(pod_reason.TAINT_EVICTION, self._job_gates),
                ),
            )
        except errors.NotFound:
            return

    async def _mark(self, pod: Pod) -> None:
        now = self._clock.now()
        target = disruption_target.condition(
            pod, taint_timers.REASON, taint_timers.MESSAGE, now=now
        )
        if target is None:
            return
        status = conditions.merged(pod.status.conditions, [target])
        await status_writes.patch(self._client, kinds.PODS, pod, status)


def _matters(pod: Pod) -> tuple[object, str]:
    """The part of a pod that decides about its countdown (C2.2)."""
    return (pod.spec.tolerations, pod.spec.node_name)


def build(env: ControllerEnv) -> Sequence[Worker]:
    client = env.client("taint-eviction-controller")
    eviction = TaintEviction(
        client,
        env.informer(kinds.PODS, index.NODE),
        env.informer(kinds.NODES),
        clock=env.clock,
        sink=env.recorder(client, NAME),
        instruments=env.instruments,
        metrics=TaintEvictionMetrics(env.registry),
        job_gates=env.job_gates,
    )
    return [eviction]
