# SPDX-License-Identifier: Apache-2.0
"""A client that forwards each verb to another client.

A subclass changes all reads of one object (`_read`), all writes (`_write`) or
single verbs. The options of a verb go through as they are, so that their
defaults stand in one place, the forwarded client. `contract.Client` declares
them: hold a forwarding client as a `Client`, and the type checker checks calls.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from refloat.api.meta import Object
from refloat.client.contract import Client, Kind, ListPage, Watch

T = TypeVar("T")


class ForwardingClient:
    """A `Client` around another."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def _read(self, verb: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        return await verb(*args, **options)

    async def _write(self, verb: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        return await verb(*args, **options)

    async def get(self, kind: Kind[T], name: str, **options: Any) -> T:
        return await self._read(self._client.get, kind, name, **options)

    def list(self, kind: Kind[T], **options: Any) -> AsyncIterator[ListPage[T]]:
        return self._client.list(kind, **options)

    def watch(self, kind: Kind[T], **options: Any) -> Watch[T]:
        return self._client.watch(kind, **options)

    async def create(self, kind: Kind[T], obj: Object, **options: Any) -> T:
        return await self._write(self._client.create, kind, obj, **options)

    async def patch(
        self, kind: Kind[T], name: str, patch: Object | Sequence[Any], **options: Any
    ) -> T:
        return await self._write(self._client.patch, kind, name, patch, **options)

    async def delete(self, kind: Kind[Any], name: str, **options: Any) -> None:
        await self._write(self._client.delete, kind, name, **options)

    async def evict(self, name: str, **options: Any) -> None:
        await self._write(self._client.evict, name, **options)

    async def bind(self, name: str, node: str, **options: Any) -> None:
        await self._write(self._client.bind, name, node, **options)

    async def log(self, name: str, **options: Any) -> str:
        return await self._read(self._client.log, name, **options)

    async def finalize(self, namespace: Object) -> None:
        await self._write(self._client.finalize, namespace)

    async def close(self) -> None:
        await self._client.close()
