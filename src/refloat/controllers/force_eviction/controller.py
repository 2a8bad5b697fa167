# SPDX-License-Identifier: Apache-2.0
"""Force eviction (KEP-36): takes the next step for each node that a taint declares down.

Each step is decided on live reads (`observation`); the caches only say which nodes to
check. `policy.force_eviction` decides, and `writes` writes. Between two steps the
controller remembers only how long it has waited for leases and volumes, and which pods
it has recorded.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.base.gates import TAINT_FORCE_EVICTION
from refloat.client import errors, fence, kinds
from refloat.client.contract import Client
from refloat.controllers.force_eviction import audit
from refloat.controllers.force_eviction.audit import Audit
from refloat.controllers.force_eviction.events import COMPONENT, ForceEvictionEvents
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.force_eviction.observation import LiveReads
from refloat.controllers.force_eviction.pods import PodRecords
from refloat.controllers.force_eviction.writes import ForceEvictionWriter
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.policy.recovery.force_eviction import (
    ForceEvictionSettings,
    Observation,
    Step,
)
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
from refloat.runtime.missing_rights import Rights
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink
from refloat.runtime.status_writes import REFUSED

log = logging.getLogger(__name__)

NAME = "force-eviction-controller"

# More than the steps of an eviction: if another client undoes each step, other nodes get a turn.
_STEPS = 10

# How long after the reads a write may still be sent that needs the node to be down: as for
# zombie recovery, longer than the requests of a manager wait at its usual rate limit.
LATE_SECONDS = 3.0

_AT_ONCE = Result(requeue_after=0.0)

# A user waits for the result; most failures are a node that changed since the read.
_SETTINGS = ControllerSettings(workers=4, backoff=Backoff(base=0.2, cap=30.0))


class ForceEviction:
    """The reconciler, and the controller around it; a key is a node's name."""

    name = NAME

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        leases: Informer[Lease] | None,
        *,
        clock: Clock,
        sink: Sink,
        instruments: Instruments,
        metrics: ForceEvictionMetrics,
        settings: ForceEvictionSettings | None = None,
        job_gates: JobGates = ALL_ON,
        is_on: bool = True,
    ) -> None:
        """Without `leases` the Lease of a node is observed from the first read on."""
        self._nodes = nodes.cache
        self._clock = clock
        self._settings = settings or ForceEvictionSettings()
        self._job_gates = job_gates
        self._is_on = is_on
        self._events = ForceEvictionEvents(sink)
        self._metrics = metrics
        self.rights = Rights(NAME, metrics.missing_rights, sink)
        self._writes = ForceEvictionWriter(client, clock, self._settings, self.rights)
        self._reads = LiveReads(client, clock, self._settings, self.rights, leases)
        self._audit = Audit(clock, self._reads.silence)
        self._pods = PodRecords(self._events, self._audit, metrics)
        self._mistyped: dict[str, object] = {}  # by node: the taint that has an event
        self._lost_answers: dict[str, tuple[Step, Node]] = {}  # by node: a step, and the node
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        nodes.add_handler(self._node_changed)
        if leases is not None:
            leases.add_handler(self._lease_changed)

    def update_settings(
        self, *, is_on: bool, job_gates: JobGates, settings: ForceEvictionSettings | None = None
    ) -> None:
        """Apply gates and settings: an eviction stops before its next step, or continues.

        Without `settings` the old ones stay.
        """
        self._is_on, self._job_gates = is_on, job_gates
        if settings is not None:
            self._settings = self._writes.settings = self._reads.settings = settings
        for node in self._nodes if is_on else ():
            self._node_changed(Change(None, node))

    def _node_changed(self, change: Change[Node]) -> None:
        for node in (change.new, change.old):
            if node is not None and _matters(node):
                self.controller.queue.add(node.metadata.name)
                return

    def _lease_changed(self, change: Change[Lease]) -> None:
        meta = change.current.metadata
        name = meta.name
        if meta.namespace == NODE_NAMESPACE:
            self._reads.observe(name, change.new)
            if self._reads.awaits(name):
                self.controller.queue.add(name)

    async def reconcile(self, key: str) -> Result:
        """Take steps as long as there is something to do."""
        if self._is_on:
            self._report_mistyped(key)
        for _ in range(_STEPS):
            began = self._clock.monotonic()
            observation = await self._look(key) if self._is_on else None
            step = self._decide(observation)
            if observation is None or isinstance(step, force_eviction.Nothing):
                self._forget(key)
                return DONE
            self._metrics.under_way.set(len(self._reads))
            if isinstance(step, force_eviction.EvictLater):
                self._audit.wait(observation.node, step.why)
                return Result(requeue_after=step.seconds)
            with fence.fenced(self._check(step, began)):
                await self._apply(step, observation, began)
            if isinstance(step, force_eviction.Evict) and self._is_late(began):
                return _AT_ONCE  # many pods: what is left needs new reads
        raise Retry(f"node {key} changes with each step")

    def _report_mistyped(self, name: str) -> None:
        """Send one event for each such taint."""
        node = self._nodes.get(name)
        taint = None if node is None else force_eviction.mistyped(node)
        if node is None or taint is None:
            self._mistyped.pop(name, None)
            return
        record = (node.metadata.uid, taint.value, taint.effect)
        if self._mistyped.get(name) != record:
            self._mistyped[name] = record
            self._events.mistyped(node, taint)

    async def _look(self, key: str) -> Observation | None:
        node = self._nodes.get(key)
        if not self._reads.awaits(key) and (node is None or not force_eviction.concerns(node)):
            return None
        observation = await self._reads.read(key)
        if observation is not None:
            self._settle(observation)
            self._pods.settle(observation)
        return observation

    def _settle(self, observation: Observation) -> None:
        """Record a step whose answer was lost, if the node shows the step."""
        step, before = self._lost_answers.pop(observation.node.metadata.name, (None, None))
        if step is None or before is None:
            return
        done = force_eviction.progress(observation.node)
        began = done is not None and done.step == force_eviction.EVICTING
        is_over = not force_eviction.concerns(observation.node)
        if began if isinstance(step, force_eviction.Begin) else is_over:
            self._record_step(step, before)

    def _decide(self, observation: Observation | None) -> Step:
        """Ask the gate after the reads, which may have taken long."""
        if observation is None or not self._is_on:
            return force_eviction.Nothing()
        return force_eviction.decide(observation, self._settings)

    def _check(self, step: Step, began: float) -> Callable[[], None]:
        """The check before each request, because the client may delay a write.

        Steps that need the node to be down need recent reads.
        """
        evidence_steps = force_eviction.ClearVolumes | force_eviction.Begin | force_eviction.Evict
        needs_evidence = isinstance(step, evidence_steps)

        def check() -> None:
            if not self._is_on:
                raise Retry("the gate was switched off before the write was sent")
            if needs_evidence and self._is_late(began):
                raise Retry("the reads of node and lease are too old for the write")

        return check

    def _is_late(self, began: float) -> bool:
        return self._clock.monotonic() - began > LATE_SECONDS

    def _forget(self, name: str) -> None:
        self._reads.forget(name)
        self._pods.forget(name)
        self._audit.forget(name)
        self._metrics.under_way.set(len(self._reads))

    async def _apply(self, step: Step, observation: Observation, began: float) -> None:
        node = observation.node
        match step:
            case force_eviction.ClearVolumes():
                await self._writes.clear_volumes(node)
            case force_eviction.Evict(pods):
                await self._evict(pods, node, began)
            case force_eviction.Detach(attachments):
                for each in attachments:
                    if self._is_on and await self._writes.detach(each, node):
                        self._metrics.volumes.inc()
            case _:
                # Steps that begin or end an eviction: an event and a record belong to the write.
                is_begin = isinstance(step, force_eviction.Begin)
                try:
                    await (self._writes.begin(node) if is_begin else self._writes.end(node))
                except REFUSED:
                    raise
                except Exception:
                    self._lost_answers[node.metadata.name] = (step, node)
                    raise
                self._record_step(step, node)

    def _record_step(self, step: Step, node: Node) -> None:
        taints = force_eviction.request_taints(node)
        match step:
            case force_eviction.Refuse(why):
                self._ended("refused", node, why)
                self._events.refused(node, taints, why)
            case force_eviction.Withdraw():
                self._ended("withdrawn", node, "the taint that asked for it is gone")
                self._events.withdrawn(node)
            case force_eviction.Begin():
                self._audit.node(node, audit.STARTED, "its pods are evicted from now on")
                self._events.began(node, taints)
            case force_eviction.Finish():
                self._ended("finished", node, "its pods and volumes are free")
                self._events.finished(node)

    def _ended(self, result: str, node: Node, why: str) -> None:
        self._metrics.nodes.labels(result).inc()
        self._audit.node(node, result, why)
        self._forget(node.metadata.name)

    async def _evict(self, pods: tuple[Pod, ...], node: Node, began: float) -> None:
        """Evict all pods while the reads are recent; a pod that fails is tried again later."""
        failed: errors.ClientError | None = None
        for pod in pods:
            if not self._is_on or self._is_late(began):
                break
            try:
                await self._pods.evict(pod, node, self._writes, self._job_gates)
            except errors.ClientError as error:
                log.warning("%s: pod %s: %s", NAME, pod.metadata.name, error)
                failed = error
        if failed is not None:
            raise failed


def _matters(node: Node) -> bool:
    return force_eviction.concerns(node) or force_eviction.mistyped(node) is not None


def build(env: ControllerEnv) -> Sequence[Worker]:
    """On Kubernetes Refloat reads the Leases of nodes with the taint, and watches none."""

    def settings() -> ForceEvictionSettings:
        grace = env.settings(FailureRecoveryPolicy).node_grace_period
        return replace(env.settings(ForceEvictionSettings), node_grace=grace)

    client, election = env.client("force-eviction-controller"), env.election(NAME)
    eviction = ForceEviction(
        election.guard(client),
        env.informer(kinds.NODES),
        None if settings().hands_over else env.node_leases(),
        clock=env.clock,
        sink=env.recorder(client, COMPONENT),
        instruments=env.instruments,
        metrics=ForceEvictionMetrics(env.registry),
        settings=settings(),
        job_gates=env.job_gates,
        is_on=False,
    )

    def apply(acts: bool) -> None:
        is_on = acts and env.gates.enabled(TAINT_FORCE_EVICTION)
        eviction.update_settings(is_on=is_on, job_gates=env.job_gates, settings=settings())

    def update() -> None:
        election.use(is_on=env.gates.enabled(TAINT_FORCE_EVICTION), forces=True)
        apply(election.acts)

    election.use(is_on=env.gates.enabled(TAINT_FORCE_EVICTION), forces=True)
    election.join(apply)
    env.on_update(update)
    env.ready_when(f"rights/{NAME}", lambda: eviction.rights.missing)
    return [eviction.controller]
