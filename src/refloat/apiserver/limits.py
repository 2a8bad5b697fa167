# SPDX-License-Identifier: Apache-2.0
"""How much of the server one client, or all clients, may use.

Every bound of the HTTP server is here, with the reason for its number. Bounds on
the content of a body (nesting, patch operations, lengths) are with the code that
reads the body; the bound of a watcher's buffer is in `watch_index`.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api import errors, kinds
from refloat.apiserver import identity
from refloat.apiserver.fairness import FairShare, Full
from refloat.apiserver.identity import Identity
from refloat.apiserver.routes import Target
from refloat.base.clock import Clock

RequestKind: TypeAlias = Literal["readOnly", "mutating", "watch"]

TOO_MANY = "Too many requests, please try again later."
RETRY_SECONDS = 1

# Health checks get an answer also when the server is full.
UNBOUNDED_PATHS = ("/healthz", "/livez", "/readyz")


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of a server."""

    body_bytes: int = 3 * 1024 * 1024
    """Of a request's body; more is 413. Kubernetes' number: twice what its store takes."""
    head_bytes: int = 1024 * 1024
    """Of a request line and headers together; more is 431. Kubernetes' number."""
    headers: int = 256
    """Header fields of a request. Clients send about ten, proxies add some."""
    handshake_seconds: float = 10.0
    """For TLS; a client on a bad line needs about three round trips."""
    head_seconds: float = 15.0
    """From the first byte of a request, or from the connection's start, to its body."""
    body_seconds: float = 30.0
    """For a whole body: 3 MiB at 100 KB/s. Later is 408."""
    idle_seconds: float = 90.0
    """Between two requests of a connection; Kubernetes' number, so that clients' pools fit."""
    linger_seconds: float = 5.0
    """For reading the rest of a refused request, so that the client gets the answer at all."""
    unread_seconds: float = 30.0
    """How long a client may leave an answer unread, plus the time for the bytes."""
    unread_bytes_per_second: int = 64 * 1024
    """The slowest client. A watch of 25 changes a second needs as much."""
    connections: int = 16_000
    """At once: all watchers, and some more. Each needs a file descriptor, and many systems
    allow a process 20,000."""
    read_only: int = 400
    """Requests at once that change nothing, watches aside. Kubernetes' number."""
    mutating: int = 200
    """Requests at once that may change something. Kubernetes' number."""
    waiting: int = 50
    """Requests of one user that wait; one more gets 429. Kubernetes' queue length."""
    waiting_seconds: float = 15.0
    """How long a request waits; then 429. Kubernetes' number."""
    requests_per_turn: int = 16
    """That begin in one turn of the event loop, nodes' leases and status aside: about 10 ms."""
    urgent_per_node: int = 8
    """Lease renewals and status writes of one node at once that do not wait. An agent
    has two."""
    held_body_bytes: int = 24 * 1024 * 1024
    """Of all large bodies at once, from the first byte to the answer; half of it for one user.
    A decoded body takes up to ten times as much, but the server decodes one at a time."""
    held_answer_bytes: int = 24 * 1024 * 1024
    """Of all large unsent answers at once; half of it for one user."""
    watchers: int = 10_000
    """Watches at once; one change for all of them then takes about 20 ms of the loop."""
    shutdown_seconds: float = 2.0
    """For answers in progress when the server stops."""


# Smaller bodies and answers do not count: with them, all requests that may be
# in progress at once take less than 40 MB.
SMALL_BYTES = 64 * 1024

# From this size on, a thread works on a body or object. Hostile ones of this size
# take about 50 ms; most ordinary ones are smaller.
LARGE_BYTES = 16 * 1024

# Up to this size, a node's urgent request does not wait for the thread of all users,
# only for the thread that nodes share. A Lease with a thousand promises and a Node
# with hundreds of images are smaller. A hostile request takes about a second of that
# thread, and nodes take turns.
URGENT_BYTES = 256 * 1024

# Values in a body, including lists and maps. The store of Kubernetes takes
# objects of 1.5 MB, in which values have some 30 bytes each.
MAX_VALUES = 50_000


class InFlight:
    """Counts the requests in progress; further ones wait for a place or get 429.

    No user can hold all places, so every user gets one soon.
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
        """Take a place until `leave`; raises 429 if no place comes free in time."""
        await wait_for(self._places[kind], user, 1, clock, self._seconds)
        self.counts[kind] += 1

    def leave(self, kind: RequestKind, user: str) -> None:
        self.counts[kind] -= 1
        self._places[kind].give(user)


async def wait_for(share: FairShare, user: str, amount: int, clock: Clock, seconds: float) -> None:
    """Take a share; raises 429 if the share does not come free in time."""
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
    """Whether this may be a node's sign of life.

    Such a request does not wait for other users: a silent node loses its pods.
    """
    return (
        target is not None
        and (target.resource is _LEASES or target.resource is _NODES)
        and identity.node_name(user) is not None
    )


def is_urgent(user: Identity, target: Target, verb: str) -> bool:
    """Whether this is a node's sign of life: the request reads or writes one object."""
    return verb in _URGENT_VERBS and may_be_urgent(user, target)


_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})


def kind_of(verb: str) -> RequestKind:
    """The bound that a verb counts against."""
    if verb == "watch":
        return "watch"
    return "mutating" if verb in _MUTATING else "readOnly"
