# SPDX-License-Identifier: Apache-2.0
"""Creates and renews the Lease of one node.

A node with an instance writes its identity with each renewal, and only on the last
version that the node read; `node_ownership` decides who owns the Lease. A node without
an instance (a simulated one) writes unconditionally. Each renewal also lists the pods
that the node ends by itself (`api.self_fence`).
"""

import logging
from collections.abc import Callable, Mapping

from refloat.agent.node_ownership import ANNOTATION, AgentIdentity, Ownership, Unsure, identity_of
from refloat.api import self_fence, times
from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.meta import Object
from refloat.api.self_fence import Promise
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import LEASES

log = logging.getLogger(__name__)

# Writes within one renewal: one on the known version, one on a fresh version after a conflict,
# and one more if a late write of this agent or of its predecessor came between.
MAX_WRITES = 3


class NodeLease:
    """The Lease of one node."""

    def __init__(
        self,
        client: Client,
        name: str,
        clock: Clock,
        *,
        seconds: int,
        identity: AgentIdentity | None = None,
        promises: Callable[[], Mapping[str, Promise]] = dict,
        recall: Callable[[Mapping[str, Promise]], object] = dict,
    ) -> None:
        """`seconds`: the duration of the Lease. `promises` returns those to list; `recall` gets
        those that an earlier agent listed. Without `identity` any agent may write the Lease."""
        self._client, self._name, self._clock = client, name, clock
        self._seconds = seconds
        self._promises, self._recall = promises, recall
        self._ownership = None if identity is None else Ownership(name, identity)
        self._version: str | None = ""  # "": the Lease does not exist; None: read first
        self._is_complete = False  # whether all fields were written since the last read
        self._listing = ""  # the annotation with the promises

    @property
    def is_sure(self) -> bool:
        """Whether this agent owns the node, by the last answer; without an instance always."""
        return self._ownership is None or self._ownership.is_sure

    async def settle(self, waiting: Callable[[float], object]) -> None:
        """Wait until this agent owns the Lease; raises `OwnedByAnother`.

        `waiting` gets the seconds of the wait once, if the Lease has another identity.
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
        """Write a new renewTime and missing fields. Returns the promises that the Lease lists now.

        Raises `OwnedByAnother`, `Unsure` or an error of the API server; after an error the
        write may still have happened.
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
        body = self._body(node_uid)
        if not self._version:
            lease = await self._client.create(LEASES, body, namespace=NODE_NAMESPACE)
        else:
            if self._ownership is not None:
                body["metadata"]["resourceVersion"] = self._version
            lease = await self._client.patch(LEASES, self._name, body, namespace=NODE_NAMESPACE)
        if self._ownership is not None:
            self._ownership.wrote(lease)
        self._accept(lease)
        self._is_complete = bool(node_uid)
        return self_fence.read_listed(lease)

    async def _read(self) -> None:
        """Read the version on which the next write goes."""
        sent_at = self._clock.monotonic()
        self._is_complete = False
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

    def _body(self, node_uid: str) -> Object:
        name = self._name
        metadata: Object = {}
        spec: Object = {"renewTime": times.format_micro(self._clock.now())}
        if not self._is_complete:
            metadata["name"] = name
            spec |= {"holderIdentity": name, "leaseDurationSeconds": self._seconds}
            if node_uid:
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
                metadata["ownerReferences"] = [owner]
        annotations: Object = {}
        if self._ownership is not None:
            annotations[ANNOTATION] = str(self._ownership.identity)
        listing = self_fence.write_listed(self._promises())
        if listing != self._listing:
            annotations[self_fence.LISTED] = listing or None
        if annotations:
            metadata["annotations"] = annotations
        return {"metadata": metadata, "spec": spec}
