# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy before an API server that delivers requests late, after their sender gave up."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

CHUNK = 65536


class HoldingProxy:
    """Forwards bytes. On hold, the proxy keeps what clients send and closes their connections."""

    def __init__(self, server: str) -> None:
        split = urlsplit(server)
        assert split.hostname is not None
        self._target = (split.hostname, split.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._is_holding = False
        self._held: list[tuple[socket.socket, bytes]] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self) -> None:
        with self._lock:
            self._is_holding = True

    @property
    def held(self) -> int:
        """How many requests on open connections are kept back."""
        with self._lock:
            return len(self._held)

    def deliver(self) -> None:
        """Send what was kept back, though the client no longer waits, and forward again."""
        with self._lock:
            self._is_holding = False
            pieces, self._held = self._held, []
        for upstream, data in pieces:
            upstream.sendall(data)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                is_holding = self._is_holding
            if is_holding:
                client.close()
                continue
            upstream = socket.create_connection(self._target)
            self._sockets += [client, upstream]
            for forward in (self._to_server, self._to_client):
                threading.Thread(target=forward, args=(client, upstream), daemon=True).start()

    def _to_server(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(CHUNK):
                with self._lock:
                    if self._is_holding:
                        self._held.append((upstream, data))
                        client.shutdown(socket.SHUT_RDWR)
                        return
                upstream.sendall(data)
        with contextlib.suppress(OSError):
            upstream.shutdown(socket.SHUT_WR)

    def _to_client(self, client: socket.socket, upstream: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := upstream.recv(CHUNK):
                with contextlib.suppress(OSError):  # the client may be gone; the server goes on
                    client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def before(server: str) -> Iterator[HoldingProxy]:
    proxy = HoldingProxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
