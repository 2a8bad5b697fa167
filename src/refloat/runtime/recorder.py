# SPDX-License-Identifier: Apache-2.0
"""Tells the API what a controller did, as events.k8s.io/v1 Events.

Those are refused with a `source`; where that is wanted, they are written
under the names of v1, which is the same object.

`event` never waits and never raises: an Event is for people, and no work may
fail or slow down for it. Tasks of its own write them and drop what does not fit,
counted. An event that gets no answer is tried again later and holds up no other
event meanwhile. What counts as the same event, and how many an object may have,
stands in `event_series`.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter

from refloat.api import events, names, times
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import CORE_EVENTS, EVENTS
from refloat.runtime.errors import LeadershipLost
from refloat.runtime.event_series import (
    QUIET_SECONDS,
    Allowance,
    EventType,
    Occurrence,
    Reference,
    Series,
    SeriesBook,
)

log = logging.getLogger(__name__)

# What the API allows, in bytes.
MAX_NOTE = 1024

# A write waits mostly for the server's disk, which takes several as fast as one;
# more at once would take the server from those who do the work.
WRITES_AT_ONCE = 8

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Failures after which the server may be asked the same again.
_PASSING = (errors.Timeout, errors.Unavailable, errors.TooManyRequests)


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """The bounds of one recorder."""

    max_queued: int = 1000
    """Events that wait to be written, for the first time or again; Kubernetes' number. More are
    dropped."""

    tries: int = 12
    """How often one is tried while the server is away; Kubernetes' number."""

    first_wait: float = 1.0
    """Seconds until the second try; each wait is twice the one before, and jittered."""

    longest_wait: float = 30.0
    """Seconds between two tries at most: twelve tries last about four minutes."""

    answer_seconds: float = 10.0
    """How long one try waits for an answer. Less than other requests wait: a server that answers
    no events must not take all `WRITES_AT_ONCE` for half a minute each time."""


class Sink(Protocol):
    """Where a controller tells of what it did: a `Recorder`."""

    def event(
        self,
        regarding: Reference,
        event_type: EventType,
        reason: str,
        action: str,
        note: str,
    ) -> None: ...


class EventMetrics:
    """The families of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter(
            "refloat_events_sent_total", "Writes of Events", ("controller",), registry=registry
        )
        self.dropped = Counter(
            "refloat_events_dropped_total",
            "Events that were not written, and why",
            ("controller", "reason"),
            registry=registry,
        )


class Recorder:
    """The recorder of one controller; `start` it, and `stop` it when the controller has ended."""

    def __init__(
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        clock: Clock,
        rand: Rand,
        metrics: EventMetrics,
        sourced: bool = False,
        settings: RecorderSettings | None = None,
    ) -> None:
        """`controller` and `instance` become reportingController and reportingInstance.

        With `sourced` the controller is the source too, as older events have it.
        """
        self._client = client
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._rand = rand
        self._metrics = metrics
        self._sourced = sourced
        self._settings = settings or RecorderSettings()
        self._book = SeriesBook()
        self._allowance = Allowance()
        self._queue: deque[Series] = deque()
        self._pending = 0
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._last_stamp = 0
        self._closed = False
        self._tasks = Tasks()

    def start(self) -> None:
        for number in range(WRITES_AT_ONCE):
            self._tasks.spawn(self._send_all(), name=f"events/{self._controller}/{number}")
        self._tasks.spawn(self._sweep(), name=f"event-series/{self._controller}")

    async def stop(self, flush_seconds: float = 0.0) -> None:
        """Take nothing more; write what is there, counts too, for at most so long."""
        self._closed = True
        if flush_seconds > 0:
            for series in self._book.due():
                self._enqueue(series)
            try:
                async with self._clock.timeout(flush_seconds):
                    await self._idle.wait()
            except TimeoutError:
                log.warning("%s: %d events not written", self._controller, self._pending)
        await self._tasks.close()
        for _ in range(self._pending):
            self._drop("stopped")
        self._pending = 0
        self._queue.clear()

    def event(
        self,
        regarding: Reference,
        event_type: EventType,
        reason: str,
        action: str,
        note: str,
        *,
        related: Reference | None = None,
    ) -> None:
        """Say what was done about an object: never waits, never raises."""
        try:
            what = Occurrence(regarding, related, event_type, reason, action, _cut(note))
            self._note(what)
        except Exception:
            log.exception("%s: event %s was not recorded", self._controller, reason)
            self._drop("error")

    def _note(self, what: Occurrence) -> None:
        if self._closed:
            return self._drop("stopped")
        if what.type not in ("Normal", "Warning") or not what.reason or not what.action:
            log.error("%s: an event needs type, reason and action: %r", self._controller, what)
            return self._drop("error")
        now, at = self._clock.now(), self._clock.monotonic()
        if (known := self._book.again(what, now, at)) is not None:
            if known.count == 2:
                self._enqueue(known)
            return None
        if not self._allowance.take((what.regarding, what.reason), at):
            return self._drop("limited")
        if self._pending >= self._settings.max_queued:
            return self._drop("full")
        series = Series(what, self._name(what, now), now, now, at, at)
        self._enqueue(self._book.begin(series))
        return self._enqueue(series)

    def _name(self, what: Occurrence, now: datetime) -> str:
        """`<object>.<nanoseconds in hex>`, as Kubernetes names them; no two of ours alike."""
        stamp = (now - _EPOCH) // _MICROSECOND * 1000 + self._rand.below(1000)
        self._last_stamp = max(stamp, self._last_stamp + 1)
        name = f"{what.regarding.name}.{self._last_stamp:x}"
        return self._rand.uid() if names.dns_subdomain(name) else name

    def _enqueue(self, series: Series | None) -> None:
        if series is None or series.is_queued or not series.is_due:
            return
        series.is_queued = True
        self._pending += 1
        self._idle.clear()
        if not series.is_sending:  # else it follows when that write has ended
            self._queue.append(series)
            self._wanted.set()

    def _drop(self, reason: str) -> None:
        self._metrics.dropped.labels(self._controller, reason).inc()

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(QUIET_SECONDS)
            for series in self._book.sweep(self._clock.monotonic()):
                self._enqueue(series)

    async def _send_all(self) -> None:
        """One of the writers."""
        while True:
            while not self._queue:
                self._wanted.clear()
                await self._wanted.wait()
            series = self._queue.popleft()
            # What is counted from now on is a new write; none is written twice at once.
            series.is_queued, series.is_sending = False, True
            wait = await self._send(series)
            if wait is not None:
                self._tasks.spawn(self._again(series, wait), name=f"event/{series.name}")
                continue
            series.is_sending, series.tries = False, 0
            if series.is_queued:
                self._queue.append(series)
                self._wanted.set()
            self._done()

    def _done(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._idle.set()

    async def _again(self, series: Series, wait: float) -> None:
        """Queue a series anew when it may be tried again; no writer waits for it."""
        await self._clock.sleep(wait)
        series.is_sending = False
        if series.is_queued:  # counted meanwhile: one write says both
            self._done()
        series.is_queued = True
        self._queue.append(series)
        self._wanted.set()

    async def _send(self, series: Series) -> float | None:
        """Try to write a series; seconds until the next try if there was no answer."""
        series.tries += 1
        try:
            await self._write_in_time(series)
            self._metrics.sent.labels(self._controller).inc()
            return None
        except LeadershipLost:
            self._give_up(series, "not_leader")
        except _PASSING as error:
            if series.tries < self._settings.tries:
                return self._wait(series.tries, error)
            log.warning("%s: event %s: no answer", self._controller, series.what.reason)
            self._give_up(series, "unanswered")
        except errors.ClientError as error:
            # That credentials are refused was said by the client.
            level = logging.INFO if isinstance(error, errors.Unauthorized) else logging.WARNING
            text = "%s: event %s rejected: %s"
            log.log(level, text, self._controller, series.what.reason, error)
            self._give_up(series, "rejected")
        except Exception:
            log.exception("%s: event %s failed", self._controller, series.what.reason)
            self._give_up(series, "error")
        return None

    def _wait(self, tries: int, error: errors.ClientError) -> float:
        """Seconds until the next try."""
        settings = self._settings
        wait = min(settings.first_wait * 2.0 ** (tries - 1), settings.longest_wait)
        return self._rand.jitter(max(wait, error.retry_after or 0), 0.25)

    def _give_up(self, series: Series, reason: str) -> None:
        self._book.forget(series)
        self._drop(reason)

    async def _write_in_time(self, series: Series) -> None:
        try:
            async with self._clock.timeout(self._settings.answer_seconds):
                await self._write(series)
        except TimeoutError as error:
            raise errors.Timeout("no answer in time") from error

    async def _write(self, series: Series) -> None:
        count, tally = series.count, series.tally()
        if series.written:
            try:
                await self._client.patch(
                    EVENTS, series.name, {"series": tally}, namespace=series.namespace
                )
            except errors.NotFound:  # events live for an hour or so
                await self._create(series, tally)
        else:
            await self._create(series, tally)
        series.written, series.written_at = count, self._clock.monotonic()

    async def _create(self, series: Series, tally: Object | None) -> None:
        try:
            await self._create_once(series, tally)
        except errors.AlreadyExists:
            if not await self._is_ours(series):
                series.name = self._name(series.what, series.first)
                await self._create_once(series, tally)

    async def _create_once(self, series: Series, tally: Object | None) -> None:
        body = self._body(series, tally)
        if not self._sourced:
            await self._client.create(EVENTS, body, namespace=series.namespace)
            return
        core = {events.TO_CORE.get(name, name): value for name, value in body.items()}
        core |= {"apiVersion": events.CORE, "source": {"component": self._controller}}
        await self._client.create(CORE_EVENTS, core, namespace=series.namespace)

    async def _is_ours(self, series: Series) -> bool:
        """Whether the name is taken by this very event, whose first answer was lost."""
        found = await self._client.get(EVENTS, series.name, namespace=series.namespace)
        ours = (times.format_micro(series.first), self._instance)
        told = (series.what.reason, series.what.note)
        return (
            found.event_time,
            found.reporting_instance,
            found.reason,
            found.note,
        ) == (*ours, *told)

    def _body(self, series: Series, tally: Object | None) -> Object:
        what = series.what
        body: Object = {
            "apiVersion": EVENTS.resource.api_version,
            "kind": EVENTS.resource.kind,
            "metadata": {"name": series.name, "namespace": series.namespace},
            "eventTime": times.format_micro(series.first),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": what.action,
            "reason": what.reason,
            "regarding": what.regarding.wire(),
            "note": what.note,
            "type": what.type,
        }
        if what.related is not None:
            body["related"] = what.related.wire()
        if tally is not None:
            body["series"] = tally
        return body


def _cut(note: str) -> str:
    """At most what the API takes, never half a character."""
    if len(note) * 4 <= MAX_NOTE:
        return note
    encoded = note.encode(errors="replace")
    return note if len(encoded) <= MAX_NOTE else encoded[:MAX_NOTE].decode(errors="ignore")
