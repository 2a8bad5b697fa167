# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON over a socket that is never waited for.

A request is an object with `id` and `op`; its answer has the same `id` and
either `ok` or `error`. What nobody asked for has `event` instead.
"""

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

from refloat.agent.keeper.loop import READ, WRITE, Loop

Message = dict[str, Any]

# A request carries one container's command and environment, which the kernel bounds to 2 MB.
MAX_LINE = 8 * 1024 * 1024

# An agent that was frozen reads nothing. It is cut off, and asks for the list when it is back.
MAX_UNREAD = 16 * 1024 * 1024

_CHUNK = 256 * 1024

_LAST_WORDS_SECONDS = 1.0


class Connection:
    """One agent, or one who asks."""

    def __init__(
        self,
        loop: Loop,
        end: socket.socket,
        on_message: Callable[["Connection", Message], object],
        on_close: Callable[["Connection"], object],
    ) -> None:
        self._loop, self._end = loop, end
        self._on_message, self._on_close = on_message, on_close
        self._unread, self._unsent = bytearray(), bytearray()
        self.is_open = True
        end.setblocking(False)
        loop.watch(end.fileno(), READ, self._ready)

    def send(self, message: Message) -> None:
        if not self.is_open:
            return
        waiting = bool(self._unsent)
        self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(self._unsent) > MAX_UNREAD:
            self.close()
        elif not waiting:
            self._flush()

    def finish(self) -> None:
        """The last words, for which it waits a little: nothing else is left to do."""
        if self.is_open:
            self._end.settimeout(_LAST_WORDS_SECONDS)
            with contextlib.suppress(OSError):
                self._end.sendall(self._unsent)
            self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.forget(self._end.fileno())
            self._end.close()
            self._on_close(self)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if self.is_open and events & ~WRITE:
            self._receive()

    def _flush(self) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                sent = self._end.send(self._unsent)
                del self._unsent[:sent]
        except OSError:
            self.close()
            return
        self._loop.watch(self._end.fileno(), READ | WRITE if self._unsent else READ, self._ready)

    def _receive(self) -> None:
        try:
            chunk = self._end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._unread += chunk
        if not chunk or (len(self._unread) > MAX_LINE and b"\n" not in chunk):
            self.close()
            return
        if b"\n" not in chunk:
            return
        *lines, rest = self._unread.split(b"\n")
        self._unread = rest
        for line in lines:
            if self.is_open:
                self._take(line)

    def _take(self, line: bytearray) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._on_message(self, message)
        else:
            self.close()
