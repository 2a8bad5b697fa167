# SPDX-License-Identifier: Apache-2.0
"""Counts equal events as one series, and limits the new events of an object.

Decides which events make a series, when to write the count, and how many new
events an object may have. Everything is in memory and bounded; this module
writes nothing.

As in Kubernetes' broadcaster for events.k8s.io, the recorder writes the second
occurrence at once, and later ones when the series is refreshed or over. Unlike
in Kubernetes, events with different notes are different: there, a second note is
lost. Kubernetes limits only core/v1 events, and all of one object together, so
that a Job of many pods has events of their creation and none of the Job's end.
Here each reason has a limit of its own.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from refloat.api import times
from refloat.api.meta import Object
from refloat.api.structs import ApiObject
from refloat.client.contract import Kind

EventType: TypeAlias = Literal["Normal", "Warning"]

# Kubernetes' numbers: a series is over after six minutes of silence, and is
# written every half hour until then.
QUIET_SECONDS = 360.0
REFRESH_SECONDS = 1800.0

# Kubernetes' numbers for core/v1 events: an object has 25 new events of a reason
# at once, and then one every five minutes.
BURST = 25
REFILL_SECONDS = 300.0

# The series, and the objects, that a recorder remembers: each has about half a
# kilobyte. The number is that of Kubernetes' own caches.
MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Reference:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    # Two versions of an object are the same object.
    resource_version: str = field(default="", compare=False)

    @classmethod
    def of(cls, kind: Kind[Any], obj: ApiObject) -> "Reference":
        meta = obj.metadata
        return cls(
            kind.resource.api_version,
            kind.resource.kind,
            meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
        )

    def wire(self) -> Object:
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """The content of an event. Equal occurrences belong to one series."""

    regarding: Reference
    related: Reference | None
    type: EventType
    reason: str
    action: str
    note: str


@dataclass(slots=True, eq=False)
class Series:
    """One event of the API, and the number of its occurrences."""

    what: Occurrence
    name: str
    first: datetime
    last: datetime
    last_at: float  # the same on the monotonic clock
    written_at: float
    count: int = 1
    written: int = 0  # the count that the API has; 0: no event yet
    is_queued: bool = False
    is_sending: bool = False  # or waits for the next try
    tries: int = 0  # since the last write that ended

    @property
    def is_due(self) -> bool:
        return self.count > self.written

    @property
    def namespace(self) -> str:
        return self.what.regarding.namespace or "default"

    def tally(self) -> Object | None:
        """The `series` of the event; None for a single occurrence."""
        if self.count < 2:
            return None
        return {"count": self.count, "lastObservedTime": times.format_micro(self.last)}


class SeriesBook:
    """The series that are not over."""

    def __init__(self) -> None:
        self._open: OrderedDict[Occurrence, Series] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def again(self, what: Occurrence, now: datetime, at: float) -> Series | None:
        """Count one more occurrence of an open series; None without such a series."""
        series = self._open.get(what)
        if series is None or at - series.last_at >= QUIET_SECONDS:
            return None
        series.count += 1
        series.last, series.last_at = now, at
        return series

    def begin(self, series: Series) -> Series | None:
        """Remember a new series; returns the series that had to make room, if any."""
        evicted = self._open.pop(series.what, None)
        if evicted is None and len(self._open) >= MAX_REMEMBERED:
            evicted = self._open.popitem(last=False)[1]
        self._open[series.what] = series
        return evicted

    def forget(self, series: Series) -> None:
        if self._open.get(series.what) is series:
            del self._open[series.what]

    def sweep(self, at: float) -> list[Series]:
        """End quiet series; returns all series, ended or old, whose count must be written."""
        over = [each for each in self._open.values() if at - each.last_at >= QUIET_SECONDS]
        for series in over:
            del self._open[series.what]
        old = [each for each in self._open.values() if at - each.written_at >= REFRESH_SECONDS]
        return [each for each in (*over, *old) if each.is_due]

    def due(self) -> list[Series]:
        """The series with a count that is not written yet."""
        return [each for each in self._open.values() if each.is_due]


class Allowance:
    """The limit of new events for each object and reason: a token bucket for each."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, source: Hashable, at: float) -> bool:
        """Take a token; False if there is none."""
        tokens, since = self._buckets.pop(source, (float(BURST), at))
        tokens = min(float(BURST), tokens + (at - since) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._buckets[source] = (tokens - 1 if allowed else tokens, at)
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        return allowed
