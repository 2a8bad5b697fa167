# SPDX-License-Identifier: Apache-2.0
"""Connections to one server: HTTP/1.1, for requests and for watches.

A general HTTP library spends a third of a millisecond on a request and a tenth
on an event, several times what an API server's small answers need, and takes
ten megabytes. Here is only what one server takes: connect, send, and read
whole (`Connection`, one request at a time, kept for the next) or as it comes
(`Stream`, one for each watch). Proxies are left to that library (`proxied`).
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from refloat.base.clock import Clock
from refloat.client.answers import Answer, BadAnswer, Reader
from refloat.client.carrier import Broken, NotConnected

# Below what servers and balancers keep an idle connection for: a write that
# meets a connection that is just being closed may or may not have happened.
KEEPALIVE_SECONDS = 15.0

# A reader of a watch that falls behind by this much lets the server wait: some
# hundred events, and more than the largest object.
MAX_HELD_BYTES = 4 * 1024 * 1024


class Connection(asyncio.Protocol):
    """One connection; `exchange` a request for its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None
        self._reader = Reader()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.used_at = 0.0

    @property
    def is_usable(self) -> bool:
        """Whether it can take a request now."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes) -> Answer:
        assert self._transport is not None
        self._reader = Reader()
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._waiting
        finally:
            # What comes for a request that nobody waits for any more would be
            # taken for the answer to the next one.
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
            self.close()  # nobody asked
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
    """One answer that is read as it comes."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = Reader()
        self._news: asyncio.Future[None] | None = None  # somebody waits for it
        self._error: OSError | None = None
        self._is_paused = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def begin(self, request: bytes) -> None:
        """Send the request, and return when the head of its answer is there."""
        assert self._transport is not None
        self._transport.write(request)
        while self.status is None:
            self._check()
            await self._wait()

    @property
    def status(self) -> int | None:
        return self._reader.status

    async def read(self) -> bytes:
        """The next piece of the body; empty at its end."""
        while True:
            if piece := self._reader.take():
                self._resume()
                return bytes(piece)
            if self._reader.is_complete:
                return b""
            self._check()
            await self._wait()

    async def rest(self) -> Answer:
        """All of it, after `begin` and instead of `read`."""
        while not self._reader.is_complete:
            self._check()
            await self._wait()
        return self._reader.answer()

    def close(self) -> None:
        """End it at once; whoever waits for a piece hears of it."""
        self._fail(Broken("it was closed"))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()
        self._tell()

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except BadAnswer as error:
            self._fail(Broken(str(error)))
            return
        if self._reader.held > MAX_HELD_BYTES:
            self._pause()
        self._tell()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        if exc is not None or not self._reader.end():
            self._fail(Broken(repr(exc) if exc else "the server closed it"))
        self._tell()


P = TypeVar("P", Connection, Stream)


class Connections:
    """The connections to one server; requests use so many at most at once."""

    def __init__(
        self, host: str, port: int, *, server_name: str | None, most: int, clock: Clock
    ) -> None:
        self._host = host
        self._port = port
        self._server_name = server_name
        self._clock = clock
        self._slots = asyncio.Semaphore(most)
        self._idle: list[tuple[ssl.SSLContext | None, Connection]] = []
        self._open: set[Connection | Stream] = set()

    async def exchange(
        self, request: bytes, context: ssl.SSLContext | None, *, before: Callable[[], None]
    ) -> Answer:
        """Send a request and read its answer; `before` is asked just before it is sent."""
        async with self._slots:
            connection = self._take(context) or await self._connect(Connection, context)
            try:
                before()
                return await connection.exchange(request)
            finally:
                self._give_back(context, connection)

    async def stream(self, request: bytes, context: ssl.SSLContext | None) -> Stream:
        """Send a request on a connection of its own; its answer from the head on."""
        stream = await self._connect(Stream, context)
        try:
            await stream.begin(request)
        except BaseException:
            stream.close()
            raise
        return stream

    def _take(self, context: ssl.SSLContext | None) -> Connection | None:
        """The one that was used last, if it can still be trusted."""
        oldest = self._clock.monotonic() - KEEPALIVE_SECONDS
        while self._idle:
            its_context, connection = self._idle.pop()
            if connection.is_usable:
                if its_context is context and connection.used_at > oldest:
                    return connection
                connection.close()
        return None

    def _give_back(self, context: ssl.SSLContext | None, connection: Connection) -> None:
        if connection.is_usable:
            connection.used_at = self._clock.monotonic()
            self._idle.append((context, connection))

    async def _connect(self, protocol: type[P], context: ssl.SSLContext | None) -> P:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                protocol,
                self._host,
                self._port,
                ssl=context,
                server_hostname=(self._server_name or self._host) if context else None,
            )
        except (OSError, UnicodeError) as error:
            where = f"{self._host}:{self._port}"
            raise NotConnected(f"Cannot connect to host {where}: {error}") from error
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    async def close(self) -> None:
        """End all of them, also those in use."""
        ending = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.close()
        self._idle.clear()
        if ending:
            await asyncio.wait(ending)
