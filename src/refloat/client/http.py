# SPDX-License-Identifier: Apache-2.0
"""The verbs over the wire, to any API server.

Turns each verb into one request (`transport` sends it) and the answer into
structs (`decoding`). Lists are consistent over their chunks: when the server
forgets the snapshot half way, `Expired` is raised and whoever asked starts
anew, because only they know what they have done with the first chunks.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import access, contract, decoding, errors, paths, retry
from refloat.client.contract import EVERYTHING, DeleteOptions, Kind, Page, PatchType, Selector
from refloat.client.settings import Settings
from refloat.client.transport import JSON, Request, Transport
from refloat.client.watching import HttpWatch

T = TypeVar("T")

PODS = kinds.of("pods")

_PATCH_TYPES: dict[PatchType, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # which JSON is
}


class HttpClient:
    """A `contract.Client` for the cluster that an `Access` describes."""

    def __init__(
        self, where: access.Access, *, clock: Clock, rand: Rand, settings: Settings | None = None
    ) -> None:
        self._settings = settings or Settings()
        self._clock = clock
        self._transport = Transport(where, clock, rand, self._settings)
        self._manager = urlencode({"fieldManager": self._settings.field_manager})

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        path = paths.one(kind.resource, namespace, name)
        return decoding.one(kind, await self._read(path))

    async def list(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
        resource_version: str = "",
    ) -> AsyncIterator[Page[T]]:
        """The objects in chunks, of a snapshot not older than `resource_version`."""
        path = paths.collection(kind.resource, namespace)
        query = _selecting(selector)
        if limit:
            query["limit"] = str(limit)
        start = dict(query)
        if resource_version:
            start |= {"resourceVersion": resource_version, "resourceVersionMatch": "NotOlderThan"}
        page, token = decoding.page(kind, await self._read(path, start))
        while True:
            yield page
            if page.last:
                return
            del page  # one chunk at a time is enough
            body = await self._read(path, query | {"continue": token})
            page, token = decoding.page(kind, body)

    def watch(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int | None = None,
    ) -> contract.Watch[T]:
        query = _selecting(selector) | {"watch": "true", "allowWatchBookmarks": "true"}
        if resource_version:
            query["resourceVersion"] = resource_version
        if initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if timeout_seconds is not None:
            query["timeoutSeconds"] = str(timeout_seconds)
        path = paths.collection(kind.resource, namespace)
        request = Request("GET", f"{path}?{urlencode(query)}")
        return HttpWatch(
            self._transport, request, kind, self._clock, self._settings.watch_idle_seconds
        )

    async def create(self, kind: Kind[T], obj: Object, *, namespace: str = "") -> T:
        resource = kind.resource
        namespace = namespace or (obj.get("metadata") or {}).get("namespace") or ""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        answer = await self._write(
            "POST",
            paths.place(resource, namespace),
            body,
            is_repeatable=retry.is_repeatable_create(obj),
        )
        return decoding.one(kind, answer)

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
        answer = await self._write(
            "PATCH",
            paths.one(kind.resource, namespace, name, subresource),
            patch,
            content_type=_PATCH_TYPES[patch_type],
            force=force,
            is_repeatable=retry.is_repeatable_patch(patch, patch_type),
        )
        return decoding.one(kind, answer)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        options: DeleteOptions | None = None,
    ) -> None:
        path = paths.one(kind.resource, namespace, name)
        body = msgspec.json.encode(_delete_options(options)) if options is not None else None
        await self._transport.call(
            Request("DELETE", path, body, is_repeatable=retry.is_repeatable_delete(options))
        )

    async def evict(
        self, name: str, *, namespace: str, options: DeleteOptions | None = None
    ) -> None:
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        if options is not None:
            body["deleteOptions"] = _delete_options(options)
        await self._write(
            "POST",
            paths.one(PODS, namespace, name, "eviction"),
            body,
            is_repeatable=retry.is_repeatable_delete(options),
        )

    async def bind(self, name: str, node: str, *, namespace: str, uid: str = "") -> None:
        metadata = {"name": name, "namespace": namespace}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._write(
            "POST", paths.one(PODS, namespace, name, "binding"), body, is_repeatable=False
        )

    async def close(self) -> None:
        await self._transport.close()

    async def _read(self, path: str, query: dict[str, str] | None = None) -> bytearray:
        target = f"{path}?{urlencode(query)}" if query else path
        return await self._transport.call(Request("GET", target, is_repeatable=True))

    async def _write(
        self,
        method: str,
        path: str,
        body: Object | Sequence[Any],
        *,
        is_repeatable: bool,
        content_type: str = JSON,
        force: bool = False,
    ) -> bytearray:
        target = f"{path}?{self._manager}{'&force=true' if force else ''}"
        return await self._transport.call(
            Request(method, target, _encoded(body), content_type, is_repeatable)
        )


def _encoded(body: Object | Sequence[Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise errors.Invalid(f"the object cannot be sent: {error}") from error


def _selecting(selector: Selector) -> dict[str, str]:
    query: dict[str, str] = {}
    if selector.labels:
        query["labelSelector"] = selector.labels
    if selector.fields:
        query["fieldSelector"] = selector.fields
    return query


def _delete_options(options: DeleteOptions) -> Object:
    """What is chosen, and nothing else."""
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    fields: Object = {
        "gracePeriodSeconds": options.grace_seconds,
        "propagationPolicy": options.propagation,
        "preconditions": {key: value for key, value in preconditions.items() if value} or None,
        "reason": options.reason or None,
    }
    chosen = {key: value for key, value in fields.items() if value is not None}
    return {"apiVersion": "v1", "kind": "DeleteOptions", **chosen}
