# SPDX-License-Identifier: Apache-2.0
"""What one client, or all of them, may take of the server.

Every bound of the HTTP face stands here with the reason for its number. The
bounds of what is in a body (nesting, patch operations, lengths) are with the
code that reads it, the bound of a watcher's buffer is in `watching`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api import errors

RequestKind: TypeAlias = Literal["readOnly", "mutating", "watch"]

TOO_MANY = "Too many requests, please try again later."
RETRY_SECONDS = 1

# Who asks whether the server is well gets an answer also when it is not.
UNBOUNDED_PATHS = ("/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a server."""

    body_bytes: int = 3 * 1024 * 1024
    """Of a request's body; more is 413. Kubernetes' number: twice what its store takes."""
    head_bytes: int = 1024 * 1024
    """Of a request line and headers together; more is 431. Kubernetes' number."""
    headers: int = 256
    """Header fields of a request; clients send about ten, proxies add some."""
    handshake_seconds: float = 10.0
    """For TLS; a client on a bad line needs about three round trips."""
    head_seconds: float = 15.0
    """From the first byte of a request, or from the connection's start, to its body."""
    body_seconds: float = 30.0
    """For a whole body: 3 MiB at 100 KB/s. Later is 408."""
    idle_seconds: float = 90.0
    """Between two requests of a connection; Kubernetes' number, so that clients' pools fit."""
    linger_seconds: float = 5.0
    """To read on what a refused client still sends, so that it sees the answer at all."""
    unread_seconds: float = 30.0
    """That a client may leave an answer unread, besides the time that its bytes may take."""
    unread_bytes_per_second: int = 64 * 1024
    """The slowest that a client may read; a watch of 25 changes a second needs as much."""
    connections: int = 16_000
    """At once; all watchers and room to ask. A file descriptor each, of which there are 20,000
    to a process on many systems."""
    read_only: int = 400
    """Requests at once that change nothing, watches aside. Kubernetes' number."""
    mutating: int = 200
    """Requests at once that may change something. Kubernetes' number."""
    watchers: int = 10_000
    """Watches at once; one change for all of them then takes about 20 ms of the loop."""
    shutdown_seconds: float = 2.0
    """For answers in progress once the server is told to stop."""


class InFlight:
    """Counts what is going on, and refuses what would be too much."""

    def __init__(self, limits: Limits) -> None:
        self._bounds: dict[RequestKind, int] = {
            "readOnly": limits.read_only,
            "mutating": limits.mutating,
            "watch": limits.watchers,
        }
        self.counts: dict[RequestKind, int] = dict.fromkeys(self._bounds, 0)

    def enter(self, kind: RequestKind) -> None:
        """Take a place, to be given back with `leave`; raises 429 when there is none."""
        if self.counts[kind] >= self._bounds[kind]:
            raise errors.too_many_requests(TOO_MANY, RETRY_SECONDS)
        self.counts[kind] += 1

    def leave(self, kind: RequestKind) -> None:
        self.counts[kind] -= 1


_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def kind_of(verb: str) -> RequestKind:
    """Which bound a verb counts against."""
    if verb == "watch":
        return "watch"
    return "mutating" if verb in _MUTATING else "readOnly"
