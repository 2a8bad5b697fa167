# SPDX-License-Identifier: Apache-2.0
"""The HTTP face: from a request to a verb, and from its outcome to an answer.

Whatever goes wrong ends here as a Status body; a bug in a handler is a logged
500 and never more than that.
"""

import asyncio
import logging
import ssl

import msgspec
from aiohttp import hdrs, web

from refloat.api import errors
from refloat.apiserver import authorization, documents, options, targets
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.identity import Identity
from refloat.apiserver.resources import Resources
from refloat.base.rand import Rand

log = logging.getLogger(__name__)

# Between two requests on one connection; kubectl and clients reconnect at will.
KEEPALIVE_SECONDS = 90.0

# How long answers in progress may take once the server is told to stop.
SHUTDOWN_SECONDS = 2.0


class Server:
    """Serves the API on one address until it is closed."""

    def __init__(
        self,
        resources: Resources,
        pages: documents.Documents,
        tokens: Tokens,
        *,
        rand: Rand,
    ) -> None:
        self._resources = resources
        self._documents = pages
        self._tokens = tokens
        self._rand = rand
        self._runner: web.ServerRunner | None = None

    async def start(self, address: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        server = web.Server(
            self.handle,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            handler_cancellation=True,  # a watch ends when its client is gone
        )
        self._runner = web.ServerRunner(
            server, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            address,
            port,
            ssl_context=tls,
            reuse_address=True,
            backlog=1024,
        )
        await site.start()
        bound: tuple[str, int] = self._runner.addresses[0]
        return bound[1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; never raises but for a connection that is gone."""
        exchange = Exchange(request, request_id=self._rand.uid())
        try:
            return await self._serve(exchange)
        except errors.StatusError as error:
            return self._refused(exchange, error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception(
                "request failed",
                extra={"fields": {"id": exchange.id, "path": request.rel_url.raw_path}},
            )
            return self._refused(exchange, errors.internal("see the server's log"))

    async def _serve(self, exchange: Exchange) -> web.StreamResponse:
        user = self._tokens.authenticate(exchange.request.headers.get(hdrs.AUTHORIZATION))
        path = exchange.path
        target = targets.parse(path)
        if target is None:
            authorization.check_path(user, exchange.request.method, path)
            return await self._documents.serve(exchange)
        return await self._serve_resource(exchange, user, target)

    async def _serve_resource(
        self, exchange: Exchange, user: Identity, target: targets.Target
    ) -> web.StreamResponse:
        watch = options.flag(exchange.query, "watch")
        verb = targets.verb(exchange.request.method, target, watch=watch)
        authorization.check(user, verb, target)
        return await self._resources.serve(exchange, user, verb, target)

    def _refused(self, exchange: Exchange, error: errors.StatusError) -> web.Response:
        headers = {}
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        body = msgspec.json.encode(error.status())
        return exchange.answer(body, status=error.code, headers=headers, warnings=exchange.warnings)
