# SPDX-License-Identifier: Apache-2.0
"""Keeps the mirror pods of a node's static pods in the API.

A mirror pod only shows the status of its static pod. After the deletion of a mirror
pod, the static pod runs on and the agent creates the mirror pod again. The agent
deletes mirror pods without a static pod, and those of another version. It never runs
a mirror pod.
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
from refloat.policy.scheduling import critical_pods
from refloat.runtime import status_writes
from refloat.runtime.errors import Retry
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)


def is_mirror(pod: Pod) -> bool:
    return critical_pods.MIRROR in (pod.metadata.annotations or {})


@dataclass(frozen=True, slots=True)
class _StatusWrite:
    """The last status that the agent wrote, and the uid of the mirror pod."""

    uid: str
    status: Object


class MirrorPods:
    """The mirror pods of one node; a key is namespace and name."""

    def __init__(self, client: Client, node: str, static: StaticPods | None) -> None:
        self._client, self._node, self._static = client, node, static
        self._cache: dict[Key, Pod] = {}
        self._writes: dict[Key, _StatusWrite] = {}
        self._conflicts: dict[Key, None] = {}  # names of other pods, already logged

    def observe(self, old: Pod | None, new: Pod | None) -> Key:
        """Store a change of the API. Returns the key to reconcile."""
        pod = new if new is not None else old
        assert pod is not None
        key = pod.metadata.namespace, pod.metadata.name
        if new is not None:
            self._cache[key] = new
        else:
            self._drop(key, pod)
        return key

    def _drop(self, key: Key, pod: Pod) -> None:
        """Forget a pod, unless a newer pod already has the name."""
        cached = self._cache.get(key)
        if cached is not None and cached.metadata.uid == pod.metadata.uid:
            del self._cache[key]

    async def reconcile(self, key: Key) -> Result:
        static_pod = self._static.whole(key) if self._static is not None else None
        mirror = self._cache.get(key)
        if mirror is not None and not _mirrors(mirror, static_pod):
            options = DeleteOptions(grace_seconds=0, uid=mirror.metadata.uid)
            # If the pod is gone, or another pod has the name, the watch reports that.
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._client.delete(PODS, key[1], namespace=key[0], options=options)
            self._drop(key, mirror)
            mirror = None
        if static_pod is None:
            self._writes.pop(key, None)
            return DONE
        if mirror is None:
            mirror = self._cache[key] = await self._create(static_pod)
            self._conflicts.pop(key, None)
        write = _StatusWrite(mirror.metadata.uid, static_pod["status"])
        if self._writes.get(key) != write:
            await status_writes.patch(self._client, PODS, mirror, write.status)
            self._writes[key] = write
        return DONE

    async def _create(self, static_pod: Object) -> Pod:
        try:
            node = await self._client.get(NODES, self._node)
        except errors.NotFound as error:
            raise Retry(f"node {self._node} has not yet registered") from error
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "controller": True}
        metadata = {
            **static_pod["metadata"],
            "ownerReferences": [{**owner, "uid": node.metadata.uid}],
        }
        for name in ("uid", "resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        body = {"metadata": metadata, "spec": static_pod["spec"]}
        try:
            return await self._client.create(PODS, body, namespace=metadata["namespace"])
        except errors.AlreadyExists as error:
            namespace, name = key = metadata["namespace"], metadata["name"]
            pod = await self._client.get(PODS, name, namespace=namespace)
            if _mirrors(pod, static_pod):
                return pod  # from a create whose answer was lost
            text = f"static pod {namespace}/{name} has no mirror: another pod has its name"
            if key not in self._conflicts:
                log.warning("%s", text)
                self._conflicts[key] = None
            raise Retry(text) from error


def _mirrors(mirror: Pod, static_pod: Object | None) -> bool:
    """Whether a mirror pod shows this version of a static pod and is not being deleted."""
    if static_pod is None or mirror.is_terminating:
        return False
    annotations = mirror.metadata.annotations or {}
    uid: str = static_pod["metadata"]["uid"]
    return annotations.get(critical_pods.MIRROR) == uid
