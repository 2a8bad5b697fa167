# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON over a socket, without blocking.

A request is an object with `id` and `op`. The answer has the same `id`, and `ok` or
`error`. A message without a request has `event` instead.
"""

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

from refloat.agent.keeper.loop import READ, WRITE, Loop

Message = dict[str, Any]

# A request has one container's command and environment, which the kernel limits to 2 MB.
MAX_LINE = 8 * 1024 * 1024

# A frozen agent reads nothing. The keeper closes its connection, and the agent requests the
# list when the agent runs again.
MAX_UNREAD = 16 * 1024 * 1024

_CHUNK = 256 * 1024

_FINISH_SECONDS = 1.0


class KeeperConnection:
    """The connection of an agent or of another client."""

    def __init__(
        self,
        loop: Loop,
        end: socket.socket,
        on_message: Callable[["KeeperConnection", Message], object],
        on_close: Callable[["KeeperConnection"], object],
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
        """Wait a little until the peer has read all answers, then close."""
        if self.is_open:
            self._end.settimeout(_FINISH_SECONDS)
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
        if not self.is_open or not events & ~WRITE:
            return
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
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            if self.is_open:
                self._take(line)

    def _flush(self) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                size = self._end.send(self._unsent)
                del self._unsent[:size]
        except OSError:
            self.close()
            return
        self._loop.watch(self._end.fileno(), READ | WRITE if self._unsent else READ, self._ready)

    def _take(self, line: bytearray) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._on_message(self, message)
        else:
            self.close()
