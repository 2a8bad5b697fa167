# SPDX-License-Identifier: Apache-2.0
"""Requests through a proxy, by aiohttp; nobody else needs it, so it is imported for this only."""

import io

import aiohttp
import yarl

from refloat.client import carrier, fence
from refloat.client.answers import MAX_BODY_BYTES, Answer
from refloat.client.carrier import Broken, NotConnected
from refloat.client.connections import KEEPALIVE_SECONDS
from refloat.client.credentials import Identity
from refloat.client.requests import Request
from refloat.client.settings import Settings
from refloat.client.tls import Tls

# aiohttp wants to have larger bodies as files.
LARGE_BODY_BYTES = 1024 * 1024


class ProxiedStream:
    """An answer of aiohttp's."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    @property
    def status(self) -> int | None:
        return self._response.status

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise Broken(repr(error)) from error

    async def rest(self) -> Answer:
        """The body in one piece, and never in two: lists are large."""
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise Broken(f"the answer is longer than {MAX_BODY_BYTES} B")
        headers = {name.lower(): value for name, value in self._response.headers.items()}
        return Answer(self._response.status, headers, body)

    def close(self) -> None:
        self._response.content.set_exception(Broken("it was closed"))
        self._response.close()


class Proxied:
    """A `Carrier` through one proxy. Watches have connections of their own: they starve nobody."""

    def __init__(
        self, server: str, proxy: str, *, server_name: str | None, tls: Tls, settings: Settings
    ) -> None:
        self._server, self._proxy = server, proxy
        self._server_name = server_name
        self._tls = tls
        self._user_agent = settings.user_agent
        self._requests = _session(settings.connections)
        self._watches = _session(0)

    async def exchange(self, request: Request, identity: Identity) -> Answer:
        fence.check()
        response = await self._send(self._requests, request, identity)
        async with response:
            return await ProxiedStream(response).rest()

    async def stream(self, request: Request, identity: Identity) -> ProxiedStream:
        return ProxiedStream(await self._send(self._watches, request, identity))

    async def _send(
        self, session: aiohttp.ClientSession, request: Request, identity: Identity
    ) -> aiohttp.ClientResponse:
        headers = carrier.headers(identity, self._user_agent)
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        context = self._tls.context(identity)
        try:
            return await session.request(
                request.method,
                yarl.URL(f"{self._server}{request.path}", encoded=True),
                data=_payload(request.body),
                headers=headers,
                ssl=context if context is not None else True,
                server_hostname=self._server_name,
                proxy=self._proxy,
                allow_redirects=False,  # a token is for one server only
            )
        except (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError) as error:
            raise NotConnected(str(error)) from error
        except aiohttp.ClientError as error:
            raise Broken(repr(error)) from error

    async def close(self) -> None:
        await self._requests.close()
        await self._watches.close()


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body is not None and len(body) > LARGE_BODY_BYTES else body


def _session(connections: int) -> aiohttp.ClientSession:
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=KEEPALIVE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),  # the injected clock's business
        auto_decompress=True,
    )
    # What may be sent twice is decided in `retry`, not by the method alone.
    session._retry_connection = False  # noqa: SLF001 - it has no public switch
    return session
