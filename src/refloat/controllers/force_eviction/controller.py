# SPDX-License-Identifier: Apache-2.0
"""Force eviction (KEP-36): looks at nodes that a taint says are down, and takes the next step.

What a step is decided on is read live (`observation`); the caches only say
which nodes to look at. `policy.force_eviction` decides, and `writes` writes.
Between two steps nothing is remembered but how long leases and volumes have
been waited for, and which pods were told of.
"""

import logging
from collections.abc import Callable

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, fence
from refloat.client.contract import Client
from refloat.controllers.force_eviction import audit
from refloat.controllers.force_eviction.audit import Audit
from refloat.controllers.force_eviction.events import Teller
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.force_eviction.observation import LiveReads
from refloat.controllers.force_eviction.pods import PodRecords
from refloat.controllers.force_eviction.writes import REFUSED, Writes
from refloat.policy import force_eviction
from refloat.policy.force_eviction import Attachment, Settings, Sight, Step
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink
from refloat.runtime.rights import Rights

log = logging.getLogger(__name__)

NAME = "force-eviction-controller"

# More than the steps of an eviction: then somebody undoes what is done, and others get a turn.
_STEPS = 10

# How long after the reads a write may still be sent that depends on the node being down: as
# for zombie recovery, longer than the requests of a manager wait at its usual rate limit.
LATE_SECONDS = 3.0

_AT_ONCE = Result(requeue_after=0.0)

# A user waits for it; most failures are a node that changed meanwhile.
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
        settings: Settings | None = None,
        switches: Switches = ALL_ON,
        is_on: bool = True,
    ) -> None:
        """Without `leases` the lease of a node is watched from the first sight of the request."""
        self._nodes = nodes.cache
        self._clock = clock
        self._settings = settings or Settings()
        self._switches = switches
        self._is_on = is_on
        self._teller = Teller(sink)
        self._metrics = metrics
        self.rights = Rights(NAME, metrics.missing_rights, sink)
        self._writes = Writes(client, clock, self._settings, self.rights)
        self._reads = LiveReads(client, clock, self._settings, self.rights, leases)
        self._audit = Audit(clock, self._reads.silence)
        self._pods = PodRecords(self._teller, self._audit, metrics)
        self._mistyped: dict[str, object] = {}  # by node: the taint that was told of
        self._lost_answers: dict[str, tuple[Step, Node]] = {}  # by node: a step, and the node
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        nodes.add_handler(self._saw_node)
        if leases is not None:
            leases.add_handler(self._saw_lease)

    def take_up(self, *, is_on: bool, switches: Switches, settings: Settings | None = None) -> None:
        """Gates or settings have changed: what is under way stops before its next step, or goes on.

        Without `settings` they stay as they are.
        """
        self._is_on, self._switches = is_on, switches
        if settings is not None:
            self._settings = self._writes.settings = self._reads.settings = settings
        for node in self._nodes if is_on else ():
            self._saw_node(None, node)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        for node in (new, old):
            if node is not None and _matters(node):
                self.controller.queue.add(node.metadata.name)
                return

    def _saw_lease(self, old: Lease | None, new: Lease | None) -> None:
        lease = new if new is not None else old
        assert lease is not None
        name = lease.metadata.name
        if lease.metadata.namespace == NODE_NAMESPACE:
            self._reads.observe(name, new)
            if self._reads.awaits(name):
                self.controller.queue.add(name)

    async def reconcile(self, key: str) -> Result:
        """Step after step, as long as there is something to do."""
        if self._is_on:
            self._tell_of_mistyped(key)
        for _ in range(_STEPS):
            began = self._clock.monotonic()
            seen = await self._look(key) if self._is_on else None
            step = self._decide(seen)
            if seen is None or isinstance(step, force_eviction.Nothing):
                self._forget(key)
                return DONE
            self._metrics.under_way.set(len(self._reads))
            if isinstance(step, force_eviction.Wait):
                self._audit.wait(seen.node, step.why)
                return Result(requeue_after=step.seconds)
            with fence.fenced(self._check(step, began)):
                await self._apply(step, seen, began)
            if isinstance(step, force_eviction.Evict) and self._is_late(began):
                return _AT_ONCE  # many pods: what is left needs new reads
        raise Retry(f"node {key} changes with each step")

    def _tell_of_mistyped(self, name: str) -> None:
        """Once for each such taint, until it is gone."""
        node = self._nodes.get(name)
        taint = None if node is None else force_eviction.mistyped(node)
        if node is None or taint is None:
            self._mistyped.pop(name, None)
            return
        told = (node.metadata.uid, taint.value, taint.effect)
        if self._mistyped.get(name) != told:
            self._mistyped[name] = told
            self._teller.mistyped(node, taint)

    async def _look(self, key: str) -> Sight | None:
        node = self._nodes.get(key)
        if not self._reads.awaits(key) and (node is None or not force_eviction.concerns(node)):
            return None
        seen = await self._reads.read(key)
        if seen is not None:
            self._settle(seen)
            self._pods.settle(seen)
        return seen

    def _settle(self, seen: Sight) -> None:
        """Tell of a step whose answer was lost, if the node shows that it happened."""
        step, before = self._lost_answers.pop(seen.node.metadata.name, (None, None))
        if step is None or before is None:
            return
        done = force_eviction.progress(seen.node)
        began = done is not None and done.step == force_eviction.EVICTING
        ended = not force_eviction.concerns(seen.node)
        if began if isinstance(step, force_eviction.Begin) else ended:
            self._tell(step, before)

    def _decide(self, seen: Sight | None) -> Step:
        """The gate is asked after the look, which may have taken long."""
        if seen is None or not self._is_on:
            return force_eviction.Nothing()
        return force_eviction.decide(seen, self._settings)

    def _check(self, step: Step, began: float) -> Callable[[], None]:
        """Asked before each request: the client may keep a write for long.

        Steps that depend on the node being down need reads that are not old.
        """
        judged = force_eviction.ClearVolumes | force_eviction.Begin | force_eviction.Evict
        is_judged = isinstance(step, judged)

        def check() -> None:
            if not self._is_on:
                raise Retry("the gate was switched off before the write was sent")
            if is_judged and self._is_late(began):
                raise Retry("the reads of node and lease are too old for the write")

        return check

    def _is_late(self, began: float) -> bool:
        return self._clock.monotonic() - began > LATE_SECONDS

    def _forget(self, name: str) -> None:
        self._reads.forget(name)
        self._pods.forget(name)
        self._audit.forget(name)
        self._metrics.under_way.set(len(self._reads))

    async def _apply(self, step: Step, seen: Sight, began: float) -> None:
        node = seen.node
        match step:
            case force_eviction.ClearVolumes():
                await self._writes.clear_volumes(node)
            case force_eviction.Evict(pods):
                await self._evict(pods, node, began)
            case force_eviction.Detach(attachments):
                await self._detach(attachments, node)
            case _:
                await self._write_and_tell(step, node)

    async def _write_and_tell(self, step: Step, node: Node) -> None:
        """The steps that begin or end it: an event and a record belong to the write."""
        try:
            if isinstance(step, force_eviction.Begin):
                await self._writes.begin(node)
            else:
                await self._writes.end(node)
        except REFUSED:
            raise
        except Exception:
            self._lost_answers[node.metadata.name] = (step, node)
            raise
        self._tell(step, node)

    def _tell(self, step: Step, node: Node) -> None:
        taints = force_eviction.wishes(node)
        match step:
            case force_eviction.Refuse(why):
                self._ended("refused", node, why)
                self._teller.refused(node, taints, why)
            case force_eviction.Withdraw():
                self._ended("withdrawn", node, "the taint that asked for it is gone")
                self._teller.withdrawn(node)
            case force_eviction.Begin():
                self._audit.node(node, audit.STARTED, "its pods are evicted from now on")
                self._teller.began(node, taints)
            case force_eviction.Finish():
                self._ended("finished", node, "its pods and volumes are free")
                self._teller.finished(node)

    def _ended(self, result: str, node: Node, why: str) -> None:
        self._metrics.nodes.labels(result).inc()
        self._audit.node(node, result, why)
        self._forget(node.metadata.name)

    async def _detach(self, attachments: tuple[Attachment, ...], node: Node) -> None:
        for each in attachments:
            if not self._is_on:
                return
            if await self._writes.detach(each, node):
                self._metrics.volumes.inc()

    async def _evict(self, pods: tuple[Pod, ...], node: Node, began: float) -> None:
        """All of them, though one should fail; that one is tried again.

        But only as long as the reads, which began then, are not old.
        """
        failed: errors.ClientError | None = None
        for pod in pods:
            if not self._is_on or self._is_late(began):
                break
            try:
                await self._pods.evict(pod, node, self._writes, self._switches)
            except errors.ClientError as error:
                log.warning("%s: pod %s: %s", NAME, pod.metadata.name, error)
                failed = error
        if failed is not None:
            raise failed


def _matters(node: Node) -> bool:
    return force_eviction.concerns(node) or force_eviction.mistyped(node) is not None
