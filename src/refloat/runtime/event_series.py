# SPDX-License-Identifier: Apache-2.0
"""Events that are the same are one event that is counted, and nobody may flood.

Which events make a series, when its count is due to be written, and how many
new ones an object may have. All in memory and bounded; nothing here writes.

As in Kubernetes' broadcaster for events.k8s.io: the second occurrence is
written at once, later ones when the series is refreshed or over. Unlike it,
the note belongs to what must be the same: there, a second note is lost.
Kubernetes limits only its older events, those of one object together, so that
a Job of many pods tells of their creation and never of its end. Here each
reason has that limit to itself.
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

# Kubernetes' numbers: a series is over after six minutes of silence, and one
# that goes on is written every half hour.
QUIET_SECONDS = 360.0
REFRESH_SECONDS = 1800.0

# Kubernetes' numbers for its older events: an object has 25 new events of a
# reason at once, and then one every five minutes.
BURST = 25
REFILL_SECONDS = 300.0

# What is remembered of series and of objects, each about half a kilobyte. The
# number is that of Kubernetes' own caches.
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
        named = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class Occurrence:
    """What is told. Two that are equal are one event that happened twice."""

    regarding: Reference
    related: Reference | None
    type: EventType
    reason: str
    action: str
    note: str


@dataclass(slots=True, eq=False)
class Series:
    """One event of the API, and how often it has happened."""

    what: Occurrence
    name: str
    first: datetime
    last: datetime
    last_at: float  # the same on the monotonic clock
    written_at: float
    count: int = 1
    written: int = 0  # the count that the API has; 0: no event yet
    is_queued: bool = False
    is_sending: bool = False  # or waits to be tried again
    tries: int = 0  # since the last write that ended

    @property
    def is_due(self) -> bool:
        return self.count > self.written

    @property
    def namespace(self) -> str:
        return self.what.regarding.namespace or "default"

    def tally(self) -> Object | None:
        """The `series` of the event; none for what happened once."""
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
        """Count one more of a series that is not over; None if there is none."""
        series = self._open.get(what)
        if series is None or at - series.last_at >= QUIET_SECONDS:
            return None
        series.count += 1
        series.last, series.last_at = now, at
        return series

    def begin(self, series: Series) -> Series | None:
        """Remember a new one; the one that had to go for it, if any."""
        gone = self._open.pop(series.what, None)
        if gone is None and len(self._open) >= MAX_REMEMBERED:
            gone = self._open.popitem(last=False)[1]
        self._open[series.what] = series
        return gone

    def forget(self, series: Series) -> None:
        if self._open.get(series.what) is series:
            del self._open[series.what]

    def sweep(self, at: float) -> list[Series]:
        """End what is quiet; return what must be written, of those and of the others."""
        over = [each for each in self._open.values() if at - each.last_at >= QUIET_SECONDS]
        for series in over:
            del self._open[series.what]
        old = [each for each in self._open.values() if at - each.written_at >= REFRESH_SECONDS]
        return [each for each in (*over, *old) if each.is_due]

    def due(self) -> list[Series]:
        """Whatever was counted and not yet written."""
        return [each for each in self._open.values() if each.is_due]


class Allowance:
    """How many new events of a reason each object may still have: a token bucket for each."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, source: Hashable, at: float) -> bool:
        """Whether one more is allowed now; if so, it is taken."""
        tokens, since = self._buckets.pop(source, (float(BURST), at))
        tokens = min(float(BURST), tokens + (at - since) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._buckets[source] = (tokens - 1 if allowed else tokens, at)
        if len(self._buckets) > MAX_REMEMBERED:
            self._buckets.popitem(last=False)
        return allowed
