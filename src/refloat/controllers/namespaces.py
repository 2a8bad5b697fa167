# SPDX-License-Identifier: Apache-2.0
"""Empties a namespace that is being deleted, and then lets it go.

Pods first, and nothing else while one is left: what a pod may still need, its
ConfigMaps and Secrets, stays with it to its end. What remains, and why, stands
in the namespace's conditions in Kubernetes' words.
"""

import logging
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from refloat.api import kinds, times
from refloat.api.core import Namespace, Pod
from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.client import errors
from refloat.client.contract import Client, DeleteOptions, Kind
from refloat.client.kinds import NAMESPACES, PODS
from refloat.policy import namespace_content
from refloat.policy.namespace_content import Remains
from refloat.runtime import statuses
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result

log = logging.getLogger(__name__)

T = TypeVar("T")

FINALIZER = "kubernetes"

_OTHERS = tuple(
    each
    for each in kinds.RESOURCES
    if each.namespaced and each != PODS.resource and "delete" in each.verbs
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Kubernetes' own values."""

    delay: float = 5.0
    """Seconds until a namespace is looked at: creates that were on their way have come by then."""


class NamespaceController:
    """The reconciler of namespaces' names, and the controller around it."""

    def __init__(
        self,
        client: Client,
        namespaces: Informer[Namespace],
        *,
        clock: Clock,
        instruments: Instruments,
        settings: Settings | None = None,
    ) -> None:
        self._client = client
        self._namespaces: Cache[Namespace] = namespaces.cache
        self._clock = clock
        self._settings = settings or Settings()
        self.controller: Controller[str] = Controller(
            "namespace",
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(workers=10, backoff=Backoff(base=5.0, cap=60.0)),
        )
        namespaces.add_handler(self._saw)

    def _saw(self, _: Namespace | None, new: Namespace | None) -> None:
        if new is not None and new.metadata.deletion_timestamp is not None:
            self.controller.queue.add_after(key_of(new), self._settings.delay)

    async def reconcile(self, key: str) -> Result:
        found = self._namespaces.get(key)
        if found is None or found.metadata.deletion_timestamp is None:
            return DONE
        if FINALIZER not in (found.spec.finalizers or ()):
            return DONE
        left = Remains()
        await self._clear_pods(found, left)
        pods_remain = bool(left.resources)
        if not pods_remain:
            for resource in _OTHERS:
                await self._clear(Kind(resource, ApiObject), key, left)
        await self._tell(found, left, pods_remain=pods_remain)
        if left.failures:
            raise Retry("; ".join(left.failures))
        if left.seconds:
            # Half of what it may take, so that what is quicker is not waited for.
            return Result(requeue_after=left.seconds // 2 + 1)
        await self._finalize(found)
        return DONE

    async def _clear_pods(self, namespace: Namespace, left: Remains) -> None:
        name = namespace.metadata.name
        seconds = max(map(_grace, await self._all(PODS, name)), default=0)
        since = times.parse(namespace.metadata.deletion_timestamp or "")
        if (self._clock.now() - since).total_seconds() >= seconds:
            seconds = 0
        await self._clear(Kind(PODS.resource, ApiObject), name, left, seconds)

    async def _clear(
        self, kind: Kind[ApiObject], namespace: str, left: Remains, seconds: int = 0
    ) -> None:
        """Delete all of a kind, and note what stays all the same."""
        try:
            for each in await self._all(kind, namespace):
                await self._delete(kind, each)
            remaining = await self._all(kind, namespace)
        except errors.ClientError as error:
            left.failures.append(str(error))
        else:
            left.note(kind.resource, remaining, seconds)

    async def _all(self, kind: Kind[T], namespace: str) -> list[T]:
        pages = self._client.list(kind, namespace=namespace)
        return [each async for page in pages for each in page.items]

    async def _delete(self, kind: Kind[ApiObject], obj: ApiObject) -> None:
        meta = obj.metadata
        options = DeleteOptions(uid=meta.uid, propagation="Background")
        try:
            await self._client.delete(kind, meta.name, namespace=meta.namespace, options=options)
        except (errors.NotFound, errors.Conflict):
            return  # gone, or another one by now, which the next look finds
        what = kind.resource.plural
        log.debug("namespace-controller: %s %s/%s is deleted", what, meta.namespace, meta.name)

    async def _tell(self, namespace: Namespace, left: Remains, *, pods_remain: bool) -> None:
        told = namespace_content.conditions(left, pods_remain=pods_remain)
        changed = namespace_content.changes(namespace, told, now=self._clock.now())
        if not changed:
            return
        status = {"conditions": changed}
        await statuses.patch(self._client, NAMESPACES, namespace, status)

    async def _finalize(self, namespace: Namespace) -> None:
        """Only this very namespace; whichever version, the conditions made a new one."""
        meta = msgspec.to_builtins(namespace.metadata)
        meta.pop("resourceVersion", None)
        kept = [each for each in namespace.spec.finalizers or () if each != FINALIZER]
        try:
            await self._client.finalize({"metadata": meta, "spec": {"finalizers": kept}})
        except errors.NotFound:
            return


def _grace(pod: Pod) -> int:
    """How long a pod may take to end; over is over."""
    return 0 if pod.is_terminal else pod.spec.termination_grace_period_seconds or 0
