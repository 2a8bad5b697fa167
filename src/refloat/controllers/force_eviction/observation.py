# SPDX-License-Identifier: Apache-2.0
"""The live reads before each step of force eviction.

The node comes before its Lease, because a returning node renews its Lease before it posts
its status. If the version of the Lease is not the one that was silent, the silence of this
node starts again. All silences start again when an answer is late or missing
(`runtime.lease_observer`).
"""

from refloat.api import structs
from refloat.api.coordination import Lease
from refloat.api.core import Node, Pod
from refloat.base.clock import Clock
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.policy.node import attach_detach
from refloat.policy.recovery import force_eviction
from refloat.policy.recovery.force_eviction import AttachmentRef, ForceEvictionSettings, Observation
from refloat.policy.recovery.node_evidence import UNWATCHED, LeaseSilence
from refloat.runtime import live_reads
from refloat.runtime.event_series import Reference
from refloat.runtime.informer import Informer
from refloat.runtime.lease_observer import LeaseObserver
from refloat.runtime.missing_rights import Rights


class LiveReads:
    """Nodes with a request taint, with their leases, pods and attachments."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: ForceEvictionSettings,
        rights: Rights,
        leases: Informer[Lease] | None,
    ) -> None:
        """With `leases` the caller must pass every change of a Lease to `observe`."""
        self._client = client
        self._clock = clock
        self.settings = settings
        self._rights = rights
        self._watched = leases is not None
        self._leases = LeaseObserver(clock, lambda: None if leases is None else leases.failed_at)
        self._first: dict[str, str] = {}  # version of the Lease at the first read with a request
        self._podless: dict[str, float] = {}  # since when all pods of a node are gone

    def __len__(self) -> int:
        """How many nodes have a request."""
        return len(self._first)

    def awaits(self, name: str) -> bool:
        """Whether the node has a request."""
        return name in self._first

    def observe(self, name: str, lease: Lease | None) -> None:
        self._leases.observe(name, lease)

    def silence(self, name: str) -> LeaseSilence:
        return self._leases.silence(name)

    def forget(self, name: str) -> None:
        """The node has no request any more."""
        self._first.pop(name, None)
        self._podless.pop(name, None)
        if not self._watched:
            self._leases.forget(name)

    async def read(self, name: str) -> Observation | None:
        """The observation for the next step; None if the node does not exist."""
        with self._leases.reading():
            node = await live_reads.get_node(self._client, self._rights, name)
        with self._leases.reading():
            lease = await live_reads.get_lease(self._client, self._rights, name)
        if node is None:
            return None
        if not force_eviction.concerns(node):
            return Observation(node, UNWATCHED)
        # A Lease that is newer than the last observed one was renewed since.
        before = self._leases.version(name)
        self._leases.observe(name, lease)
        version = self._leases.version(name)
        renewed = self._first.setdefault(name, before or version) != version
        silence = self._leases.silence(name)
        done = force_eviction.progress(node)
        if done is None or done.step != force_eviction.EVICTING:
            return Observation(node, silence, renewed=renewed)
        pods = await live_reads.list_pods(self._client, self._rights, name)
        if any(force_eviction.evicted(node, pods, done)):
            self._podless.pop(name, None)
            return Observation(node, silence, pods, renewed=renewed)
        attachments, now = await self._attachments(node, pods), self._clock.monotonic()
        podless_seconds = now - self._podless.setdefault(name, now)
        return Observation(node, silence, pods, attachments, podless_seconds, renewed=renewed)

    async def _attachments(self, node: Node, pods: list[Pod]) -> list[AttachmentRef]:
        """Attachments of volumes that no pod of the node has any more."""
        if self.settings.hands_over:
            return []
        name, pages = node.metadata.name, self._client.list(kinds.VOLUME_ATTACHMENTS)
        with self._rights.needed("list volumeattachments", Reference("v1", "Node", name, uid=name)):
            all_of_them = [each async for page in pages for each in page.items]
        attached = [each for each in all_of_them if each.spec.node_name == name]
        volumes = await self._volumes([pod for pod in pods if not force_eviction.is_gone(pod)])
        for each in attached:
            volume = each.spec.source.persistent_volume_name
            if volume and await self._is_mounted(volume, node):
                volumes.add(volume)
        return [
            AttachmentRef(each.metadata.name, each.metadata.uid)
            for each in attached
            if each.spec.source.persistent_volume_name not in volumes
        ]

    async def _is_mounted(self, volume: str, node: Node) -> bool:
        """Whether a node that returned has the volume in use."""
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
