# SPDX-License-Identifier: Apache-2.0
"""Requests on the wire: credentials, limits and retries, over a `RequestSender`.

This module knows HTTP and no Kubernetes object. Every failure leaves here as an
error of `client.errors`. Each watch has a connection of its own, so that many
watches cannot starve the requests.
"""

import contextlib
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import cluster_access, decoding, errors, proxies, retry
from refloat.client.connections import NotConnected, Stream
from refloat.client.credentials import Credentials, Identity
from refloat.client.limiter import Limiter
from refloat.client.request_sender import RequestSender
from refloat.client.requests import Request
from refloat.client.response_parser import Answer
from refloat.client.settings import ClientSettings
from refloat.client.tls import Tls

log = logging.getLogger(__name__)

T = TypeVar("T")

# Refloat logs so many different warnings of the server, and no more.
MAX_WARNINGS = 100


class Transport:
    """The connections to one cluster."""

    def __init__(
        self, where: cluster_access.Access, clock: Clock, rand: Rand, settings: ClientSettings
    ) -> None:
        cluster = where.cluster
        self._server = cluster.server
        self._clock = clock
        self._settings = settings
        # Without TLS, everybody on the way could read the credentials.
        self._credentials = Credentials(
            where
            if cluster.is_encrypted
            else cluster_access.Access(cluster, cluster_access.User()),
            clock,
            settings,
        )
        self._sender = RequestSender(
            cluster.server,
            tls=Tls(cluster, clock).context,
            clock=clock,
            user_agent=settings.user_agent,
            connections=settings.connections,
            server_name=cluster.server_name or None,
            proxy=cluster.proxy or proxies.from_environment(cluster.server, os.environ),
        )
        self._limiter = Limiter(clock, qps=settings.qps, burst=settings.burst)
        self._retries = retry.Retries(rand, attempts=settings.attempts)
        self._is_closed = False
        self._warned: set[str] = set()
        self._is_refused = False
        self.date = ""
        """The header `Date` of the last answer, unparsed."""

    async def call(self, request: Request) -> bytearray:
        """The body of a successful answer."""
        attempt = 1
        while True:
            self._check_open()
            try:
                return await self._send(self._exchange, request)
            except errors.ClientError as error:
                seconds = self._retries.wait(
                    error, is_repeatable=request.is_repeatable, attempt=attempt
                )
                if seconds is None:
                    raise
                log.debug("%s: attempt %d: %s; again in %.1f s", request, attempt, error, seconds)
            attempt += 1
            await self._clock.sleep(seconds)

    async def open(self, request: Request) -> Stream:
        """A watch that the server has accepted; tried again only with new credentials."""
        self._check_open()
        return await self._send(self._open, request)

    async def _send(self, send: Callable[[Request, Identity], Awaitable[T]], request: Request) -> T:
        with self._refusals():
            identity = await self._credentials.current()
            try:
                return await send(request, identity)
            except errors.Unauthorized:
                # The server did not carry out a refused request, so each may be sent again.
                renewed = await self._credentials.renewed(identity)
                if renewed is None:
                    raise
            return await send(request, renewed)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Log once that the server refuses the credentials, and once that it accepts them again."""
        try:
            yield
        except errors.Unauthorized as error:
            if not self._is_refused:
                log.error("%s does not accept our credentials; retrying: %s", self._server, error)
            self._is_refused = True
            raise
        if self._is_refused:
            log.warning("%s accepts our credentials again", self._server)
        self._is_refused = False

    async def _exchange(self, request: Request, identity: Identity) -> bytearray:
        await self._limiter.acquire()
        try:
            async with self._clock.timeout(self._settings.request_seconds):
                answer = await self._sender.exchange(request, identity)
        except OSError as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        warning = answer.headers.get("warning")
        if warning and warning not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(warning)
            log.warning("the API server warns: %s", warning)
        self.date = answer.headers.get("date", "")
        if 200 <= answer.status < 300:
            return answer.body
        raise _failure(request, answer)

    async def _open(self, request: Request, identity: Identity) -> Stream:
        await self._limiter.acquire()
        try:
            async with self._clock.timeout(self._settings.request_seconds):
                stream = await self._sender.stream(request, identity)
                if stream.status == 200:
                    return stream
                with contextlib.closing(stream):
                    answer = await stream.rest()
        except OSError as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        raise _failure(request, answer)

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.Unavailable("this client is closed")

    async def close(self) -> None:
        self._is_closed = True
        await self._credentials.close()
        await self._sender.close()


def _failure(request: Request, answer: Answer) -> errors.ClientError:
    header = answer.headers.get("retry-after", "")
    seconds = float(header) if header.isdigit() else None
    return decoding.failure(answer.status, answer.body, what=str(request), retry_after=seconds)


def _broken(request: Request, error: Exception, seconds: float) -> errors.ClientError:
    """What a failure below HTTP means for the request."""
    match error:
        case NotConnected():
            return errors.Unreachable(f"{request}: {error}")
        case TimeoutError():
            return errors.Timeout(f"{request}: no answer within {seconds:g} s")
        case ssl.SSLError():
            return errors.Unavailable(f"{request}: TLS: {error}")
        case _:
            return errors.Unavailable(f"{request}: the connection broke: {error!r}")
