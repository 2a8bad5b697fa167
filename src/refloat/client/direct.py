# SPDX-License-Identifier: Apache-2.0
"""Requests straight to the server: written by hand, over `connections`."""

from urllib.parse import urlsplit

from refloat.base.clock import Clock
from refloat.client import carrier, errors, fence
from refloat.client.answers import Answer
from refloat.client.connections import Connections, Stream
from refloat.client.credentials import Identity
from refloat.client.requests import Request
from refloat.client.settings import Settings
from refloat.client.tls import Tls

_PORTS = {"http": 80, "https": 443}


class Direct:
    """A `Carrier` without a proxy."""

    def __init__(
        self, server: str, *, server_name: str | None, tls: Tls, clock: Clock, settings: Settings
    ) -> None:
        url = urlsplit(server)
        assert url.hostname is not None
        self._authority = url.netloc
        self._prefix = url.path.rstrip("/")
        self._user_agent = settings.user_agent
        self._tls = tls
        self._head: tuple[Identity, str] | None = None
        self._connections = Connections(
            url.hostname,
            url.port or _PORTS[url.scheme],
            server_name=server_name,
            most=settings.connections,
            clock=clock,
        )

    async def exchange(self, request: Request, identity: Identity) -> Answer:
        return await self._connections.exchange(
            self._encoded(request, identity), self._tls.context(identity), before=fence.check
        )

    async def stream(self, request: Request, identity: Identity) -> Stream:
        return await self._connections.stream(
            self._encoded(request, identity), self._tls.context(identity)
        )

    def _encoded(self, request: Request, identity: Identity) -> bytes:
        """A request as it goes out."""
        head = f"{request.method} {self._prefix}{request.path} HTTP/1.1\r\n{self._fields(identity)}"
        if request.body is None:
            return f"{head}\r\n".encode()
        body = f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}"
        return f"{head}{body}\r\n\r\n".encode() + request.body

    def _fields(self, identity: Identity) -> str:
        """The headers that all requests of an identity have."""
        if self._head is None or self._head[0] is not identity:
            told = [("Host", self._authority), *carrier.headers(identity, self._user_agent)]
            for name, value in told:
                if not value.isprintable():
                    raise errors.Unauthorized(f"header {name}: has characters that cannot be sent")
            self._head = (identity, "".join(f"{name}: {value}\r\n" for name, value in told))
        return self._head[1]

    async def close(self) -> None:
        await self._connections.close()
