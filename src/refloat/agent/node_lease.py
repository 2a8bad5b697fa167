# SPDX-License-Identifier: Apache-2.0
"""The Lease of one node: this module creates it, renews it and keeps it ours.

A node with an instance writes each renewal on the version that it last saw, with
its identity; who owns a Lease is judged by `node_ownership`. A node without an
instance (a simulated one) writes unconditionally. Each renewal also lists the
pods that the node ends by itself (`api.self_fence`).
"""

import logging
from collections.abc import Callable, Mapping

from refloat.agent.node_ownership import ANNOTATION, Identity, Ownership, Unsure, identity_of
from refloat.api import self_fence, times
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.meta import Object
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import LEASES

log = logging.getLogger(__name__)

# Writes within one renewal: one on the version that is known, one on the version that was read
# after a conflict, and one more if a late write of this agent or of its predecessor came between.
MAX_WRITES = 3


class NodeLease:
    """The Lease of one node, as its agent keeps it."""

    def __init__(
        self,
        client: Client,
        name: str,
        clock: Clock,
        *,
        seconds: int,
        identity: Identity | None = None,
        promises: Callable[[], Mapping[str, Promise]] = dict,
        recall: Callable[[Mapping[str, Promise]], object] = dict,
    ) -> None:
        """`seconds`: the duration of the Lease. `promises`: those to list; `recall` hears those
        that an agent before this one listed. Without `identity` any agent may write the Lease."""
        self._client, self._name, self._clock = client, name, clock
        self._seconds = seconds
        self._promises, self._recall = promises, recall
        self._ownership = None if identity is None else Ownership(name, identity)
        self._version: str | None = ""  # "": there is no Lease; None: it must be read first
        self._whole = False  # whether all that we want in it was written since it was last read
        self._listing = ""  # the promises that it lists, as it has them

    @property
    def is_sure(self) -> bool:
        """Whether the node is ours, as far as is known; a node without an instance is not asked."""
        return self._ownership is None or self._ownership.is_sure

    async def settle(self, waiting: Callable[[float], object]) -> None:
        """Return when the Lease is ours; raises `Taken` if another living process owns it.

        `waiting` hears once for how many seconds a Lease with another identity is watched.
        """
        has_waited = False
        self._version = None
        while True:
            try:
                await self.renew("")
            except Unsure as error:
                if not has_waited:
                    has_waited = True
                    waiting(error.seconds)
                await self._clock.sleep(error.after or 0.0)
            else:
                return

    async def renew(self, node_uid: str) -> Mapping[str, Promise]:
        """Write a new renewTime, and whatever else the Lease lacks; the promises that it lists now.

        Raises `Taken`, `Unsure`, or what the API server answers: then nothing is known to
        have changed.
        """
        for _ in range(MAX_WRITES - 1):
            try:
                return await self._renew(node_uid)
            except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
                self._version = None
        try:
            return await self._renew(node_uid)
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            self._version = None
            raise

    async def _renew(self, node_uid: str) -> Mapping[str, Promise]:
        if self._version is None:
            await self._read()
        lease = await self._write(node_uid)
        if self._ownership is not None:
            self._ownership.wrote(lease)
        self._accept(lease)
        self._whole = bool(node_uid)
        return self_fence.read_listed(lease)

    async def _read(self) -> None:
        """Learn which version may be written on."""
        sent_at = self._clock.monotonic()
        self._whole = False
        own = self._ownership
        try:
            lease = await self._client.get(LEASES, self._name, namespace=NODE_NAMESPACE)
        except errors.NotFound:
            if own is not None:
                own.judge_absence(sent_at=sent_at, now=self._clock.monotonic())
            self._version = self._listing = ""
            return
        if own is not None:
            was_sure = own.is_sure
            try:
                own.judge(lease, sent_at=sent_at, now=self._clock.monotonic())
            except Unsure as error:
                if was_sure:
                    log.warning("%s; its pods run on, and it starts no new ones", error)
                raise
        if own is None or identity_of(lease) != own.identity:
            self._recall(self_fence.read_listed(lease))
        self._accept(lease)

    def _accept(self, lease: Lease) -> None:
        self._version = lease.metadata.resource_version
        self._listing = (lease.metadata.annotations or {}).get(self_fence.LISTED, "")

    async def _write(self, node_uid: str) -> Lease:
        body = self._body(node_uid)
        if not self._version:
            return await self._client.create(LEASES, body, namespace=NODE_NAMESPACE)
        if self._ownership is not None:
            body["metadata"]["resourceVersion"] = self._version
        return await self._client.patch(LEASES, self._name, body, namespace=NODE_NAMESPACE)

    def _body(self, node_uid: str) -> Object:
        name = self._name
        metadata: Object = {}
        spec: Object = {"renewTime": times.format_micro(self._clock.now())}
        if not self._whole:
            metadata["name"] = name
            spec |= {"holderIdentity": name, "leaseDurationSeconds": self._seconds}
            if node_uid:
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
                metadata["ownerReferences"] = [owner]
        if annotations := self._annotations():
            metadata["annotations"] = annotations
        return {"metadata": metadata, "spec": spec}

    def _annotations(self) -> Object:
        annotations: Object = {}
        if self._ownership is not None:
            annotations[ANNOTATION] = str(self._ownership.identity)
        listing = self_fence.write_listed(self._promises())
        if listing != self._listing:
            annotations[self_fence.LISTED] = listing or None
        return annotations
