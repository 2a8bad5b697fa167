# SPDX-License-Identifier: Apache-2.0
"""What the API server shows of a node's static pods.

A mirror pod says how its static pod is, and is nothing else: whoever deletes it
ends nothing, and it is made again. One that mirrors nothing here, or another
version, goes. None of them is ever run.
"""

import contextlib
import logging
from dataclasses import dataclass

from refloat.agent.static_pods import Key, StaticPods
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions
from refloat.client.kinds import NODES, PODS
from refloat.policy import critical_pods
from refloat.runtime import statuses
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


def is_mirror(pod: Pod) -> bool:
    return critical_pods.MIRROR in (pod.metadata.annotations or {})


@dataclass(frozen=True, slots=True)
class _Told:
    """What was last written, and to which mirror."""

    uid: str
    status: Object


class Mirrors:
    """The mirror pods of one node; a key is a namespace and a name."""

    def __init__(self, client: Client, node: str, static: StaticPods | None) -> None:
        self._client, self._node, self._static = client, node, static
        self._seen: dict[Key, Pod] = {}
        self._told: dict[Key, _Told] = {}
        self._disputed: dict[Key, None] = {}  # those whose name somebody else has, and it was said

    def saw(self, old: Pod | None, new: Pod | None) -> Key:
        """Take over what the API has; whose turn it is then."""
        pod = new if new is not None else old
        assert pod is not None
        key = pod.metadata.namespace, pod.metadata.name
        if new is not None:
            self._seen[key] = new
        else:
            self._lose(key, pod)
        return key

    def _lose(self, key: Key, pod: Pod) -> None:
        """Only if it is still the one: of its name there may be another already."""
        held = self._seen.get(key)
        if held is not None and held.metadata.uid == pod.metadata.uid:
            del self._seen[key]

    async def reconcile(self, key: Key) -> Result:
        wanted = self._static.whole(key) if self._static is not None else None
        mirror = self._seen.get(key)
        if mirror is not None and not _mirrors(mirror, wanted):
            await self._delete(key, mirror)
            mirror = None
        if wanted is None:
            self._told.pop(key, None)
            return DONE
        if mirror is None:
            mirror = self._seen[key] = await self._create(wanted)
            self._disputed.pop(key, None)
        await self._tell(key, mirror, wanted["status"])
        return DONE

    async def _delete(self, key: Key, mirror: Pod) -> None:
        options = DeleteOptions(grace_seconds=0, uid=mirror.metadata.uid)
        # Gone, or another one of its name: the watch will tell.
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._client.delete(PODS, key[1], namespace=key[0], options=options)
        self._lose(key, mirror)

    async def _create(self, wanted: Object) -> Pod:
        try:
            node = await self._client.get(NODES, self._node)
        except errors.NotFound as error:
            raise Retry(f"node {self._node} has not yet registered") from error
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "controller": True}
        metadata = {**wanted["metadata"], "ownerReferences": [{**owner, "uid": node.metadata.uid}]}
        for name in ("uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        body = {"metadata": metadata, "spec": wanted["spec"]}
        try:
            return await self._client.create(PODS, body, namespace=metadata["namespace"])
        except errors.AlreadyExists as error:
            return await self._adopt(wanted, error)

    async def _adopt(self, wanted: Object, error: errors.AlreadyExists) -> Pod:
        """A create whose answer was lost did succeed; else the name is somebody else's."""
        key = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        found = await self._client.get(PODS, key[1], namespace=key[0])
        if _mirrors(found, wanted):
            return found
        text = f"static pod {key[0]}/{key[1]} has no mirror: another pod has its name"
        if key not in self._disputed:
            log.warning("%s", text)
            self._disputed[key] = None
        raise Retry(text) from error

    async def _tell(self, key: Key, mirror: Pod, status: Object) -> None:
        told = _Told(mirror.metadata.uid, status)
        if self._told.get(key) != told:
            await statuses.patch(self._client, PODS, mirror, status)
            self._told[key] = told


def _mirrors(mirror: Pod, wanted: Object | None) -> bool:
    """Whether it shows this very version, and is to stay."""
    if wanted is None or mirror.is_terminating:
        return False
    annotations = mirror.metadata.annotations or {}
    shown: str = wanted["metadata"]["uid"]
    return annotations.get(critical_pods.MIRROR) == shown
