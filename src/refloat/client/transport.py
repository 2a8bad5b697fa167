# SPDX-License-Identifier: Apache-2.0
"""Requests on the wire: connections, TLS, credentials, limits and retries.

Knows HTTP and no Kubernetes object. Every failure leaves here as an error of
`client.errors`. Requests and watches have connections of their own, so that
many watches cannot starve the requests.
"""

import io
import logging
import os
import ssl
from collections.abc import Mapping

import aiohttp
import multidict
import yarl

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import access, decoding, errors, fence, proxies, retry
from refloat.client.credentials import Credentials, Identity
from refloat.client.limiter import Limiter
from refloat.client.requests import JSON, Request
from refloat.client.settings import Settings
from refloat.client.tls import Tls

log = logging.getLogger(__name__)


# Below what servers and balancers keep an idle connection for: a write that
# meets a connection that is just being closed may or may not have happened.
KEEPALIVE_SECONDS = 15.0

# A list of 150,000 pods in one piece; whoever wants more asks for chunks.
MAX_ANSWER_BYTES = 1 << 30

# aiohttp wants to have larger bodies as files.
LARGE_BODY_BYTES = 1024 * 1024

# Distinct warnings of the server that are logged; then no more.
MAX_WARNINGS = 100


class Transport:
    """The connections to one cluster."""

    def __init__(self, where: access.Access, clock: Clock, rand: Rand, settings: Settings) -> None:
        cluster = where.cluster
        self._server = cluster.server
        self._server_name = cluster.server_name or None
        self._proxy = cluster.proxy or proxies.from_environment(cluster.server, os.environ) or None
        self._clock = clock
        self._settings = settings
        # Without TLS anybody on the way could read them.
        self._credentials = Credentials(
            where if cluster.is_encrypted else access.Access(cluster, access.User()),
            clock,
            settings,
        )
        self._tls = Tls(cluster, clock)
        self._limiter = Limiter(clock, qps=settings.qps, burst=settings.burst)
        self._retries = retry.Retries(rand, attempts=settings.attempts)
        self._requests: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._warned: set[str] = set()
        self._headers: tuple[Identity, multidict.CIMultiDict[str]] | None = None

    async def call(self, request: Request) -> bytearray:
        """The body of a successful answer."""
        attempt = 1
        while True:
            self._check_open()
            try:
                return await self._attempt(request)
            except errors.ClientError as error:
                seconds = self._retries.wait(
                    error, is_repeatable=request.is_repeatable, attempt=attempt
                )
                if seconds is None:
                    raise
                log.debug("%s: attempt %d: %s; again in %.1f s", request, attempt, error, seconds)
            attempt += 1
            await self._clock.sleep(seconds)

    async def _attempt(self, request: Request) -> bytearray:
        identity = await self._credentials.current()
        try:
            return await self._exchange(request, identity)
        except errors.Unauthorized:
            # A refused request was not carried out, so that any may be sent anew.
            renewed = await self._credentials.renewed(identity)
            if renewed is None:
                raise
        return await self._exchange(request, renewed)

    async def _exchange(self, request: Request, identity: Identity) -> bytearray:
        await self._limiter.acquire()
        fence.check()
        if self._requests is None:
            self._requests = _session(self._settings.connections)
        try:
            async with (
                self._clock.timeout(self._settings.request_seconds),
                await self._send(self._requests, request, identity) as response,
            ):
                body = await _read(response, request)
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        self._warn(response.headers)
        if 200 <= response.status < 300:
            return body
        raise _failure(request, response, body)

    async def open(self, request: Request) -> aiohttp.ClientResponse:
        """A watch that the server has agreed to; tried once, but for new credentials."""
        self._check_open()
        identity = await self._credentials.current()
        try:
            return await self._open(request, identity)
        except errors.Unauthorized:
            renewed = await self._credentials.renewed(identity)
            if renewed is None:
                raise
        return await self._open(request, renewed)

    async def _open(self, request: Request, identity: Identity) -> aiohttp.ClientResponse:
        await self._limiter.acquire()
        if self._watches is None:
            self._watches = _session(0)
        try:
            async with self._clock.timeout(self._settings.request_seconds):
                response = await self._send(self._watches, request, identity)
                if response.status == 200:
                    return response
                async with response:
                    body = await _read(response, request)
        except (aiohttp.ClientError, OSError) as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        raise _failure(request, response, body)

    async def _send(
        self, session: aiohttp.ClientSession, request: Request, identity: Identity
    ) -> aiohttp.ClientResponse:
        headers = self._common_headers(identity)
        if request.body is not None:
            headers = headers.copy()
            headers["Content-Type"] = request.content_type
        context = self._tls.context(identity)
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

    def _common_headers(self, identity: Identity) -> multidict.CIMultiDict[str]:
        if self._headers is None or self._headers[0] is not identity:
            headers = multidict.CIMultiDict(identity.headers)
            headers["Accept"] = JSON
            # In a cluster's network, compressing costs both sides more than sending.
            headers["Accept-Encoding"] = "identity"
            headers["User-Agent"] = self._settings.user_agent
            self._headers = (identity, headers)
        return self._headers[1]

    def _warn(self, headers: Mapping[str, str]) -> None:
        """Log what the server warns of, each text once."""
        text = headers.get("Warning")
        if text and text not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(text)
            log.warning("the API server warns: %s", text)

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.Unavailable("this client is closed")

    async def close(self) -> None:
        self._is_closed = True
        await self._credentials.close()
        for session in (self._requests, self._watches):
            if session is not None:
                await session.close()


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


async def _read(response: aiohttp.ClientResponse, request: Request) -> bytearray:
    """A body in one piece, and never in two: lists are large."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_ANSWER_BYTES:
            raise errors.Unavailable(f"{request}: the answer is longer than {MAX_ANSWER_BYTES} B")
    return body


def _failure(
    request: Request, response: aiohttp.ClientResponse, body: bytearray
) -> errors.ClientError:
    header = response.headers.get("Retry-After", "")
    seconds = float(header) if header.isdigit() else None
    return decoding.failure(response.status, body, what=str(request), retry_after=seconds)


def _broken(request: Request, error: Exception, seconds: float) -> errors.ClientError:
    """What a failure below HTTP means for the request."""
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            return errors.Unreachable(f"{request}: {error}")
        case TimeoutError():
            return errors.Timeout(f"{request}: no answer within {seconds:g} s")
        case ssl.SSLError():
            return errors.Unavailable(f"{request}: TLS: {error}")
        case _:
            return errors.Unavailable(f"{request}: the connection broke: {error!r}")
