# SPDX-License-Identifier: Apache-2.0
"""The HTTP face: from a request to a verb, and from its outcome to an answer.

Whatever goes wrong ends here as a Status body; a bug in a handler is a logged
500 and never more than that. What becomes of bytes that are no request is in
`connection`, how much there may be of everything in `limits`.
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
    documents,
    forms,
    impersonation,
    limits,
    metrics,
    options,
    targets,
)
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.authorization import Authorizer, Refused
from refloat.apiserver.connection import Connections
from refloat.apiserver.exchange import Exchange, Shares
from refloat.apiserver.fairness import FairShare, Turns
from refloat.apiserver.identity import ANONYMOUS, Identity
from refloat.apiserver.resources import Resources
from refloat.apiserver.reviews import Reviews
from refloat.base.clock import Clock
from refloat.base.rand import Rand

log = logging.getLogger(__name__)

# Connections that the system holds until they are accepted.
BACKLOG = 1024

# Noted for requests whose client left before there was an answer; nobody sees it.
CLIENT_GONE = 499


class Server:
    """Serves the API on one address until it is closed."""

    def __init__(
        self,
        resources: Resources,
        pages: documents.Documents,
        tokens: Tokens,
        authorizer: Authorizer,
        *,
        clock: Clock,
        rand: Rand,
        counts: metrics.Metrics,
        bounds: limits.Limits | None = None,
    ) -> None:
        self._resources = resources
        self._documents = pages
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
        self._connections: Connections | None = None
        self._listener: asyncio.Server | None = None

    async def start(self, address: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        connections = Connections(
            self.handle, limits=self._limits, clock=self._clock, refused=self._malformed
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
        """Accept nothing more, let answers in progress end, and cut off the rest."""
        if self._listener is None or self._connections is None:
            return
        self._listener.close()
        self._connections.pre_shutdown()
        await self._clock.sleep(0)  # connections that wait for a request end here
        await self._connections.shutdown(self._limits.shutdown_seconds)
        self._shares.close()

    def _malformed(self, error: errors.StatusError) -> None:
        self._metrics.done(metrics.MALFORMED, error.code, 0.0)
        log.debug("malformed request", extra={"fields": {"message": error.message}})

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises but for a connection that is gone."""
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
            if request.protocol.writing_paused:  # what was answered before is not read yet
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
            if exchange.streaming:  # nothing that could still be said would be understood
                raise ConnectionAbortedError("the answer broke off") from bug
            return self._refused(exchange, errors.internal("see the server's log"))

    async def _serve(self, exchange: Exchange) -> web.StreamResponse:
        exchange.read_head()
        target = targets.parse(exchange.path)
        user = await self._authenticated(exchange, target)
        user = self._authorized(exchange, user)
        if target is None:
            return await self._serve_path(exchange)
        return await self._serve_resource(exchange, user, target)

    async def _authenticated(self, exchange: Exchange, target: targets.Target | None) -> Identity:
        """The user, when it is its turn; raises 401."""
        try:
            user = self._tokens.authenticate(exchange.request.headers.get(hdrs.AUTHORIZATION))
        except errors.StatusError:
            await self._turns.begin("")
            raise
        exchange.user = user.name
        if not limits.may_be_urgent(user, target):
            await self._turns.begin(user.name)
        return user

    def _authorized(self, exchange: Exchange, user: Identity) -> Identity:
        """The user, once it is known that it may make this request; raises 403.

        Before the address is looked at: who may not ask for something is not
        told whether it is there.
        """
        request = exchange.request
        header = request.headers.get(hdrs.AUTHORIZATION)
        if user is ANONYMOUS and authentication.is_spaced(header):
            exchange.warnings.append(authentication.SPACED)
        wish = impersonation.wished(request.headers)
        if wish is not None:
            asked = attributes.of_request(request.method, exchange.path, exchange.query)
            user = impersonation.become(user, wish, asked, self._authorizer)
        self._authorizer.check_request(user, request.method, exchange.path, exchange.query)
        return user

    async def _serve_path(self, exchange: Exchange) -> web.StreamResponse:
        if exchange.path.startswith(limits.UNBOUNDED_PATHS):
            return await self._documents.serve(exchange)
        user = exchange.user
        await self.in_flight.enter("readOnly", user, self._clock)
        try:
            return await self._documents.serve(exchange)
        finally:
            self.in_flight.leave("readOnly", user)

    async def _serve_resource(
        self, exchange: Exchange, user: Identity, target: targets.Target
    ) -> web.StreamResponse:
        watch = options.flag(exchange.query, "watch")
        verb = targets.verb(exchange.request.method, target, watch=watch)
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
            if self._reviews.takes(target):
                return await self._reviews.serve(exchange, user, target)
            return await self._resources.serve(exchange, user, verb, target)
        finally:
            self.in_flight.leave(kind, user.name)
            if open_watches is not None:
                open_watches.dec()

    def _refused(self, exchange: Exchange, error: errors.StatusError) -> web.Response:
        if exchange.form.shape:
            exchange.form = forms.PLAIN  # a refusal has no other shape, nor then another encoding
        headers = {}
        if isinstance(error, Refused):
            headers["X-Content-Type-Options"] = "nosniff"
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        body = msgspec.json.encode(error.status())
        return exchange.answer(body, status=error.code, headers=headers, warnings=exchange.warnings)

    def _note(self, exchange: Exchange, code: int, seconds: float) -> None:
        """Count a request, and log it: writes for everybody, reads for who looks closely."""
        if exchange.streaming and code == CLIENT_GONE:
            code = 200  # a client that has seen enough of a stream just leaves
        labels = exchange.labels or metrics.of_path(exchange.request.method, exchange.path)
        self._metrics.done(labels, code, seconds)
        level = logging.INFO if exchange.mutating else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(
                level, "request", extra={"fields": _fields(exchange, labels.verb, code, seconds)}
            )


def _fields(exchange: Exchange, verb: str, code: int, seconds: float) -> dict[str, object]:
    return {
        "id": exchange.id,
        "user": exchange.user,
        "verb": verb,
        "path": exchange.request.raw_path[:1024],
        "code": code,
        "ms": round(seconds * 1000, 2),
    }
