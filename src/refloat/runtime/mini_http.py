# SPDX-License-Identifier: Apache-2.0
"""A few pages over HTTP/1.1, for probes, scrapes and logs; not an API server.

The server reads one request on a connection, and closes connections whose head
is too long or too late. A page is bytes, or a generator of pieces. The caller
decides which pages exist and which clients may read them.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from refloat.base.clock import Clock

log = logging.getLogger(__name__)

# A scraper's head has half a kilobyte.
MAX_HEAD_BYTES = 16 * 1024

# A client has its request ready when it connects.
HEAD_SECONDS = 10.0

# A node's hundred pods, each with a few readers of its log.
MAX_CONNECTIONS = 1000

# For the requests in progress when the server closes.
CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in small letters."""

    certificate: Mapping[str, Any] | None = None
    """The client's, if the server requests one."""

    is_read: Callable[[], bool] = lambda: True
    """Whether the client is still connected."""


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    media: str = "text/plain; charset=utf-8"


Handler = Callable[[Request], Awaitable[Page]]

NOT_FOUND = Page(b"404: Not Found", 404)


class BadRequest(ValueError):
    """Not a request that can be answered."""


class PageServer:
    """Answers at one address until it is closed."""

    def __init__(self, handler: Handler, *, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._listener: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(
        self, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Listen; port 0 takes a free one. Returns the address and the port."""
        self._listener = await asyncio.start_server(
            self._connected, address, port, ssl=tls, limit=MAX_HEAD_BYTES
        )
        host, bound = self._listener.sockets[0].getsockname()[:2]
        return host, bound

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._serving:
            with suppress(TimeoutError):
                async with self._clock.timeout(CLOSE_SECONDS):
                    await asyncio.wait(self._serving)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if len(self._serving) <= MAX_CONNECTIONS:
                await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            log.debug("a client closed the connection")
        finally:
            self._serving.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._clock.timeout(HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            request = _parse(head, writer)
        except (asyncio.LimitOverrunError, BadRequest):
            page = Page(b"400: Bad Request", 400)
            await _send(writer, page, with_body=True)
            return
        await _send(writer, await self._page(request), with_body=request.method != "HEAD")

    async def _page(self, request: Request) -> Page:
        if request.method not in ("GET", "HEAD"):
            return Page(b"405: Method Not Allowed", 405)
        try:
            return await self._handler(request)
        except Exception:
            log.exception("%s cannot be shown", request.path)
            return Page(b"500: Internal Server Error", 500)


def _parse(head: bytes, writer: asyncio.StreamWriter) -> Request:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        raise BadRequest(first[:80])
    target = urlsplit(words[1])
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    return Request(
        words[0],
        unquote(target.path),
        dict(parse_qsl(target.query, keep_blank_values=True)),
        headers,
        writer.get_extra_info("peercert"),
        lambda: not writer.transport.is_closing(),
    )


async def _send(writer: asyncio.StreamWriter, page: Page, *, with_body: bool) -> None:
    """The page, and no more on this connection."""
    fields = [
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}",
        f"Content-Type: {page.media}",
        "Connection: close",
    ]
    if isinstance(page.body, bytes):
        fields.append(f"Content-Length: {len(page.body)}")
    else:
        fields.append("Transfer-Encoding: chunked")
    writer.write("\r\n".join([*fields, "", ""]).encode())
    if with_body:
        await _write(writer, page.body)
    await writer.drain()


async def _write(writer: asyncio.StreamWriter, body: bytes | AsyncGenerator[bytes, None]) -> None:
    if isinstance(body, bytes):
        writer.write(body)
        return
    async with aclosing(body):
        async for piece in body:
            if piece:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
    writer.write(b"0\r\n\r\n")
