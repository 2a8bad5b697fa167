# SPDX-License-Identifier: Apache-2.0
"""A client that writes only while its process leads.

The check stands directly before each write, not once per reconcile: a process
can be frozen at every await, and what it decided before is worth nothing
after. It goes along with the call (`client.fence`), and is made again for
each request that the client sends. A write that was already under way may
still land late; therefore controllers guard each by uid or resourceVersion, or
make it idempotent.

Reads are free: whoever does not lead may know.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from refloat.api.meta import Object
from refloat.client import fence
from refloat.client.contract import (
    EVERYTHING,
    Client,
    DeleteOptions,
    Kind,
    Page,
    PatchType,
    Selector,
    Watch,
)

T = TypeVar("T")


class Guard:
    """A `Client` around another; `check` raises when nothing may be written."""

    def __init__(self, client: Client, check: Callable[[], None]) -> None:
        self._client = client
        self._check = check

    async def get(self, kind: Kind[T], name: str, *, namespace: str = "") -> T:
        return await self._client.get(kind, name, namespace=namespace)

    def list(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        limit: int = 500,
        resource_version: str = "",
    ) -> AsyncIterator[Page[T]]:
        return self._client.list(
            kind,
            namespace=namespace,
            selector=selector,
            limit=limit,
            resource_version=resource_version,
        )

    def watch(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        selector: Selector = EVERYTHING,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int | None = None,
    ) -> Watch[T]:
        return self._client.watch(
            kind,
            namespace=namespace,
            selector=selector,
            resource_version=resource_version,
            initial_events=initial_events,
            timeout_seconds=timeout_seconds,
        )

    async def create(self, kind: Kind[T], obj: Object, *, namespace: str = "") -> T:
        self._check()
        with fence.fenced(self._check):
            return await self._client.create(kind, obj, namespace=namespace)

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
        self._check()
        with fence.fenced(self._check):
            return await self._client.patch(
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
        self._check()
        with fence.fenced(self._check):
            await self._client.delete(kind, name, namespace=namespace, options=options)

    async def evict(
        self, name: str, *, namespace: str, options: DeleteOptions | None = None
    ) -> None:
        self._check()
        with fence.fenced(self._check):
            await self._client.evict(name, namespace=namespace, options=options)

    async def bind(self, name: str, node: str, *, namespace: str, uid: str = "") -> None:
        self._check()
        with fence.fenced(self._check):
            await self._client.bind(name, node, namespace=namespace, uid=uid)

    async def finalize(self, namespace: Object) -> None:
        self._check()
        with fence.fenced(self._check):
            await self._client.finalize(namespace)

    async def close(self) -> None:
        await self._client.close()
