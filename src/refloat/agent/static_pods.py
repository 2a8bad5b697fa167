# SPDX-License-Identifier: Apache-2.0
"""The static pods of one node, which come from files and need no API server.

The pod worker runs static pods like other pods. `StaticClient` answers the worker's
requests for static pods, and this module keeps their status. The API server only has
mirror pods (`mirror_pods`). When the file of a pod is gone or has changed, the pod ends
with its grace. A new version starts when the old one has ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from refloat.api import times
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client import kinds
from refloat.client.contract import Client, DeleteOptions, Kind
from refloat.runtime.guard import Guard

T = TypeVar("T")

Key = tuple[str, str]
"""A namespace and a name."""

# Seconds between two syncs of the folder. A sync without changes is a few system calls.
LOOK_SECONDS = 1.0


class PodSource(Protocol):
    """The source of static pods: a `manifests.Manifests`."""

    def look(self) -> Mapping[Key, Object]:
        """The pods that should run now."""
        ...


@dataclass(slots=True)
class _StaticPod:
    whole: Object
    pod: Pod


class StaticPods:
    """The static pods of a node, at most one for each name."""

    def __init__(self, source: PodSource, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._manifests: Mapping[Key, Object] = {}
        self._pods: dict[Key, _StaticPod] = {}
        self._keys: dict[str, Key] = {}
        self._version = 0
        self._changed: Callable[[str], object] = str  # until `listen`

    def listen(self, changed: Callable[[str], object]) -> None:
        """Call `changed` with the uid of each pod that is new, has changed or is gone."""
        self._changed = changed

    def sync(self) -> None:
        """Start new pods, and end pods without a manifest."""
        self._manifests = self._source.look()
        for key in [*self._pods, *(each for each in self._manifests if each not in self._pods)]:
            self._settle(key)

    def _settle(self, key: Key) -> None:
        manifest, current = self._manifests.get(key), self._pods.get(key)
        if current is None:
            if manifest is not None:
                self._put(key, manifest)
            return
        pod, whole = current.pod, current.whole
        is_current = manifest is not None and manifest["metadata"]["uid"] == pod.metadata.uid
        if is_current or pod.is_terminating:
            return
        grace = pod.spec.termination_grace_period_seconds or 0
        when = times.format_time(self._clock.now() + timedelta(seconds=grace))
        deletion = {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}
        self._put(key, {**whole, "metadata": {**whole["metadata"], **deletion}})

    def _put(self, key: Key, whole: Object) -> None:
        """Store a new version of a pod; the numbers of versions grow."""
        self._version += 1
        metadata = {**whole["metadata"], "resourceVersion": str(self._version)}
        metadata.setdefault("creationTimestamp", times.format_time(self._clock.now()))
        whole = {**whole, "metadata": metadata}
        self._pods[key] = _StaticPod(whole, msgspec.convert(whole, Pod))
        self._keys[metadata["uid"]] = key
        self._changed(metadata["uid"])

    def find(self, uid: str) -> Pod | None:
        key = self._keys.get(uid)
        return None if key is None else self._pods[key].pod

    def pods(self) -> Iterable[Pod]:
        return [each.pod for each in self._pods.values()]

    def whole(self, key: Key) -> Object | None:
        current = self._pods.get(key)
        return None if current is None else current.whole

    def write_status(self, uid: str, status: Object) -> Object | None:
        """Merge a status like a strategic merge patch. Returns the pod; None for other pods."""
        key = self._keys.get(uid)
        if key is None:
            return None
        whole = self._pods[key].whole
        self._put(key, {**whole, "status": _merged(whole["status"], status)})
        return self._pods[key].whole

    def forget(self, uid: str) -> bool:
        """Remove a pod that has ended; its successor may start. Returns whether the pod existed."""
        key = self._keys.pop(uid, None)
        if key is None:
            return False
        del self._pods[key]
        self._changed(uid)
        self._settle(key)
        return True


def _merged(status: Object, patch: Object) -> Object:
    """Merge conditions by type, and replace all other fields."""
    merged = {**status, **patch}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    for each in patch.get("conditions") or ():
        whole = {**conditions.get(each["type"], {}), **each}
        conditions[each["type"]] = {key: value for key, value in whole.items() if value is not None}
    if conditions:
        merged["conditions"] = list(conditions.values())
    return merged


class StaticClient(Guard):
    """A `Client` that answers requests for static pods itself, without the API server."""

    def __init__(self, client: Client, static: StaticPods, check: Callable[[], None]) -> None:
        super().__init__(client, check)
        self._static = static

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "", **options: Any) -> T:
        pod = self._static.whole((namespace, name)) if _is_pods(kind) else None
        if pod is None:
            return await super().get(kind, name, namespace=namespace, **options)
        return msgspec.convert(pod, kind.type)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Object | Sequence[Any],
        *,
        subresource: str = "",
        **options: Any,
    ) -> T:
        if _is_pods(kind) and subresource == "status" and isinstance(patch, dict):
            pod = self._static.write_status(patch["metadata"]["uid"], patch["status"])
            if pod is not None:
                return msgspec.convert(pod, kind.type)
        return await super().patch(kind, name, patch, subresource=subresource, **options)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        options: DeleteOptions | None = None,
        **more: Any,
    ) -> None:
        uid = options.uid if options is not None and _is_pods(kind) else None
        if uid is None or not self._static.forget(uid):
            await super().delete(kind, name, options=options, **more)


def _is_pods(kind: Kind[Any]) -> bool:
    return kind.resource is kinds.PODS.resource
