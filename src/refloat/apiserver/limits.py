# SPDX-License-Identifier: Apache-2.0
"""What one client, or all of them, may take of the server.

Every bound of the HTTP face stands here with the reason for its number. The
bounds of what is in a body (nesting, patch operations, lengths) are with the
code that reads it, the bound of a watcher's buffer is in `watching`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api import errors, kinds
from refloat.apiserver import identity
from refloat.apiserver.fairness import FairShare, Full
from refloat.apiserver.identity import Identity
from refloat.apiserver.targets import Target
from refloat.base.clock import Clock

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
    waiting: int = 50
    """Requests of one user that wait for a place; one more is 429. Kubernetes' queue length."""
    waiting_seconds: float = 15.0
    """That a request waits for a place; later is 429. Kubernetes' number."""
    requests_per_turn: int = 16
    """That begin in one turn of the event loop, nodes' leases and status aside: about 10 ms."""
    urgent_per_node: int = 8
    """Renewals of leases and writes of status of one node at once that wait for nothing; an agent
    has two."""
    held_body_bytes: int = 24 * 1024 * 1024
    """Of all large bodies at once, from their first byte to their answer; half of it for one user.
    A body as an object takes up to ten times as much, but only one is one at a time."""
    held_answer_bytes: int = 24 * 1024 * 1024
    """Of all large answers at once that are not sent yet; half of it for one user."""
    watchers: int = 10_000
    """Watches at once; one change for all of them then takes about 20 ms of the loop."""
    shutdown_seconds: float = 2.0
    """For answers in progress once the server is told to stop."""


# A body or an answer that is smaller is not counted: all requests that may be
# in progress at once take less than 40 MB with such.
SMALL_BYTES = 64 * 1024

# A body or object from here on is worked on in a thread: hostile ones of this
# size take about 50 ms, ordinary ones of less than this are the rule.
LARGE_BYTES = 16 * 1024

# A node's urgent request up to here does not wait for the thread that all users
# share, but only for those of other nodes: a Lease with a thousand promises and a
# Node with hundreds of images are smaller. A hostile one takes about a second of
# that thread, and nodes take turns.
URGENT_BYTES = 256 * 1024

# Of the values of a body, lists and maps with them. The store of Kubernetes
# takes objects of 1.5 MB, in which values have some 30 bytes each.
MAX_VALUES = 50_000


class InFlight:
    """Counts what is going on, and lets users wait for each other or refuses what is too much.

    No user has all the places, so that each finds one soon.
    """

    def __init__(self, limits: Limits) -> None:
        bounds: dict[RequestKind, int] = {
            "readOnly": limits.read_only,
            "mutating": limits.mutating,
            "watch": limits.watchers,
        }
        self._seconds = limits.waiting_seconds
        self._places = {
            kind: FairShare(
                bound,
                per_user=bound - bound // 4,
                waiting=0 if kind == "watch" else limits.waiting,  # a watch takes an hour
            )
            for kind, bound in bounds.items()
        }
        self.counts: dict[RequestKind, int] = dict.fromkeys(bounds, 0)

    async def enter(self, kind: RequestKind, user: str, clock: Clock) -> None:
        """Take a place, to be given back with `leave`; raises 429 when there is none in time."""
        await wait_for(self._places[kind], user, 1, clock, self._seconds)
        self.counts[kind] += 1

    def leave(self, kind: RequestKind, user: str) -> None:
        self.counts[kind] -= 1
        self._places[kind].give(user)


async def wait_for(share: FairShare, user: str, amount: int, clock: Clock, seconds: float) -> None:
    """Take a part of what users share; raises 429 when it does not come in time."""
    if share.try_take(user, amount):
        return
    try:
        async with clock.timeout(seconds):
            await share.take(user, amount)
    except (Full, TimeoutError) as error:
        raise errors.too_many_requests(TOO_MANY, RETRY_SECONDS) from error


_LEASES = kinds.of("leases", "coordination.k8s.io")
_NODES = kinds.of("nodes")
_URGENT_VERBS = frozenset({"get", "create", "update", "patch"})


def may_be_urgent(user: Identity, target: Target | None) -> bool:
    """Is this a node that says that it lives?

    Such a request waits for no other user's: a node that is not heard loses its pods.
    """
    return (
        target is not None
        and (target.resource is _LEASES or target.resource is _NODES)
        and identity.node_name(user) is not None
    )


def is_urgent(user: Identity, target: Target, verb: str) -> bool:
    """The same, once it is known that it reads or writes one object."""
    return verb in _URGENT_VERBS and may_be_urgent(user, target)


_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def kind_of(verb: str) -> RequestKind:
    """Which bound a verb counts against."""
    if verb == "watch":
        return "watch"
    return "mutating" if verb in _MUTATING else "readOnly"
