# SPDX-License-Identifier: Apache-2.0
"""The metrics of work queues, under the names that Kubernetes uses.

A queue only counts; this module reads the counts at each scrape. So a key costs
no call of the metrics library, and work that never ends shows its full duration
up to now.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

# Ten nanoseconds to ten seconds, as Kubernetes has them.
BUCKETS = tuple(10.0**exponent for exponent in range(-8, 2))
_BOUNDS = (*(floatToGoString(bound) for bound in BUCKETS), "+Inf")  # type: ignore[no-untyped-call]

_NAME = ["name"]


class Durations:
    """A histogram of seconds, without labels or locks."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.total += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Upper bound and how many are at or below it, as the text format wants."""
        return list(zip(_BOUNDS, map(float, accumulate(self.counts)), strict=True))


class QueueCounts(Protocol):
    """The counts of a queue."""

    name: str
    adds: int
    retries: int
    latency: Durations
    work: Durations

    def __len__(self) -> int: ...
    def running(self) -> Sequence[float]: ...


class QueueMetrics(Collector):
    """The work queues of one process; make one for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queues: list[QueueCounts] = []
        registry.register(self)

    def watch(self, queue: QueueCounts) -> None:
        """Include this queue from now on."""
        self._queues.append(queue)

    def collect(self) -> Iterable[Metric]:
        adds = CounterMetricFamily(
            "workqueue_adds", "Total number of adds handled by workqueue", labels=_NAME
        )
        retries = CounterMetricFamily(
            "workqueue_retries", "Total number of retries handled by workqueue", labels=_NAME
        )
        depth = GaugeMetricFamily("workqueue_depth", "Current depth of workqueue", labels=_NAME)
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds",
            "Seconds that the work in progress has taken so far, added up",
            labels=_NAME,
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the longest work in progress has taken so far",
            labels=_NAME,
        )
        latency = HistogramMetricFamily(
            "workqueue_queue_duration_seconds",
            "Seconds from a key's add until it is given out",
            labels=_NAME,
        )
        work = HistogramMetricFamily(
            "workqueue_work_duration_seconds", "Seconds of work on a key", labels=_NAME
        )
        for queue in self._queues:
            running = queue.running()
            adds.add_metric([queue.name], queue.adds)
            retries.add_metric([queue.name], queue.retries)
            depth.add_metric([queue.name], len(queue))
            unfinished.add_metric([queue.name], sum(running))
            longest.add_metric([queue.name], max(running, default=0.0))
            latency.add_metric([queue.name], queue.latency.cumulative(), queue.latency.total)
            work.add_metric([queue.name], queue.work.cumulative(), queue.work.total)
        return adds, retries, depth, unfinished, longest, latency, work
