# SPDX-License-Identifier: Apache-2.0
"""The pods of one node that come from files and need no API server.

To the pod worker they are pods like others. What it would ask the API server
about them, and write there, is answered and kept here (`StaticClient`); what
the API server has of them is only a mirror (`mirrors`). A pod whose file has
gone, or has changed, is deleted as others are, with its grace; another version
begins when nothing of the last one is left.
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
from refloat.client.contract import Client, DeleteOptions, Kind, PatchType
from refloat.runtime.guard import Guard

T = TypeVar("T")

Key = tuple[str, str]
"""A namespace and a name."""

# From one look at the folder to the next: as quick as somebody who saved a file
# looks up, and a look at files that did not change is a few system calls.
LOOK_SECONDS = 1.0


class Source(Protocol):
    """Where they come from: a `manifests.Manifests`."""

    def look(self) -> Mapping[Key, Object]:
        """All that there should be now."""
        ...


@dataclass(slots=True)
class _Held:
    whole: Object
    pod: Pod


def _nobody(uid: str) -> None:
    """Until somebody listens."""


class StaticPods:
    """Those that are there, by name; of each name at most one."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._wanted: Mapping[Key, Object] = {}
        self._held: dict[Key, _Held] = {}
        self._keys: dict[str, Key] = {}
        self._version = 0
        self._changed: Callable[[str], object] = _nobody

    def listen(self, changed: Callable[[str], object]) -> None:
        """Call back with the uid of a pod that came, changed, or is gone."""
        self._changed = changed

    def look(self) -> None:
        """Begin what is new, and end what is no longer wanted."""
        self._wanted = self._source.look()
        for key in [*self._held, *(each for each in self._wanted if each not in self._held)]:
            self._settle(key)

    def _settle(self, key: Key) -> None:
        wanted, held = self._wanted.get(key), self._held.get(key)
        if held is None:
            if wanted is not None:
                self._put(key, wanted)
        elif wanted is None or wanted["metadata"]["uid"] != held.pod.metadata.uid:
            self._delete(key, held)

    def _put(self, key: Key, whole: Object) -> None:
        """Keep what is so now; each version has a greater number than the last."""
        self._version += 1
        metadata = {**whole["metadata"], "resourceVersion": str(self._version)}
        metadata.setdefault("creationTimestamp", times.format_time(self._clock.now()))
        whole = {**whole, "metadata": metadata}
        self._held[key] = _Held(whole, msgspec.convert(whole, Pod))
        self._keys[metadata["uid"]] = key
        self._changed(metadata["uid"])

    def _delete(self, key: Key, held: _Held) -> None:
        if held.pod.is_terminating:
            return
        grace = held.pod.spec.termination_grace_period_seconds or 0
        when = times.format_time(self._clock.now() + timedelta(seconds=grace))
        told = {"deletionTimestamp": when, "deletionGracePeriodSeconds": grace}
        self._put(key, {**held.whole, "metadata": {**held.whole["metadata"], **told}})

    def find(self, uid: str) -> Pod | None:
        key = self._keys.get(uid)
        return None if key is None else self._held[key].pod

    def pods(self) -> Iterable[Pod]:
        return [each.pod for each in self._held.values()]

    def whole(self, key: Key) -> Object | None:
        held = self._held.get(key)
        return None if held is None else held.whole

    def write_status(self, uid: str, status: Object) -> Object | None:
        """As a strategic merge patch of the status does; None if there is none of this uid."""
        key = self._keys.get(uid)
        if key is None:
            return None
        whole = self._held[key].whole
        self._put(key, {**whole, "status": _merged(whole["status"], status)})
        return self._held[key].whole

    def forget(self, uid: str) -> bool:
        """It has ended, and its successor may begin; was it there?"""
        key = self._keys.pop(uid, None)
        if key is None:
            return False
        del self._held[key]
        self._changed(uid)
        self._settle(key)
        return True


def _merged(status: Object, patch: Object) -> Object:
    """Conditions by their type, all else as it is told."""
    merged = {**status, **patch}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    for each in patch.get("conditions") or ():
        whole = {**conditions.get(each["type"], {}), **each}
        conditions[each["type"]] = {key: value for key, value in whole.items() if value is not None}
    if conditions:
        merged["conditions"] = list(conditions.values())
    return merged


class StaticClient(Guard):
    """A `Client` that answers for static pods itself, whether there is an API server or not."""

    def __init__(self, client: Client, static: StaticPods, check: Callable[[], None]) -> None:
        super().__init__(client, check)
        self._static = static

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        whole = self._static.whole((namespace, name)) if _is_pods(kind) else None
        if whole is None:
            return await super().get(kind, name, namespace=namespace)
        return msgspec.convert(whole, kind.type)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        patch: Object | Sequence[Any],
        *,
        patch_type: PatchType = "merge",
        namespace: str = "",
        subresource: str = "",
        force: bool = False,
    ) -> T:
        if _is_pods(kind) and subresource == "status" and isinstance(patch, dict):
            written = self._static.write_status(patch["metadata"]["uid"], patch["status"])
            if written is not None:
                return msgspec.convert(written, kind.type)
        return await super().patch(
            kind,
            name,
            patch,
            patch_type=patch_type,
            namespace=namespace,
            subresource=subresource,
            force=force,
        )

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        uid = options.uid if options is not None and _is_pods(kind) else None
        if uid is None or not self._static.forget(uid):
            await super().delete(kind, name, namespace=namespace, options=options)


def _is_pods(kind: Kind[Any]) -> bool:
    return kind.resource is kinds.PODS.resource
