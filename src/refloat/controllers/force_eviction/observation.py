# SPDX-License-Identifier: Apache-2.0
"""What force eviction reads before each step: all of it live, from the API server.

The node comes before its lease, because a node that returns renews its lease
before it posts its status. If the lease is not the version that was silent,
its silence begins anew, and so do all silences when an answer comes late or never
(`runtime.lease_observer`).
"""

from refloat.api import structs
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client, Selector
from refloat.policy import attach_detach, force_eviction
from refloat.policy.force_eviction import Attachment, Settings, Sight
from refloat.policy.node_evidence import UNWATCHED, LeaseSilence
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Informer
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.rights import Rights


class LiveReads:
    """Nodes under a request, with their leases, pods and attachments."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: Settings,
        rights: Rights,
        leases: Informer[Lease] | None,
    ) -> None:
        """`leases`: every change of a lease is told to `observe`, also before any request."""
        self._client = client
        self._clock = clock
        self.settings = settings
        self._rights = rights
        self._watched = leases is not None
        self._leases = LeaseObserver(clock, lambda: None if leases is None else leases.failed_at)
        self._first: dict[str, str] = {}  # version of the lease when the request was first seen
        self._podless: dict[str, float] = {}  # since when all pods of a node are gone

    def __len__(self) -> int:
        """How many nodes are under a request."""
        return len(self._first)

    def awaits(self, name: str) -> bool:
        """Whether the node is under a request."""
        return name in self._first

    def observe(self, name: str, lease: Lease | None) -> None:
        self._leases.observe(name, lease)

    def silence(self, name: str) -> LeaseSilence:
        return self._leases.silence(name)

    def forget(self, name: str) -> None:
        """The node is under no request any more."""
        self._first.pop(name, None)
        self._podless.pop(name, None)
        if not self._watched:
            self._leases.forget(name)

    async def read(self, name: str) -> Sight | None:
        """All that the next step depends on; None if the node does not exist."""
        with self._leases.reading():
            node = await self._node(name)
        with self._leases.reading():
            lease = await self._lease(name)
        if node is None:
            return None
        if not force_eviction.concerns(node):
            return Sight(node, UNWATCHED)
        renewed = self._is_renewed(name, lease)
        silence = self._leases.silence(name)
        done = force_eviction.progress(node)
        if done is None or done.step != force_eviction.EVICTING:
            return Sight(node, silence, renewed=renewed)
        pods = await self._pods(name)
        waiting = any(force_eviction.evicted(node, pods, done))
        return Sight(
            node,
            silence,
            pods,
            await self._attachments(node, pods) if not waiting else (),
            self._podless_for(name, waiting=waiting),
            renewed=renewed,
        )

    def _is_renewed(self, name: str, lease: Lease | None) -> bool:
        """Whether the lease changed since the request was first seen.

        A lease that is newer than all that was seen before was renewed just now.
        """
        known = self._leases.version(name)
        self._leases.observe(name, lease)
        now = self._leases.version(name)
        return self._first.setdefault(name, known or now) != now

    def _podless_for(self, name: str, *, waiting: bool) -> float:
        if waiting:
            self._podless.pop(name, None)
            return 0.0
        now = self._clock.monotonic()
        return now - self._podless.setdefault(name, now)

    async def _node(self, name: str) -> Node | None:
        try:
            with self._rights.needed("get nodes", _reference(name)):
                return await self._client.get(kinds.NODES, name)
        except errors.NotFound:
            return None

    async def _lease(self, name: str) -> Lease | None:
        try:
            with self._rights.needed("get leases", _reference(name)):
                return await self._client.get(kinds.LEASES, name, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            return None

    async def _pods(self, node: str) -> list[Pod]:
        bound = Selector(fields=f"spec.nodeName={node}")
        pages = self._client.list(kinds.PODS, selector=bound)
        with self._rights.needed("list pods", _reference(node)):
            return [pod async for page in pages for pod in page.items]

    async def _attachments(self, node: Node, pods: list[Pod]) -> list[Attachment]:
        """Those of volumes that no pod of the node has any more; others' are not asked for."""
        if self.settings.hands_over:
            return []
        name, pages = node.metadata.name, self._client.list(kinds.VOLUME_ATTACHMENTS)
        with self._rights.needed("list volumeattachments", _reference(name)):
            all_of_them = [each async for page in pages for each in page.items]
        attached = [each for each in all_of_them if each.spec.node_name == name]
        kept = await self._volumes([pod for pod in pods if not force_eviction.is_gone(pod)])
        for each in attached:
            volume = each.spec.source.persistent_volume_name
            if volume and await self._is_mounted(volume, node):
                kept.add(volume)
        return [
            Attachment(each.metadata.name, each.metadata.uid)
            for each in attached
            if each.spec.source.persistent_volume_name not in kept
        ]

    async def _is_mounted(self, volume: str, node: Node) -> bool:
        """Whether a node that is back has it: it says when it has not, and attach/detach waits."""
        used = node.status.volumes_in_use
        if not used or not structs.is_true(node.status.conditions, "Ready"):
            return False
        try:
            obj = await self._client.get(kinds.PERSISTENT_VOLUMES, volume)
        except errors.NotFound:
            return False
        return attach_detach.unique_name(obj) in used

    async def _volumes(self, pods: list[Pod]) -> set[str]:
        """The volumes behind the claims of these pods."""
        volumes = set()
        for pod in pods:
            for name in force_eviction.claims(pod):
                try:
                    claim = await self._client.get(
                        kinds.PERSISTENT_VOLUME_CLAIMS, name, namespace=pod.metadata.namespace
                    )
                except errors.NotFound:
                    continue
                volumes.add(claim.spec.volume_name)
        return volumes


def _reference(node: str) -> Reference:
    """As a kubelet names its node: without its uid, which is not known before the read."""
    return Reference("v1", "Node", node, uid=node)
