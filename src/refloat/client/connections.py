# SPDX-License-Identifier: Apache-2.0
"""Connections to one server over HTTP/1.1, for requests and for watches.

A `Connection` serves one request after the other, and reads each answer whole.
A `Stream` serves one watch, and gives out the answer as it arrives. Through a
proxy, both are TLS connections in a tunnel (CONNECT).

aiohttp was tried: it needs 150 us of CPU for a request where this module needs
15 us, a tenth of a millisecond for a watch event, and 10 MB of memory. httpx
needs ten times as much as aiohttp. httptools would replace `response_parser`
only, with one more binary dependency.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from http import HTTPStatus
from typing import TypeVar, cast

from refloat.base.clock import Clock
from refloat.client.proxies import Proxy
from refloat.client.response_parser import Answer, BadAnswer, Reader

# Less than servers and load balancers keep an idle connection: if a write meets
# a connection that the server closes, the client cannot know whether it happened.
KEEPALIVE_SECONDS = 15.0

# When the reader of a watch is this far behind, the server has to wait: some
# hundred events, and more than the largest object.
MAX_HELD_BYTES = 4 * 1024 * 1024


class NotConnected(OSError):
    """There was no connection, so nothing was sent."""


class Broken(OSError):
    """The connection ended before the answer was complete."""


class Connection(asyncio.Protocol):
    """A connection that serves one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._reader = Reader()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.used_at = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether the connection can take a request now."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._reader = Reader()
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._waiting
        finally:
            # After a cancelled request, the late answer would count as the answer to the next.
            if not self._reader.persists:
                self.close()
            self._waiting = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        waiting = self._waiting
        if waiting is None or waiting.done():
            self.close()  # data without a request
            return
        try:
            if self._reader.feed(data):
                waiting.set_result(self._reader.answer())
        except BadAnswer as error:
            waiting.set_exception(Broken(str(error)))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        if exc is None and self._reader.end():
            waiting.set_result(self._reader.answer())
        else:
            waiting.set_exception(Broken(repr(exc) if exc else "the server closed it"))


class Stream(asyncio.Protocol):
    """A connection for one answer, which is read as it arrives."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = Reader()
        self._arrival: asyncio.Future[None] | None = None  # set while a reader waits
        self._error: OSError | None = None
        self._is_paused = False
        self.max_held_bytes = MAX_HELD_BYTES
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def begin(self, request: bytes) -> None:
        """Send the request, and return when the head of the answer is there."""
        assert self._transport is not None
        self._transport.write(request)
        while self.status is None:
            self._check()
            await self._wait()

    @property
    def status(self) -> int | None:
        """The code of the answer; None until the head is there."""
        return self._reader.status

    @property
    def transport(self) -> asyncio.Transport:
        """The open connection below, for TLS in a tunnel."""
        assert self._transport is not None
        return self._transport

    async def read(self) -> bytes:
        """The next piece of the body; empty at the end."""
        while True:
            if piece := self._reader.take():
                if self._is_paused and self._transport is not None:
                    self._is_paused = False
                    self._transport.resume_reading()
                return bytes(piece)
            if self._reader.is_complete:
                return b""
            self._check()
            await self._wait()

    async def rest(self) -> Answer:
        """The whole answer, after `begin` and instead of `read`."""
        while not self._reader.is_complete:
            self._check()
            await self._wait()
        return self._reader.answer()

    def close(self) -> None:
        """End the connection at once; a waiting reader gets an `OSError`."""
        self._fail(Broken("it was closed"))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            await self._arrival
        finally:
            self._arrival = None

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except BadAnswer as error:
            self._fail(Broken(str(error)))
            return
        if self._reader.held > self.max_held_bytes and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        if exc is not None or not self._reader.end():
            self._fail(Broken(repr(exc) if exc else "the server closed it"))
        self._wake()


P = TypeVar("P", Connection, Stream)


class Connections:
    """The connections to one server; at most `most` of them for requests."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        server_name: str | None,
        most: int,
        clock: Clock,
        proxy: Proxy | None = None,
        connect_seconds: float | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._server_name = server_name or host
        self._clock = clock
        self._proxy = proxy
        self._connect_seconds = connect_seconds
        self._slots = asyncio.Semaphore(most)
        self._idle: list[tuple[ssl.SSLContext | None, Connection]] = []
        self._open: set[Connection | Stream] = set()

    async def exchange(
        self, request: bytes, context: ssl.SSLContext | None, *, before: Callable[[], None]
    ) -> Answer:
        """Send a request and read the answer; `before` runs right before, and may raise."""
        async with self._slots:
            connection = self._take(context) or await self._connect(Connection, context)
            try:
                before()
                return await connection.exchange(request)
            finally:
                if connection.is_usable:
                    connection.used_at = self._clock.monotonic()
                    self._idle.append((context, connection))

    async def stream(self, request: bytes, context: ssl.SSLContext | None) -> Stream:
        """Send a request on a connection of its own; returns when the answer's head is there."""
        stream = await self._connect(Stream, context)
        try:
            await stream.begin(request)
        except BaseException:
            stream.close()
            raise
        return stream

    def _take(self, context: ssl.SSLContext | None) -> Connection | None:
        """The idle connection of the last request, if it is fresh enough."""
        oldest = self._clock.monotonic() - KEEPALIVE_SECONDS
        while self._idle:
            connection_context, connection = self._idle.pop()
            if connection.is_usable:
                if connection_context is context and connection.used_at > oldest:
                    return connection
                connection.close()
        return None

    async def _connect(self, protocol: type[P], context: ssl.SSLContext | None) -> P:
        seconds = self._connect_seconds
        try:
            async with nullcontext() if seconds is None else self._clock.timeout(seconds):
                if self._proxy is None:
                    address = (self._host, self._port)
                    connection = await _dial(protocol, address, context, self._server_name)
                elif context is None:
                    connection = await _dial_proxy(protocol, self._proxy, None)
                else:
                    connection = await self._tunnel(protocol, self._proxy, context)
        except (OSError, UnicodeError) as error:
            where = f"{self._host}:{self._port}"
            raise NotConnected(f"Cannot connect to host {where}: {error}") from error
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    async def _tunnel(self, protocol: type[P], proxy: Proxy, context: ssl.SSLContext) -> P:
        """A TLS connection to the server through the proxy."""
        line = await _dial_proxy(Stream, proxy, context)
        host = f"[{self._host}]" if ":" in self._host else self._host
        target = f"{host}:{self._port}"
        headers = "".join(f"{name}: {value}\r\n" for name, value in proxy.headers)
        try:
            await line.begin(
                f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{headers}\r\n".encode()
            )
            if line.status != HTTPStatus.OK:
                raise NotConnected(f"the proxy {proxy.host}:{proxy.port} answers {line.status}")
            connection = protocol()
            transport = await asyncio.get_running_loop().start_tls(
                line.transport, connection, context, server_hostname=self._server_name
            )
        except BaseException:
            line.close()
            raise
        assert transport is not None
        connection.connection_made(transport)
        return connection

    async def close(self) -> None:
        """End all connections, also those in use."""
        ending = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.close()
        self._idle.clear()
        if ending:
            await asyncio.wait(ending)


async def _dial(
    protocol: type[P], address: tuple[str, int], context: ssl.SSLContext | None, name: str
) -> P:
    _, connection = await asyncio.get_running_loop().create_connection(
        protocol, *address, ssl=context, server_hostname=name if context else None
    )
    return connection


async def _dial_proxy(protocol: type[P], proxy: Proxy, context: ssl.SSLContext | None) -> P:
    """A connection to the proxy; `context` is the server's."""
    if not proxy.is_encrypted:
        context = None
    elif context is None:
        context = ssl.create_default_context()
    return await _dial(protocol, (proxy.host, proxy.port), context, proxy.host)
