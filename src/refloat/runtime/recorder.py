# SPDX-License-Identifier: Apache-2.0
"""Records what a controller does as events.k8s.io/v1 Events.

The API refuses such events with a `source`. For events with a source, the
recorder uses the fields of v1, which is the same object.

`event` never waits and never raises: an Event is for people, and no work may
fail or slow down for an Event. The recorder's own tasks write the events, and
drop and count those that do not fit. An event without an answer is tried again
later, and does not delay other events. `event_series` decides which events are
equal, and how many an object may have.
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

# The API's limit, in bytes.
MAX_NOTE = 1024

# A write waits mostly for the server's disk, which takes several as fast as one;
# more at once would slow down the requests of the controllers.
WRITES_AT_ONCE = 8

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# The errors after which a retry may help.
_PASSING = (errors.Timeout, errors.Unavailable, errors.TooManyRequests)


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """The bounds of one recorder."""

    max_queued: int = 1000
    """Events that wait for the first or a further try; Kubernetes' number. The recorder drops
    more."""

    tries: int = 12
    """Tries of one event while the server is away; Kubernetes' number."""

    first_wait: float = 1.0
    """Seconds until the second try; each wait is twice the one before, with jitter."""

    longest_wait: float = 30.0
    """Seconds between two tries at most: twelve tries last about four minutes."""

    answer_seconds: float = 10.0
    """Seconds that one try waits for an answer. Less than for other requests: a server that
    answers no events must not block all `WRITES_AT_ONCE` for half a minute each time."""


class Sink(Protocol):
    """Takes the events of a controller: a `Recorder`."""

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
    """The recorder of one controller; `start` before the controller, `stop` after its end."""

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

        With `sourced` the controller is the source too, as in core/v1 events.
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
        self._queue_filled = asyncio.Event()
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
        """Refuse further events; write the waiting ones and the counts, for at most so long."""
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
        """Record what the controller did about an object; never waits, never raises."""
        try:
            self._note(Occurrence(regarding, related, event_type, reason, action, _cut(note)))
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
        if (series := self._book.again(what, now, at)) is not None:
            if series.count == 2:
                self._enqueue(series)
            return None
        if not self._allowance.take((what.regarding, what.reason), at):
            return self._drop("limited")
        if self._pending >= self._settings.max_queued:
            return self._drop("full")
        series = Series(what, self._name(what, now), now, now, at, at)
        self._enqueue(self._book.begin(series))
        return self._enqueue(series)

    def _name(self, what: Occurrence, now: datetime) -> str:
        """`<object>.<nanoseconds in hex>`, as in Kubernetes; unique within this recorder."""
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
        if not series.is_sending:  # else the writer queues the series after the present write
            self._queue.append(series)
            self._queue_filled.set()

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
                self._queue_filled.clear()
                await self._queue_filled.wait()
            series = self._queue.popleft()
            # Later occurrences need a new write; no series has two writes at once.
            series.is_queued, series.is_sending = False, True
            wait = await self._send(series)
            if wait is not None:
                self._tasks.spawn(self._again(series, wait), name=f"event/{series.name}")
                continue
            series.is_sending, series.tries = False, 0
            if series.is_queued:
                self._queue.append(series)
                self._queue_filled.set()
            self._done()

    def _done(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self._idle.set()

    async def _again(self, series: Series, wait: float) -> None:
        """Queue a series again after a wait, in which no writer is busy."""
        await self._clock.sleep(wait)
        series.is_sending = False
        if series.is_queued:  # counted meanwhile: one write has both
            self._done()
        series.is_queued = True
        self._queue.append(series)
        self._queue_filled.set()

    async def _send(self, series: Series) -> float | None:
        """Try to write a series; returns the seconds until the next try, None without one."""
        series.tries += 1
        try:
            await self._write(series)
            self._metrics.sent.labels(self._controller).inc()
            return None
        except LeadershipLost:
            self._give_up(series, "not_leader")
        except _PASSING as error:
            if series.tries < self._settings.tries:
                settings = self._settings
                wait = min(settings.first_wait * 2.0 ** (series.tries - 1), settings.longest_wait)
                return self._rand.jitter(max(wait, error.retry_after or 0), 0.25)
            log.warning("%s: event %s: no answer", self._controller, series.what.reason)
            self._give_up(series, "unanswered")
        except errors.ClientError as error:
            # The client logs that the server refuses the credentials.
            level = logging.INFO if isinstance(error, errors.Unauthorized) else logging.WARNING
            text = "%s: event %s rejected: %s"
            log.log(level, text, self._controller, series.what.reason, error)
            self._give_up(series, "rejected")
        except Exception:
            log.exception("%s: event %s failed", self._controller, series.what.reason)
            self._give_up(series, "error")
        return None

    def _give_up(self, series: Series, reason: str) -> None:
        self._book.forget(series)
        self._drop(reason)

    async def _write(self, series: Series) -> None:
        count, tally = series.count, series.tally()
        try:
            async with self._clock.timeout(self._settings.answer_seconds):
                await (
                    self._patch(series, tally) if series.written else self._create(series, tally)
                )
        except TimeoutError as error:
            raise errors.Timeout("no answer in time") from error
        series.written, series.written_at = count, self._clock.monotonic()

    async def _patch(self, series: Series, tally: Object | None) -> None:
        try:
            await self._client.patch(
                EVENTS, series.name, {"series": tally}, namespace=series.namespace
            )
        except errors.NotFound:  # events live for an hour or so
            await self._create(series, tally)

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
        """Whether the event of this name is this one: the first answer was lost."""
        event = await self._client.get(EVENTS, series.name, namespace=series.namespace)
        return (event.event_time, event.reporting_instance, event.reason, event.note) == (
            times.format_micro(series.first),
            self._instance,
            series.what.reason,
            series.what.note,
        )

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
    """Cut the note to the API's limit, between two characters."""
    if len(note) * 4 <= MAX_NOTE:
        return note
    encoded = note.encode(errors="replace")
    return note if len(encoded) <= MAX_NOTE else encoded[:MAX_NOTE].decode(errors="ignore")
