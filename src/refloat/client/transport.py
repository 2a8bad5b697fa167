# SPDX-License-Identifier: Apache-2.0
"""Requests on the wire: credentials, limits and retries, over a `carrier`.

Knows HTTP and no Kubernetes object. Every failure leaves here as an error of
`client.errors`. Requests and watches have connections of their own, so that
many watches cannot starve the requests.
"""

import contextlib
import logging
import os
import ssl
from collections.abc import Iterator, Mapping

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import access, decoding, errors, proxies, retry
from refloat.client.answers import Answer
from refloat.client.carrier import Carrier, NotConnected, Stream
from refloat.client.credentials import Credentials, Identity
from refloat.client.direct import Direct
from refloat.client.limiter import Limiter
from refloat.client.requests import Request
from refloat.client.settings import Settings
from refloat.client.tls import Tls

log = logging.getLogger(__name__)

# Distinct warnings of the server that are logged; then no more.
MAX_WARNINGS = 100


class Transport:
    """The connections to one cluster."""

    def __init__(self, where: access.Access, clock: Clock, rand: Rand, settings: Settings) -> None:
        cluster = where.cluster
        self._server = cluster.server
        self._cluster = cluster
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
        self._carrier: Carrier | None = None  # from the first request on: it belongs to a loop
        self._is_closed = False
        self._warned: set[str] = set()
        self._is_refused = False
        self.date = ""
        """The header `Date` of the last answer, as it came."""

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
        with self._standing():
            identity = await self._credentials.current()
            try:
                return await self._exchange(request, identity)
            except errors.Unauthorized:
                # A refused request was not carried out, so that any may be sent anew.
                renewed = await self._credentials.renewed(identity)
                if renewed is None:
                    raise
            return await self._exchange(request, renewed)

    @contextlib.contextmanager
    def _standing(self) -> Iterator[None]:
        """Say once that credentials are refused, for all who ask meanwhile, and once that they
        are accepted again."""
        try:
            yield
        except errors.Unauthorized as error:
            if not self._is_refused:
                text = "%s does not accept our credentials, and is asked again until it does: %s"
                log.error(text, self._server, error)
            self._is_refused = True
            raise
        if self._is_refused:
            log.warning("%s accepts our credentials again", self._server)
        self._is_refused = False

    async def _exchange(self, request: Request, identity: Identity) -> bytearray:
        await self._limiter.acquire()
        try:
            async with self._clock.timeout(self._settings.request_seconds):
                answer = await self._carry().exchange(request, identity)
        except OSError as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        self._warn(answer.headers)
        self.date = answer.headers.get("date", "")
        if 200 <= answer.status < 300:
            return answer.body
        raise _failure(request, answer)

    def _carry(self) -> Carrier:
        if self._carrier is None:
            server, name = self._server, self._cluster.server_name or None
            proxy = self._cluster.proxy or proxies.from_environment(server, os.environ)
            if proxy:
                # Ten megabytes that only this needs.
                from refloat.client.proxied import Proxied  # noqa: PLC0415

                self._carrier = Proxied(
                    server, proxy, server_name=name, tls=self._tls, settings=self._settings
                )
            else:
                self._carrier = Direct(
                    server,
                    server_name=name,
                    tls=self._tls,
                    clock=self._clock,
                    settings=self._settings,
                )
        return self._carrier

    async def open(self, request: Request) -> Stream:
        """A watch that the server has agreed to; tried once, but for new credentials."""
        self._check_open()
        with self._standing():
            identity = await self._credentials.current()
            try:
                return await self._open(request, identity)
            except errors.Unauthorized:
                renewed = await self._credentials.renewed(identity)
                if renewed is None:
                    raise
            return await self._open(request, renewed)

    async def _open(self, request: Request, identity: Identity) -> Stream:
        await self._limiter.acquire()
        try:
            async with self._clock.timeout(self._settings.request_seconds):
                stream = await self._carry().stream(request, identity)
                if stream.status == 200:
                    return stream
                with contextlib.closing(stream):
                    answer = await stream.rest()
        except OSError as error:
            raise _broken(request, error, self._settings.request_seconds) from error
        raise _failure(request, answer)

    def _warn(self, headers: Mapping[str, str]) -> None:
        """Log what the server warns of, each text once."""
        text = headers.get("warning")
        if text and text not in self._warned and len(self._warned) < MAX_WARNINGS:
            self._warned.add(text)
            log.warning("the API server warns: %s", text)

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.Unavailable("this client is closed")

    async def close(self) -> None:
        self._is_closed = True
        await self._credentials.close()
        if self._carrier is not None:
            await self._carrier.close()


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
