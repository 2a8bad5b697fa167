# SPDX-License-Identifier: Apache-2.0
"""Sends requests to one server over HTTP/1.1, directly or through a proxy.

The only HTTP client of Refloat. It knows neither retries nor Kubernetes:
`transport` adds those. A failure below HTTP is an `OSError`: `NotConnected` if
nothing was sent, else `Broken`.
"""

import ssl
from collections.abc import Callable
from urllib.parse import urlsplit

from refloat.base.clock import Clock
from refloat.client import errors, fence, proxies
from refloat.client.connections import Connections, Stream
from refloat.client.credentials import Identity
from refloat.client.requests import Request
from refloat.client.response_parser import Answer

_PORTS = {"http": 80, "https": 443}


class RequestSender:
    """The connections to one server, and the headers that all requests to it share."""

    def __init__(
        self,
        server: str,
        *,
        tls: Callable[[Identity], ssl.SSLContext | None],
        clock: Clock,
        user_agent: str,
        connections: int = 32,
        server_name: str | None = None,
        proxy: str = "",
        connect_seconds: float | None = None,
    ) -> None:
        """`tls` gives the context for an identity; None for a server without TLS."""
        url = urlsplit(server)
        assert url.hostname is not None
        self._tls = tls
        self._prefix = url.path.rstrip("/")
        self._shared = [
            ("Host", url.netloc),
            # In a cluster's network, compressing costs both sides more than sending.
            ("Accept-Encoding", "identity"),
            ("User-Agent", user_agent),
        ]
        self._head: tuple[Identity, str] | None = None
        through = proxies.parse(proxy) if proxy else None
        if through is not None and url.scheme == "http":
            # A proxy forwards what is not encrypted, and needs the whole URL for that.
            self._prefix = f"http://{url.netloc}{self._prefix}"
            self._shared += through.headers
        self._connections = Connections(
            url.hostname,
            url.port or _PORTS[url.scheme],
            server_name=server_name,
            most=connections,
            clock=clock,
            proxy=through,
            connect_seconds=connect_seconds,
        )

    async def exchange(self, request: Request, identity: Identity) -> Answer:
        """Send a request on a shared connection and read the whole answer."""
        return await self._connections.exchange(
            self._encode(request, identity), self._tls(identity), before=fence.check
        )

    async def stream(self, request: Request, identity: Identity) -> Stream:
        """Send a request on a connection of its own; returns when the answer's head is there."""
        return await self._connections.stream(self._encode(request, identity), self._tls(identity))

    def _encode(self, request: Request, identity: Identity) -> bytes:
        head = (
            f"{request.method} {self._prefix}{request.path} HTTP/1.1\r\n"
            f"{self._fields(identity)}Accept: {request.accept}\r\n"
        )
        if request.body is None:
            return f"{head}\r\n".encode()
        body = f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}"
        return f"{head}{body}\r\n\r\n".encode() + request.body

    def _fields(self, identity: Identity) -> str:
        """The headers that all requests of an identity have."""
        if self._head is None or self._head[0] is not identity:
            fields = [*self._shared, *identity.headers]
            for name, value in fields:
                if not value.isprintable():
                    raise errors.Unauthorized(f"header {name}: has characters that cannot be sent")
            self._head = (identity, "".join(f"{name}: {value}\r\n" for name, value in fields))
        return self._head[1]

    async def close(self) -> None:
        """End all connections, also those in use."""
        await self._connections.close()
