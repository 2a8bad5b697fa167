# SPDX-License-Identifier: Apache-2.0
"""The verbs, on any transport.

Turns each verb into one request and the answer into structs (`decoding`).
`http` sends the requests over the wire, `local` passes them to the server in
this process. All chunks of a list are of one snapshot. If the server forgets the
snapshot half way, `list` raises `Expired`, and the caller starts anew: only the
caller knows what became of the first chunks.
"""

import abc
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from refloat.api import kinds
from refloat.api.meta import Object
from refloat.client import contract, decoding, errors, paths, retry
from refloat.client.contract import (
    EVERYTHING,
    MAX_LOG_BYTES,
    DeleteOptions,
    Kind,
    ListPage,
    PatchType,
    Selector,
)
from refloat.client.requests import JSON, Request

T = TypeVar("T")

NAMESPACES = kinds.of("namespaces")
PODS = kinds.of("pods")

_PATCH_TYPES: dict[PatchType, str] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",  # which JSON is
}


class Verbs(abc.ABC):
    """A `contract.Client` without the transport."""

    def __init__(self, field_manager: str) -> None:
        self._manager = urlencode({"fieldManager": field_manager})

    @abc.abstractmethod
    async def _call(self, request: Request) -> decoding.Body:
        """Send a request and return the body of the answer, or raise a `ClientError`."""

    @abc.abstractmethod
    def _open(self, request: Request, kind: Kind[T]) -> contract.Watch[T]:
        """Begin a watch."""

    @abc.abstractmethod
    async def close(self) -> None: ...

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
    ) -> AsyncIterator[ListPage[T]]:
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
            del page  # keep only one chunk in memory
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
        return self._open(request, kind)

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
        await self._call(
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

    async def log(self, name: str, *, namespace: str, container: str, lines: int) -> str:
        options = {"container": container, "tailLines": lines, "limitBytes": MAX_LOG_BYTES}
        path = f"{paths.one(PODS, namespace, name, 'log')}?{urlencode(options)}"
        body = await self._call(Request("GET", path, is_repeatable=True, accept="*/*"))
        return bytes(body).decode(errors="replace")

    async def finalize(self, namespace: Object) -> None:
        path = paths.one(NAMESPACES, "", namespace["metadata"]["name"], "finalize")
        body = {"apiVersion": "v1", "kind": "Namespace", **namespace}
        await self._write("PUT", path, body, is_repeatable=False)

    async def _read(self, path: str, query: dict[str, str] | None = None) -> decoding.Body:
        target = f"{path}?{urlencode(query)}" if query else path
        return await self._call(Request("GET", target, is_repeatable=True))

    async def _write(
        self,
        method: str,
        path: str,
        body: Object | Sequence[Any],
        *,
        is_repeatable: bool,
        content_type: str = JSON,
        force: bool = False,
    ) -> decoding.Body:
        target = f"{path}?{self._manager}{'&force=true' if force else ''}"
        return await self._call(
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
    """The body of a delete: the options that the caller sets, and no others."""
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    fields: Object = {
        "gracePeriodSeconds": options.grace_seconds,
        "propagationPolicy": options.propagation,
        "preconditions": {key: value for key, value in preconditions.items() if value} or None,
        "reason": options.reason or None,
    }
    options_set = {key: value for key, value in fields.items() if value is not None}
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options_set}
