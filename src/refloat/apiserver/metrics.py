# SPDX-License-Identifier: Apache-2.0
"""What the API server counts and measures.

Names and labels are Kubernetes' where it has such a metric, so that its
dashboards work. A request costs two updates of children that were looked up
once; whatever somebody else already counts is only read when it is asked for.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from refloat.apiserver.limits import InFlight
from refloat.apiserver.targets import Target

_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope", "component")

# Few, because each is a series for every kind and verb: a read, a durable
# write, a long list, and what is too slow.
DURATION_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30, 60)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
STALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)

_VERBS = {
    "create": "POST",
    "update": "PUT",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}

# What is not one of these is counted without its path: clients choose paths,
# and every one would be a series for ever.
_KNOWN_PATHS = frozenset(
    {"/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi", "/readyz", "/version"}
)
_KNOWN_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class Labels(NamedTuple):
    """What a request is counted as."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    component: str = "apiserver"


def of_target(target: Target, verb: str) -> Labels:
    """The labels of a request for a resource."""
    resource = target.resource
    return Labels(
        _VERBS.get(verb) or verb.upper(),
        resource.group,
        resource.version,
        resource.plural,
        target.subresource,
        _scope(target, verb),
    )


def _scope(target: Target, verb: str) -> str:
    if target.name or verb == "create":
        return "resource"
    return "namespace" if target.namespace else "cluster"


def of_path(method: str, path: str) -> Labels:
    """The labels of any other request."""
    known = "/" + path[1:].partition("/")[0]
    return Labels(
        method if method in _KNOWN_METHODS else "other",
        subresource=known if known in _KNOWN_PATHS else "",
        component="",
    )


MALFORMED = Labels("other", component="")
"""What never became a request."""


class Sized(Protocol):
    """A store, as far as it is measured."""

    @property
    def size(self) -> int: ...
    @property
    def revision(self) -> int: ...
    @property
    def compacted(self) -> int: ...


class Metrics:
    """The API server's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = self.registry = registry or CollectorRegistry()
        self._requests = Counter(
            "apiserver_request",
            "Requests by verb, kind, scope and the answer's code.",
            (*_REQUEST, "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "apiserver_request_duration_seconds",
            "From a request's head to the end of its answer.",
            _REQUEST,
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._longrunning = Gauge(
            "apiserver_longrunning_requests",
            "Watches that are open.",
            _REQUEST,
            registry=registry,
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being answered, watches aside.",
            ("request_kind",),
            registry=registry,
        )
        self.dispatch_lag = Histogram(
            "refloat_watch_dispatch_lag_seconds",
            "From the moment a change can be seen until it lies before all who watch for it.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self.stalls = Histogram(
            "refloat_event_loop_stall_seconds",
            "How long the event loop was held up, each time that it was.",
            buckets=STALL_BUCKETS,
            registry=registry,
        )
        self._counted: dict[tuple[Labels, int], Counter] = {}
        self._timed: dict[Labels, Histogram] = {}

    def done(self, labels: Labels, code: int, seconds: float) -> None:
        """Note a request that was answered."""
        count = self._counted.get((labels, code))
        if count is None:
            count = self._counted[labels, code] = self._requests.labels(*labels, code)
        count.inc()
        timer = self._timed.get(labels)
        if timer is None:
            timer = self._timed[labels] = self._durations.labels(*labels)
        timer.observe(seconds)

    def watching(self, labels: Labels) -> Gauge:
        """The gauge of watches with these labels."""
        return self._longrunning.labels(*labels)

    def read_in_flight(self, in_flight: InFlight) -> None:
        counts = in_flight.counts
        self._in_flight.labels("readOnly").set_function(lambda: counts["readOnly"])
        self._in_flight.labels("mutating").set_function(lambda: counts["mutating"])

    def read_store(self, store: Sized) -> None:
        self._read("refloat_store_size_bytes", "Bytes that the store holds.", lambda: store.size)
        self._read("refloat_store_revision", "The newest revision.", lambda: store.revision)
        self._read(
            "refloat_store_compacted_revision",
            "The newest revision whose change is forgotten.",
            lambda: store.compacted,
        )

    def read_watchers(self, watchers: Callable[[], int]) -> None:
        self._read("refloat_watchers", "Watches that are open, of all kinds.", watchers)

    def _read(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)
