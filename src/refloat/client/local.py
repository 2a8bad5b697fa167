# SPDX-License-Identifier: Apache-2.0
"""The verbs in this process, to the embedded API server.

The rights and rules are those of the wire, without TLS, HTTP and sockets. The
client decodes bytes, so objects belong to the caller. Watches stream, and
closing one ends the watch at once. The client never repeats a call, because no
answer gets lost between client and server.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

import msgspec

from refloat.api.errors import StatusError
from refloat.client import contract, decoding, errors
from refloat.client.contract import Kind, LocalServer, WatchEvent
from refloat.client.requests import Request
from refloat.client.verbs import Verbs

T = TypeVar("T")


class LocalClient(Verbs):
    """A `contract.Client` for a `LocalServer`."""

    def __init__(self, server: LocalServer, *, field_manager: str) -> None:
        super().__init__(field_manager)
        self._server = server

    async def _call(self, request: Request) -> bytes:
        try:
            return await self._server.call(
                request.method, request.path, request.body or b"", request.content_type
            )
        except StatusError as error:
            raise _failure(error, request) from error

    def _open(self, request: Request, kind: Kind[T]) -> contract.Watch[T]:
        return LocalWatch(self._server, request, kind)

    async def close(self) -> None:
        """Only watches are open, and their readers close them."""


def _failure(error: StatusError, request: Request) -> errors.ClientError:
    body = msgspec.json.encode(error.status())
    return decoding.failure(error.code, body, what=str(request), retry_after=error.retry_after)


class LocalWatch(Generic[T]):
    """A watch that one task reads, and any task may close."""

    def __init__(self, server: LocalServer, request: Request, kind: Kind[T]) -> None:
        self._server = server
        self._request = request
        self._kind = kind
        self._lines: AsyncGenerator[bytes, None] | None = None
        self._ready: deque[bytes] = deque()
        self._reading: asyncio.Task[bytes] | None = None
        self._ended = False

    def __aiter__(self) -> "LocalWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            await self._read()
        try:
            return decoding.event(self._kind, self._ready.popleft())
        except errors.ClientError:
            self._ended = True
            self._ready.clear()
            raise

    async def _read(self) -> None:
        """Wait for more lines; keep lines that arrive after the reader was cancelled."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(anext(self._opened()))
        reading = self._reading
        await asyncio.wait([reading])
        self._reading = None
        if reading.cancelled():  # closed by another task
            self._ended = True
            return
        try:
            self._ready.extend(filter(None, reading.result().split(b"\n")))
        except StopAsyncIteration:
            self._ended = True

    def _opened(self) -> AsyncGenerator[bytes, None]:
        if self._lines is None:
            try:
                self._lines = self._server.watch(self._request.path)
            except StatusError as error:
                self._ended = True
                raise _failure(error, self._request) from error
        return self._lines

    async def aclose(self) -> None:
        """End the watch, also for a waiting reader."""
        self._ended = True
        self._ready.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
            self._reading = None
        if self._lines is not None:
            await self._lines.aclose()
            self._lines = None
