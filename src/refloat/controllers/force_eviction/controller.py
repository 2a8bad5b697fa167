# SPDX-License-Identifier: Apache-2.0
"""Force eviction (KEP-36): looks at nodes that somebody says are down, and takes the next step.

What a step is decided on is read live: node, lease, pods and attachments. The
caches only say which nodes to look at. `policy.force_eviction` decides, and
`writes` writes; between two steps nothing is remembered but how long leases and
volumes have been waited for.
"""

import logging

from refloat.api import structs
from refloat.api.coordination import Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, fence, kinds
from refloat.client.contract import Client, Selector
from refloat.controllers.force_eviction.events import Teller
from refloat.controllers.force_eviction.leases import NAMESPACE, Leases
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.force_eviction.writes import Writes
from refloat.policy import attach_detach, force_eviction
from refloat.policy.force_eviction import Attachment, Settings, Sight, Step
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.recorder import Sink

log = logging.getLogger(__name__)

NAME = "force-eviction-controller"

# More than the steps of an eviction: then somebody undoes what is done, and others get a turn.
_STEPS = 10

# Somebody waits for it; most failures are a node that changed meanwhile.
_SETTINGS = ControllerSettings(workers=4, backoff=Backoff(base=0.2, cap=30.0))


class ForceEviction:
    """The reconciler, and the controller around it; a key is a node's name."""

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
        """Without `leases` a lease is watched from when somebody says that its node is down."""
        self._client = client
        self._nodes = nodes.cache
        self._clock = clock
        self._settings = settings or Settings()
        self._switches = switches
        self._is_on = is_on
        self._teller = Teller(sink)
        self._metrics = metrics
        self._writes = Writes(client, clock, self._settings)
        self._leases = Leases(clock, self._settings, watched=leases is not None)
        self._podless: dict[str, float] = {}  # since when all pods of a node are gone
        self.controller: Controller[str] = Controller(
            NAME, self, clock=clock, instruments=instruments, settings=_SETTINGS
        )
        nodes.add_handler(self._saw_node)
        if leases is not None:
            leases.add_handler(self._saw_lease)

    def take_up(self, *, is_on: bool, switches: Switches) -> None:
        """The gates have changed: what is under way stops before its next step, or goes on."""
        self._is_on, self._switches = is_on, switches
        for node in self._nodes if is_on else ():
            self._saw_node(None, node)

    def _saw_node(self, old: Node | None, new: Node | None) -> None:
        for node in (new, old):
            if node is not None and force_eviction.concerns(node):
                self.controller.queue.add(node.metadata.name)
                return

    def _saw_lease(self, old: Lease | None, new: Lease | None) -> None:
        lease = new if new is not None else old
        assert lease is not None
        name = lease.metadata.name
        if lease.metadata.namespace == NAMESPACE:
            self._leases.saw(name, new)
            if self._leases.awaits(name):
                self.controller.queue.add(name)

    async def reconcile(self, key: str) -> Result:
        """Step after step, as long as there is something to do."""
        for _ in range(_STEPS):
            seen = await self._look(key) if self._is_on else None
            step = self._decide(seen)
            if seen is None or isinstance(step, force_eviction.Nothing):
                self._forget(key)
                return DONE
            self._metrics.under_way.set(len(self._leases))
            if isinstance(step, force_eviction.Wait):
                log.debug("%s: node %s: %s", NAME, key, step.why)
                return Result(requeue_after=step.seconds)
            with fence.fenced(self._check):
                await self._apply(step, seen)
        raise Retry(f"node {key} changes with each step")

    def _decide(self, seen: Sight | None) -> Step:
        """The gate is asked after the look, which may have taken long."""
        if seen is None or not self._is_on:
            return force_eviction.Nothing()
        return force_eviction.decide(seen, self._settings)

    def _check(self) -> None:
        """And before each request: the client may keep a write for long."""
        if not self._is_on:
            raise Retry("the gate was switched off before the write was sent")

    def _forget(self, name: str) -> None:
        self._leases.forget(name)
        self._podless.pop(name, None)
        self._metrics.under_way.set(len(self._leases))

    async def _look(self, name: str) -> Sight | None:
        """All that is, now. The lease comes first: a node that returns writes it first."""
        try:
            lease = await self._client.get(kinds.LEASES, name, namespace=NAMESPACE)
        except errors.NotFound:
            lease = None
        try:
            node = await self._client.get(kinds.NODES, name)
        except errors.NotFound:
            return None
        if not force_eviction.concerns(node):
            return Sight(node, force_eviction.Stillness(0.0, 0.0))
        still = self._leases.judge(name, lease)
        done = force_eviction.progress(node)
        if done is None or done.step != force_eviction.EVICTING:
            return Sight(node, still)
        pods = await self._pods(name)
        waiting = any(force_eviction.evicted(node, pods, done))
        return Sight(
            node,
            still,
            pods,
            await self._attachments(node, pods) if not waiting else (),
            self._podless_for(name, waiting=waiting),
        )

    def _podless_for(self, name: str, *, waiting: bool) -> float:
        if waiting:
            self._podless.pop(name, None)
            return 0.0
        now = self._clock.monotonic()
        return now - self._podless.setdefault(name, now)

    async def _pods(self, node: str) -> list[Pod]:
        bound = Selector(fields=f"spec.nodeName={node}")
        pages = self._client.list(kinds.PODS, selector=bound)
        return [pod async for page in pages for pod in page.items]

    async def _attachments(self, node: Node, pods: list[Pod]) -> list[Attachment]:
        """Those of volumes that no pod of the node has any more; others' are not asked for."""
        if self._settings.hands_over:
            return []
        name, pages = node.metadata.name, self._client.list(kinds.VOLUME_ATTACHMENTS)
        held = [each async for page in pages for each in page.items if each.spec.node_name == name]
        kept = await self._volumes([pod for pod in pods if not force_eviction.is_gone(pod)])
        for each in held:
            volume = each.spec.source.persistent_volume_name
            if volume and await self._is_mounted(volume, node):
                kept.add(volume)
        return [
            Attachment(each.metadata.name, each.metadata.uid)
            for each in held
            if each.spec.source.persistent_volume_name not in kept
        ]

    async def _is_mounted(self, volume: str, node: Node) -> bool:
        """Whether a node that is back has it: it says when it has not, and attach/detach waits."""
        used = node.status.volumes_in_use
        if not used or not structs.is_true(node.status.conditions, "Ready"):
            return False
        try:
            found = await self._client.get(kinds.PERSISTENT_VOLUMES, volume)
        except errors.NotFound:
            return False
        return attach_detach.unique_name(found) in used

    async def _volumes(self, pods: list[Pod]) -> set[str]:
        """The volumes behind the claims of these pods."""
        found = set()
        for pod in pods:
            for name in force_eviction.claims(pod):
                try:
                    claim = await self._client.get(
                        kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace=pod.metadata.namespace
                    )
                except errors.NotFound:
                    continue
                found.add(claim.spec.volume_name)
        return found

    async def _apply(self, step: Step, seen: Sight) -> None:
        node, taints = seen.node, force_eviction.wishes(seen.node)
        match step:
            case force_eviction.Refuse(why):
                await self._writes.end(node)
                self._ended("refused", node.metadata.name)
                self._teller.refused(node, taints, why)
            case force_eviction.Withdraw():
                await self._writes.end(node)
                self._ended("withdrawn", node.metadata.name)
                self._teller.withdrawn(node)
            case force_eviction.ClearVolumes():
                await self._writes.clear_volumes(node)
            case force_eviction.Begin():
                await self._writes.begin(node)
                self._teller.began(node, taints)
            case force_eviction.Evict(pods):
                await self._evict(pods)
            case force_eviction.Detach(attachments):
                await self._detach(attachments)
            case force_eviction.Finish():
                await self._writes.end(node)
                self._ended("finished", node.metadata.name)
                self._teller.finished(node)

    def _ended(self, result: str, name: str) -> None:
        self._metrics.nodes.labels(result).inc()
        self._forget(name)

    async def _detach(self, attachments: tuple[Attachment, ...]) -> None:
        for each in attachments:
            if not self._is_on:
                return
            await self._writes.detach(each)
            self._metrics.volumes.inc()

    async def _evict(self, pods: tuple[Pod, ...]) -> None:
        """All of them, though one should fail; that one is tried again."""
        failed: errors.ClientError | None = None
        for pod in pods:
            if not self._is_on:
                return
            try:
                await self._writes.evict(pod, self._switches)
            except errors.ClientError as error:
                log.warning("%s: pod %s: %s", NAME, pod.metadata.name, error)
                failed = error
            else:
                self._metrics.pods.inc()
                self._teller.evicted(pod)
        if failed is not None:
            raise failed
