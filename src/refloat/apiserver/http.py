# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: turns a request into a verb, and the outcome into an answer.

Every error ends here as a Status body. A bug in a handler becomes a logged 500.
`connection` handles bytes that are no request; `limits` has the bounds.
"""

import asyncio
import logging
import ssl

import msgspec
from aiohttp import hdrs, web

from refloat.api import errors
from refloat.apiserver import (
    attributes,
    authentication,
    impersonation,
    limits,
    metrics,
    negotiation,
    nonresource,
    options,
    routes,
)
from refloat.apiserver.access_reviews import Reviews
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.authorization import AccessDenied, Authorizer
from refloat.apiserver.connection import ServerConnections
from refloat.apiserver.fairness import FairShare, Turns
from refloat.apiserver.http_request import Exchange, Shares
from refloat.apiserver.identity import ANONYMOUS, Identity
from refloat.apiserver.resources import ResourceHandlers
from refloat.base.clock import Clock
from refloat.base.rand import Rand

log = logging.getLogger(__name__)

# ServerConnections that wait in the kernel until the server accepts them.
BACKLOG = 1024

# The code in metrics and logs if the client left before the answer; no client gets it.
CLIENT_GONE = 499


class HttpServer:
    """Serves the API on one address until `close`."""

    def __init__(
        self,
        resources: ResourceHandlers,
        documents: nonresource.NonResourceHandlers,
        tokens: Tokens,
        authorizer: Authorizer,
        *,
        clock: Clock,
        rand: Rand,
        counts: metrics.Metrics,
        bounds: limits.Limits | None = None,
    ) -> None:
        self._resources = resources
        self._documents = documents
        self._tokens = tokens
        self._authorizer = authorizer
        self._reviews = Reviews(authorizer, clock)
        self._clock = clock
        self._rand = rand
        self._metrics = counts
        self._limits = bounds or limits.Limits()
        self.in_flight = limits.InFlight(self._limits)
        self._shares = Shares(self._limits)
        self._turns = Turns(self._limits.requests_per_turn)
        self._urgent = FairShare(
            self._limits.connections, per_user=self._limits.urgent_per_node, waiting=0
        )
        counts.read_in_flight(self.in_flight)
        self._connections: ServerConnections | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, address: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        connections = ServerConnections(
            self.handle,
            limits=self._limits,
            clock=self._clock,
            counts=self._metrics,
            trim_soon=self._shares.worker.trim_soon,
        )
        self._listener = await asyncio.get_running_loop().create_server(
            connections,
            address,
            port,
            ssl=tls,
            ssl_handshake_timeout=self._limits.handshake_seconds if tls else None,
            reuse_address=True,
            backlog=BACKLOG,
        )
        self._connections = connections
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """Stop to accept connections, give answers in progress some time, and cut off the rest."""
        if self._listener is None or self._connections is None:
            return
        self._listener.close()
        self._connections.pre_shutdown()
        await self._clock.sleep(0)  # connections that wait for a request end here
        await self._connections.shutdown(self._limits.shutdown_seconds)
        self._shares.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; raises only if the connection is lost."""
        started = self._clock.monotonic()
        exchange = Exchange(
            request,
            request_id=self._rand.uid(),
            clock=self._clock,
            bounds=self._limits,
            shares=self._shares,
        )
        code = CLIENT_GONE
        try:
            if request.protocol.writing_paused:  # the client has not read earlier answers
                await request.writer.drain()
            response = await self._answer(exchange)
            code = response.status
            if isinstance(response, web.Response):
                response = await exchange.send(response)
            return response
        finally:
            exchange.close()
            self._note(exchange, code, self._clock.monotonic() - started)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        try:
            return await self._serve(exchange)
        except errors.StatusError as error:
            return self._refused(exchange, error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as bug:
            fields = {"id": exchange.id, "path": exchange.request.raw_path[:1024]}
            log.exception("request failed", extra={"fields": fields})
            if exchange.streaming:  # no further answer can follow
                raise ConnectionAbortedError("the answer broke off") from bug
            return self._refused(exchange, errors.internal("see the server's log"))

    async def _serve(self, exchange: Exchange) -> web.StreamResponse:
        exchange.parse_target()
        target = routes.parse(exchange.path)
        user = await self._authenticated(exchange, target)
        request = exchange.request
        if user is ANONYMOUS and authentication.is_spaced(request.headers.get(hdrs.AUTHORIZATION)):
            exchange.warnings.append(authentication.SPACED)
        other = impersonation.requested(request.headers)
        if other is not None:
            action = attributes.of_request(request.method, exchange.path, exchange.query)
            user = impersonation.impersonate(user, other, action, self._authorizer)
        # This comes before the server looks at the address, so that a user without the
        # right cannot find out what exists.
        self._authorizer.check_request(user, request.method, exchange.path, exchange.query)
        if target is not None:
            return await self._serve_resource(exchange, user, target)
        if exchange.path.startswith(limits.UNBOUNDED_PATHS):
            return await self._documents.serve(exchange)
        name = exchange.user
        await self.in_flight.enter("readOnly", name, self._clock)
        try:
            return await self._documents.serve(exchange)
        finally:
            self.in_flight.leave("readOnly", name)

    async def _authenticated(self, exchange: Exchange, target: routes.Target | None) -> Identity:
        """The user, once the request may begin; raises 401."""
        try:
            user = self._tokens.authenticate(exchange.request.headers.get(hdrs.AUTHORIZATION))
        except errors.StatusError:
            await self._turns.begin("")
            raise
        exchange.user = user.name
        if not limits.may_be_urgent(user, target):
            await self._turns.begin(user.name)
        return user

    async def _serve_resource(
        self, exchange: Exchange, user: Identity, target: routes.Target
    ) -> web.StreamResponse:
        watch = options.flag(exchange.query, "watch")
        verb = routes.verb(exchange.request.method, target, watch=watch)
        exchange.labels = metrics.of_target(target, verb)
        exchange.mutating = verb not in ("get", "list", "watch")
        # A log may be followed for as long as a watch.
        kind = "watch" if target.subresource == "log" else limits.kind_of(verb)
        if limits.is_urgent(user, target, verb) and self._urgent.try_take(user.name):
            exchange.urgent = True
            try:
                return await self._resources.serve(exchange, user, verb, target)
            finally:
                self._urgent.give(user.name)
        await self.in_flight.enter(kind, user.name, self._clock)
        open_watches = self._metrics.watching(exchange.labels) if kind == "watch" else None
        if open_watches is not None:
            open_watches.inc()
        try:
            if self._reviews.handles(target):
                return await self._reviews.serve(exchange, user, target)
            return await self._resources.serve(exchange, user, verb, target)
        finally:
            self.in_flight.leave(kind, user.name)
            if open_watches is not None:
                open_watches.dec()

    def _refused(self, exchange: Exchange, error: errors.StatusError) -> web.Response:
        if exchange.form.shape:
            exchange.form = negotiation.PLAIN  # errors have no other shape
        headers = {}
        if isinstance(error, AccessDenied):
            headers["X-Content-Type-Options"] = "nosniff"
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        body = msgspec.json.encode(error.status())
        return exchange.answer(body, status=error.code, headers=headers, warnings=exchange.warnings)

    def _note(self, exchange: Exchange, code: int, seconds: float) -> None:
        """Count and log a request: writes at level info, reads at level debug."""
        if exchange.streaming and code == CLIENT_GONE:
            code = 200  # clients end a stream by leaving
        labels = exchange.labels or metrics.of_path(exchange.request.method, exchange.path)
        self._metrics.done(labels, code, seconds)
        level = logging.INFO if exchange.mutating else logging.DEBUG
        if log.isEnabledFor(level):
            fields = {
                "id": exchange.id,
                "user": exchange.user,
                "verb": labels.verb,
                "path": exchange.request.raw_path[:1024],
                "code": code,
                "ms": round(seconds * 1000, 2),
            }
            log.log(level, "request", extra={"fields": fields})
