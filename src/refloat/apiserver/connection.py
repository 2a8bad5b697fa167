# SPDX-License-Identifier: Apache-2.0
"""One connection: its deadlines, and the answer to bytes that are no request.

This module bounds what happens below a request: bytes that never become a
request, answers that the client does not read, idle connections. The classes
extend aiohttp's own protocol at the places where the transport calls it. Of the
API they know only the Status that answers a malformed request.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec
from aiohttp import abc, http, http_exceptions, streams, web

from refloat.api import errors
from refloat.apiserver import metrics, target_caches
from refloat.apiserver.limits import Limits
from refloat.base.clock import Clock, Handle

log = logging.getLogger(__name__)

# The key under which a request has a version of HTTP that the server does not speak.
UNSUPPORTED = web.RequestKey("unsupported-version", str)

# The most that waits for a client that does not read, besides the system's own buffers.
WRITE_BUFFER_BYTES = 64 * 1024

# After so many ends of connections the server returns memory to the system. TLS takes 100 KB
# for a connection, in small blocks that the C library does not return by itself.
TRIM_CONNECTIONS = 20

_TOO_NEW = http.HttpVersion(2, 0)

# A token in the place of a method, as the parser quotes what it refused.
_UNKNOWN_METHOD = re.compile(r"b'[A-Za-z-]+ /")


class ServerConnections(web.Server):
    """Makes a `ServerConnection` for each that the listener accepts."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Any],
        *,
        limits: Limits,
        clock: Clock,
        counts: metrics.Metrics,
        trim_soon: Callable[[], object],
    ) -> None:
        """`trim_soon` returns the memory of connections that have ended."""
        super().__init__(handler, handler_cancellation=True)  # a watch ends with its client
        self.limits = limits
        self.clock = clock
        self.counts = counts
        self._trim_soon = trim_soon
        self._ended = 0  # connections since the last trim

    def __call__(self) -> "ServerConnection":
        return ServerConnection(self, self._loop)

    def __len__(self) -> int:
        return len(self._connections)

    def note_end(self) -> None:
        """Note the end of a connection."""
        self._ended += 1
        if self._ended >= TRIM_CONNECTIONS:
            self._ended = 0
            self._trim_soon()

    def _make_request(
        self,
        message: http.RawRequestMessage,
        payload: streams.StreamReader,
        protocol: web.RequestHandler,
        writer: abc.AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        """Note an unsupported version, and answer in version 1.0."""
        version = message.version
        is_spoken_here = http.HttpVersion10 <= version < _TOO_NEW
        if not is_spoken_here:
            message = message._replace(version=http.HttpVersion10, should_close=True)
        request = super()._make_request(message, payload, protocol, writer, task)
        target_caches.clear_after(message.path)
        if not is_spoken_here:
            request[UNSUPPORTED] = f"{version.major}.{version.minor}"
        return request


class ServerConnection(web.RequestHandler):
    """A connection with deadlines."""

    __slots__ = ("_head_bytes", "_head_since", "_head_timer", "_host", "_unread_timer")

    def __init__(self, host: ServerConnections, loop: asyncio.AbstractEventLoop) -> None:
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

    # -- requests that do not come ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._host) >= self._host.limits.connections:
            log.warning("too many connections; one more is refused")
            cast("asyncio.Transport", transport).abort()
            return
        # Above TLS, the loop would otherwise buffer half a megabyte.
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._current_request is not None and self._messages:
            # The library queues the error of a badly framed body as if it were the next
            # request, and the handler would wait for the rest of the body for ever.
            error = getattr(self._messages[-1][0], "exc", None)
            content = self._current_request.content
            if error is not None and not content.is_eof():
                self._messages.pop()
                content.set_exception(error)
                self.close()
        # The next byte may also belong to a body, or follow an answer that is not sent yet.
        awaits_head = self._waiter is not None or self._request_count == 0
        if self._messages or not awaits_head:
            self._head_since = None
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        if self._head_since is None:
            self._await_head()
        if self._head_bytes > self._host.limits.head_bytes:
            self._abort("its head is too large")

    def _await_head(self) -> None:
        self._head_since = self._host.clock.monotonic()
        if self._head_timer is None:
            self._check_head()

    def _check_head(self) -> None:
        """Check the deadline: requests do not cancel the timer, because that costs more."""
        self._head_timer = None
        since = self._head_since
        if since is None or self.transport is None:
            return
        due = since + self._host.limits.head_seconds
        if self._host.clock.monotonic() < due:
            self._head_timer = self._host.clock.call_at(due, self._check_head)
        else:
            self._abort("no request came in time")

    # -- answers that the client does not read -----------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        limits, clock = self._host.limits, self._host.clock
        size = self.transport.get_write_buffer_size() if self.transport else 0
        allowed = limits.unread_seconds + size / limits.unread_bytes_per_second
        due = clock.monotonic() + allowed
        abort = partial(self._abort, "its client does not read")
        self._unread_timer = clock.call_at(due, abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel(self._unread_timer)

    # -- ends ------------------------------------------------------------

    def connection_lost(self, exc: BaseException | None) -> None:
        self._cancel(self._head_timer)
        self._cancel(self._unread_timer)
        if self._messages:  # heads that become no requests
            target_caches.clear()
        super().connection_lost(exc)
        self._host.note_end()

    @staticmethod
    def _cancel(timer: Handle | None) -> None:
        if timer is not None:
            timer.cancel()

    def _abort(self, why: str) -> None:
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
        """Answer a malformed request, which the library would log as an error of the server."""
        if not isinstance(exc, http_exceptions.HttpProcessingError):
            raise ConnectionError("the answer broke off") from exc  # ends the connection
        target_caches.clear()  # the target may be the malformed part
        error = malformed(exc, message or "")
        self._host.counts.done(metrics.MALFORMED, error.code, 0.0)
        log.debug("malformed request", extra={"fields": {"message": error.message}})
        body = msgspec.json.encode(error.status()) + b"\n"
        response = web.Response(body=body, status=error.code, content_type="application/json")
        response.force_close()
        return response


def malformed(error: BaseException | None, message: str) -> errors.StatusError:
    """The answer to bytes that are no HTTP request."""
    if isinstance(error, http_exceptions.LineTooLong):
        text = "the request line or a header field is too large"
        return errors.StatusError(431, "RequestHeaderFieldsTooLarge", text)
    if isinstance(error, http_exceptions.BadHttpMethod) and _UNKNOWN_METHOD.search(message):
        return errors.method_not_supported()
    what = message.partition("\n")[0].rstrip(":.")
    return errors.bad_request(f"malformed HTTP request: {what}")
