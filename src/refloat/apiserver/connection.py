# SPDX-License-Identifier: Apache-2.0
"""One connection: how long it may take its time, and what it is told when it errs.

This bounds what happens below a request: bytes that never become one, answers
that nobody reads, connections that nobody uses. It extends the library's own
protocol at the places where the transport calls it, and knows nothing of the
API but the Status that a malformed request is answered with.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec
from aiohttp import abc, http, http_exceptions, streams, web

from refloat.api import errors
from refloat.apiserver.limits import Limits
from refloat.base.clock import Clock, Handle

log = logging.getLogger(__name__)

# Where a request notes a version of HTTP that is not spoken here.
UNSUPPORTED = web.RequestKey("unsupported-version", str)

# What lies before a client that does not read, besides what the system holds.
WRITE_BUFFER_BYTES = 64 * 1024

_TOO_NEW = http.HttpVersion(2, 0)

# A token in the place of a method, as the parser quotes what it refused.
_UNKNOWN_METHOD = re.compile(r"b'[A-Za-z-]+ /")


class Connections(web.Server):
    """Makes a `Connection` of each that is accepted."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Any],
        *,
        limits: Limits,
        clock: Clock,
        refused: Callable[[errors.StatusError], object],
    ) -> None:
        """`refused` is told of answers to what never became a request."""
        super().__init__(handler, handler_cancellation=True)  # a watch ends with its client
        self.limits = limits
        self.clock = clock
        self.refused = refused

    def __call__(self) -> "Connection":
        return Connection(self, self._loop)

    def __len__(self) -> int:
        return len(self._connections)

    def _make_request(
        self,
        message: http.RawRequestMessage,
        payload: streams.StreamReader,
        protocol: web.RequestHandler,
        writer: abc.AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        """Note a version that nobody can be answered in, and answer in another."""
        spoken = message.version
        if http.HttpVersion10 <= spoken < _TOO_NEW:
            return super()._make_request(message, payload, protocol, writer, task)
        message = message._replace(version=http.HttpVersion10, should_close=True)
        request = super()._make_request(message, payload, protocol, writer, task)
        request[UNSUPPORTED] = f"{spoken.major}.{spoken.minor}"
        return request


class Connection(web.RequestHandler):
    """A connection with deadlines."""

    __slots__ = ("_head_bytes", "_head_since", "_head_timer", "_host", "_unread_timer")

    def __init__(self, host: Connections, loop: asyncio.AbstractEventLoop) -> None:
        limits = host.limits
        super().__init__(
            host,
            loop=loop,
            keepalive_timeout=limits.idle_seconds,
            access_log=None,  # type: ignore[arg-type] # none, as the library documents it
            logger=log,
            max_line_size=limits.head_bytes,
            max_field_size=limits.head_bytes,
            max_headers=limits.headers,
            lingering_time=limits.linger_seconds,
            auto_decompress=False,  # Kubernetes reads bodies as they are
        )
        self._host = host
        self._head_bytes = 0
        self._head_since: float | None = None  # a request is awaited, or has half come
        self._head_timer: Handle | None = None
        self._unread_timer: Handle | None = None

    # -- what has not come yet -------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._host) >= self._host.limits.connections:
            log.warning("too many connections; one more is refused")
            cast("asyncio.Transport", transport).abort()
            return
        # Above TLS, the loop would take half a megabyte from us before it says stop.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._current_request is not None and self._messages:
            self._check_body(self._current_request)
        if self._messages or not self._awaits_head():
            self._head_since = None
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_since is None:
            self._await_head()
        if self._head_bytes > self._host.limits.head_bytes:
            self._give_up("its head is too large")

    def _check_body(self, request: web.BaseRequest) -> None:
        """Tell whoever waits for a body that it is framed wrongly.

        The library queues the mistake as if it were the next request, and the
        rest of the body would be waited for in vain.
        """
        wrong = getattr(self._messages[-1][0], "exc", None)
        if wrong is not None and not request.content.is_eof():
            self._messages.pop()
            request.content.set_exception(wrong)
            self.close()

    def _awaits_head(self) -> bool:
        """Is the next byte of a head, and not of a body or after an answer that is not read?"""
        return self._waiter is not None or self._request_count == 0

    def _await_head(self) -> None:
        self._head_since = self._host.clock.monotonic()
        if self._head_timer is None:
            self._watch_head(self._head_since)

    def _watch_head(self, since: float) -> None:
        due = since + self._host.limits.head_seconds
        self._head_timer = self._host.clock.call_at(due, self._check_head)

    def _check_head(self) -> None:
        """A timer is not taken back with each request; it finds out whether it still matters."""
        self._head_timer = None
        since = self._head_since
        if since is None or self.transport is None:
            return
        if self._host.clock.monotonic() - since < self._host.limits.head_seconds:
            self._watch_head(since)
        else:
            self._give_up("no request came in time")

    # -- what nobody reads -----------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        limits, clock = self._host.limits, self._host.clock
        held = self.transport.get_write_buffer_size() if self.transport else 0
        allowed = limits.unread_seconds + held / limits.unread_bytes_per_second
        self._unread_timer = clock.call_at(clock.monotonic() + allowed, self._unread)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._unread_timer)

    def _unread(self) -> None:
        self._give_up("its client does not read")

    # -- ends ------------------------------------------------------------

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel(self._head_timer)
        self._cancel(self._unread_timer)
        super().connection_lost(exc)

    @staticmethod
    def _cancel(timer: Handle | None) -> None:
        if timer is not None:
            timer.cancel()

    def _give_up(self, why: str) -> None:
        log.debug("a connection is cut off: %s", why)
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed; the library logs such as errors of the server."""
        if not isinstance(exc, http_exceptions.HttpProcessingError):
            raise ConnectionError("the answer broke off") from exc  # ends the connection
        error = malformed(exc, message or "")
        self._host.refused(error)
        body = msgspec.json.encode(error.status()) + b"\n"
        response = web.Response(body=body, status=error.code, content_type="application/json")
        response.force_close()
        return response


def malformed(error: BaseException | None, message: str) -> errors.StatusError:
    """What a client is told that sent no HTTP request."""
    if isinstance(error, http_exceptions.LineTooLong):
        text = "the request line or a header field is too large"
        return errors.StatusError(431, "RequestHeaderFieldsTooLarge", text)
    if isinstance(error, http_exceptions.BadHttpMethod) and _UNKNOWN_METHOD.search(message):
        return errors.method_not_supported()
    what = message.partition("\n")[0].rstrip(":.")
    return errors.bad_request(f"malformed HTTP request: {what}")
