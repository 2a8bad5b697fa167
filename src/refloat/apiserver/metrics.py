# SPDX-License-Identifier: Apache-2.0
"""The metrics of the API server.

Names and labels are those of Kubernetes where it has such a metric, so that its
dashboards work. A request costs two updates of children that are looked up once.
Numbers that other code already counts are read only when Prometheus scrapes.
"""

from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from refloat.apiserver.limits import InFlight
from refloat.apiserver.routes import Target
from refloat.store.contract import Store

_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope", "component")

# Few, because each is a series for every kind and verb: a read, a durable
# write, a long list, and too slow.
DURATION_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 30, 60)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
STALL_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)

_VERBS = {"create": "POST", "update": "PUT", "delete": "DELETE", "deletecollection": "DELETE"}

# Other paths count together: clients choose paths, and each would be a series
# for ever.
_KNOWN_PATHS = frozenset(
    {"/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi", "/readyz", "/version"}
)
_KNOWN_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


class Labels(NamedTuple):
    """The labels of a request."""

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
    scope = "namespace" if target.namespace else "cluster"
    if target.name or verb == "create":
        scope = "resource"
    return Labels(
        _VERBS.get(verb) or verb.upper(),
        resource.group,
        resource.version,
        resource.plural,
        target.subresource,
        scope,
    )


def of_path(method: str, path: str) -> Labels:
    """The labels of any other request."""
    root = "/" + path[1:].partition("/")[0]
    return Labels(
        method if method in _KNOWN_METHODS else "other",
        subresource=root if root in _KNOWN_PATHS else "",
        component="",
    )


MALFORMED = Labels("other", component="")
"""The labels of bytes that are no request."""


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
            "apiserver_longrunning_requests", "Open watches.", _REQUEST, registry=registry
        )
        self._in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests in progress, without watches.",
            ("request_kind",),
            registry=registry,
        )
        self.dispatch_lag = Histogram(
            "refloat_watch_dispatch_lag_seconds",
            "From the commit of a change until all its watchers have it in their buffers.",
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self.stalls = Histogram(
            "refloat_event_loop_stall_seconds",
            "The length of each stall of the event loop.",
            buckets=STALL_BUCKETS,
            registry=registry,
        )
        self._counted: dict[tuple[Labels, int], Counter] = {}
        self._timed: dict[Labels, Histogram] = {}

    def done(self, labels: Labels, code: int, seconds: float) -> None:
        """Count an answered request."""
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

    def read_store(self, store: Store) -> None:
        self._read("refloat_store_size_bytes", "Bytes that the store holds.", lambda: store.size)
        self._read("refloat_store_revision", "The newest revision.", lambda: store.revision)
        self._read(
            "refloat_store_compacted_revision",
            "The newest compacted revision.",
            lambda: store.compacted,
        )

    def read_watchers(self, watchers: Callable[[], int]) -> None:
        self._read("refloat_watchers", "Open watches of all kinds.", watchers)

    def _read(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)
