# SPDX-License-Identifier: Apache-2.0
"""A watch on the wire: turns a stream of bytes into events.

Only complete lines count. After `Unavailable` or `Timeout` the reader resumes
the watch; after `Expired` the reader lists anew. If the server ends the stream
between two lines, the watch ends without an error.
"""

import asyncio
from collections import deque
from typing import Generic, TypeVar

from refloat.base.clock import Clock
from refloat.client import decoding, errors
from refloat.client.connections import Stream
from refloat.client.contract import Kind, WatchEvent
from refloat.client.requests import Request
from refloat.client.transport import Transport

T = TypeVar("T")

# Objects of Kubernetes are below 3 MB; this is not one.
MAX_LINE_BYTES = 32 * 1024 * 1024


class Closed(Exception):
    """Wakes a reader whose watch was closed; never leaves this module."""


class Lines:
    """Splits pieces into lines."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.length = 0  # of the unfinished line so far

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        lines = piece.split(b"\n")
        last = lines.pop()
        if lines and self._parts:
            lines[0] = b"".join((*self._parts, lines[0]))
            self._parts.clear()
            self.length = 0
        if last:
            self._parts.append(last)
            self.length += len(last)
        return [line for line in lines if line]

    def rest(self) -> bytes:
        return b"".join(self._parts)


class HttpWatch(Generic[T]):
    """One watch; the request goes out with the first read."""

    def __init__(
        self, transport: Transport, request: Request, kind: Kind[T], clock: Clock, idle: float
    ) -> None:
        self._transport = transport
        self._request = request
        self._kind = kind
        self._clock = clock
        self._idle = idle
        self._lines = Lines()
        self._ready: deque[bytes] = deque()
        self._opening: asyncio.Task[Stream] | None = None
        self._stream: Stream | None = None
        self._is_over = False

    def __aiter__(self) -> "HttpWatch[T]":
        return self

    async def __anext__(self) -> WatchEvent[T]:
        try:
            while not self._ready:
                if self._is_over:
                    raise StopAsyncIteration
                await self._more()
            return decoding.event(self._kind, self._ready.popleft())
        except Closed:
            raise StopAsyncIteration from None
        except errors.ClientError:
            self._ready.clear()  # after a gap, what follows would mislead
            self._end()
            raise

    async def _more(self) -> None:
        """Wait for the next piece of the stream."""
        stream = self._stream or await self._open()
        try:
            async with self._clock.timeout(self._idle):
                piece = await stream.read()
        except TimeoutError as error:
            raise errors.Timeout(f"{self._request}: nothing for {self._idle:g} s") from error
        except OSError as error:
            if self._is_over:
                raise Closed from None
            raise errors.Unavailable(f"{self._request}: {self._cut()}: {error!r}") from error
        self._ready.extend(self._lines.feed(piece))
        if self._lines.length > MAX_LINE_BYTES:
            raise errors.Unavailable(f"{self._request}: a line longer than {MAX_LINE_BYTES} B")
        if not piece:
            self._end()
            if self._lines.length:
                raise errors.Unavailable(f"{self._request}: {self._cut()}")

    def _cut(self) -> str:
        rest = self._lines.rest()
        return f"the watch was cut in the line {decoding.shown(rest)}" if rest else "it was cut"

    async def _open(self) -> Stream:
        """Send the request, in a task of its own that `aclose` can end."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(
                self._transport.open(self._request), name="watch-open"
            )
            self._opening.add_done_callback(self._opened)
        try:
            return await self._opening
        except asyncio.CancelledError:
            if self._is_over:
                raise Closed from None
            raise
        finally:
            self._opening = None

    def _opened(self, opening: asyncio.Task[Stream]) -> None:
        """Keep the stream, even if the reader was cancelled at this moment."""
        if opening.cancelled() or opening.exception() is not None:
            return
        self._stream = opening.result()
        if self._is_over:
            self._stream.close()

    def _end(self) -> None:
        self._is_over = True
        if self._stream is not None:
            self._stream.close()

    async def aclose(self) -> None:
        """End the watch at once, also for a waiting reader."""
        self._ready.clear()
        self._is_over = True
        if self._stream is not None:
            self._stream.close()
        elif self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
