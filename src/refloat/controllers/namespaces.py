# SPDX-License-Identifier: Apache-2.0
"""Empties a namespace that is being deleted, and then removes its finalizer.

Pods are deleted first: what a pod may still need, its ConfigMaps and Secrets, stays until the
last pod is gone. The conditions of the namespace name what remains and why, in the words of
Kubernetes.
"""

import contextlib
import logging
from collections.abc import Sequence
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
from refloat.policy.garbage import namespace_content
from refloat.policy.garbage.namespace_content import Remains
from refloat.runtime import status_writes
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.errors import Retry
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Worker
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
class NamespaceSettings:
    """Kubernetes' own values."""

    delay: float = 5.0
    """Seconds until a namespace is emptied: creates that were under way have arrived by then."""


class NamespaceController:
    """The reconciler of namespaces' names, and the controller around it."""

    def __init__(
        self,
        client: Client,
        namespaces: Informer[Namespace],
        *,
        clock: Clock,
        instruments: Instruments,
        settings: NamespaceSettings | None = None,
    ) -> None:
        self._client = client
        self._namespaces: Cache[Namespace] = namespaces.cache
        self._clock = clock
        self._settings = settings or NamespaceSettings()
        self.controller: Controller[str] = Controller(
            "namespace",
            self,
            clock=clock,
            instruments=instruments,
            settings=ControllerSettings(workers=10, backoff=Backoff(base=5.0, cap=60.0)),
        )
        namespaces.add_handler(self._namespace_changed)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        new = change.new
        if new is not None and new.metadata.deletion_timestamp is not None:
            self.controller.queue.add_after(key_of(new), self._settings.delay)

    async def reconcile(self, key: str) -> Result:
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return DONE
        if FINALIZER not in (namespace.spec.finalizers or ()):
            return DONE
        remains = Remains()
        name = namespace.metadata.name
        seconds = max(map(_grace, await self._all(PODS, name)), default=0)
        since = times.parse(namespace.metadata.deletion_timestamp or "")
        if (self._clock.now() - since).total_seconds() >= seconds:
            seconds = 0
        await self._clear(Kind(PODS.resource, ApiObject), name, remains, seconds)
        pods_remain = bool(remains.resources)
        if not pods_remain:
            for resource in _OTHERS:
                await self._clear(Kind(resource, ApiObject), key, remains)
        texts = namespace_content.conditions(remains, pods_remain=pods_remain)
        if changes := namespace_content.changes(namespace, texts, now=self._clock.now()):
            await status_writes.patch(self._client, NAMESPACES, namespace, {"conditions": changes})
        if remains.failures:
            raise Retry("; ".join(remains.failures))
        if remains.seconds:
            # Half of the longest time, because objects may be gone earlier.
            return Result(requeue_after=remains.seconds // 2 + 1)
        # In any version: the conditions have changed the version.
        meta = msgspec.to_builtins(namespace.metadata)
        meta.pop("resourceVersion", None)
        finalizers = [each for each in namespace.spec.finalizers or () if each != FINALIZER]
        with contextlib.suppress(errors.NotFound):
            await self._client.finalize({"metadata": meta, "spec": {"finalizers": finalizers}})
        return DONE

    async def _clear(
        self, kind: Kind[ApiObject], namespace: str, remains: Remains, seconds: int = 0
    ) -> None:
        """Delete all objects of a kind, and note those that remain."""
        try:
            for each in await self._all(kind, namespace):
                await self._delete(kind, each)
            remaining = await self._all(kind, namespace)
        except errors.ClientError as error:
            remains.failures.append(str(error))
        else:
            remains.note(kind.resource, remaining, seconds)

    async def _all(self, kind: Kind[T], namespace: str) -> list[T]:
        pages = self._client.list(kind, namespace=namespace)
        return [each async for page in pages for each in page.items]

    async def _delete(self, kind: Kind[ApiObject], obj: ApiObject) -> None:
        meta = obj.metadata
        options = DeleteOptions(uid=meta.uid, propagation="Background")
        try:
            await self._client.delete(kind, meta.name, namespace=meta.namespace, options=options)
        except (errors.NotFound, errors.Conflict):
            return  # gone, or replaced by another object, which the next sync deletes
        what = kind.resource.plural
        log.debug("namespace-controller: %s %s/%s is deleted", what, meta.namespace, meta.name)


def _grace(pod: Pod) -> int:
    """Seconds that a pod may take to end; 0 if it has ended."""
    return 0 if pod.is_terminal else pod.spec.termination_grace_period_seconds or 0


def build(env: ControllerEnv) -> Sequence[Worker]:
    controller = NamespaceController(
        env.client("namespace-controller"),
        env.informer(NAMESPACES),
        clock=env.clock,
        instruments=env.instruments,
    )
    return [controller.controller]
