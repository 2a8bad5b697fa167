# SPDX-License-Identifier: Apache-2.0
"""Evicts pods, one after another, while the node is low on a resource (D6).

The manager measures the node every 10 s. After an eviction the manager waits until the
pod has ended, at most 30 s. `policy.kubelet_eviction` decides which pod to evict.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from refloat.agent.pod_gate import ActivePods
from refloat.agent.pod_status import Ending
from refloat.agent.pod_worker import RecordPodEvent
from refloat.agent.usage import UsageMeter
from refloat.base.clock import Clock
from refloat.policy.node import kubelet_eviction
from refloat.policy.node.eviction_thresholds import RESOURCES, EvictionSettings
from refloat.policy.node.kubelet_eviction import Eviction, EvictionState, Usage
from refloat.policy.scheduling import critical_pods
from refloat.policy.scheduling.critical_pods import IsCritical
from refloat.runtime.event_series import EventType

log = logging.getLogger(__name__)

# How long the next measurement waits for an evicted pod, and how often the manager polls (D6.2).
CLEANUP_SECONDS = 30.0
CLEANUP_POLL_SECONDS = 1.0

RecordNodeEvent: TypeAlias = Callable[[EventType, str, str], object]
"""Records an event of the node: type, reason, note."""


class EvictionManager:
    """Evicts the pods of one node."""

    def __init__(
        self,
        pods: ActivePods,
        usage: UsageMeter,
        settings: EvictionSettings,
        *,
        clock: Clock,
        record_event: RecordPodEvent,
        record_node_event: RecordNodeEvent,
        is_critical: IsCritical = critical_pods.has_critical_priority,
    ) -> None:
        self._pods = pods
        self._usage = usage
        self._settings = settings
        self._thresholds = settings.thresholds()
        self._clock = clock
        self._record_event = record_event
        self._record_node_event = record_node_event
        self._is_critical = is_critical
        self._state = EvictionState()
        self._evicted: tuple[str, ...] = ()
        self._wait_until = 0.0
        self._next_at = 0.0
        self._awake = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """The pressure conditions that are True."""
        return self._state.conditions

    @property
    def is_due(self) -> bool:
        """Whether `look` must be called, because no call is scheduled."""
        return not self._awake and not self._usage.is_idle()

    async def look(self) -> float | None:
        """Measure and evict if due. Returns the seconds until the next call; None: see `is_due`."""
        self._awake = True
        now = self._clock.monotonic()
        if now < self._wait_until and any(map(self._pods.is_active, self._evicted)):
            return CLEANUP_POLL_SECONDS
        if not self._evicted and now < self._next_at:
            return self._next_at - now
        self._evicted = ()
        if self._usage.is_idle() and not self._state.conditions:
            self._awake = False
            return None
        self._next_at = now + self._settings.monitoring_seconds
        if self._evict(await self._usage.measure()):
            return CLEANUP_POLL_SECONDS
        return self._settings.monitoring_seconds

    def _evict(self, measured: Usage) -> bool:
        self._state = kubelet_eviction.observe(
            self._state,
            self._thresholds,
            measured.node,
            now=self._clock.now(),
            transition_seconds=self._settings.transition_seconds,
        )
        over_limits = kubelet_eviction.over_limits(
            self._pods.active(), measured.pods, self._is_critical
        )
        evictions = [each for each in over_limits if self._end(each)]
        if not evictions and self._state.met:
            resource = RESOURCES[self._state.met[0].signal]
            note = f"Attempting to reclaim {resource}"
            self._record_node_event("Warning", "EvictionThresholdMet", note)
            active = self._pods.active()
            eviction = kubelet_eviction.by_pressure(
                self._state, self._settings, active, measured, self._is_critical
            )
            if eviction is None:
                log.info("low on %s, and there is no pod to evict", resource)
            else:
                self._end(eviction)  # a pod that ends as soon is only waited for
                evictions = [eviction]
        self._evicted = tuple(each.pod.metadata.uid for each in evictions)
        longest = max((each.grace_seconds for each in evictions), default=0)
        self._wait_until = self._clock.monotonic() + longest + CLEANUP_SECONDS
        return bool(evictions)

    def _end(self, eviction: Eviction) -> bool:
        ending = Ending(
            kubelet_eviction.REASON,
            eviction.message,
            insists=False,
            disruption=eviction.message if eviction.by_pressure else "",
            grace_seconds=eviction.grace_seconds,
        )
        is_new = self._pods.kill(eviction.pod.metadata.uid, ending)
        if is_new:
            self._record_event(eviction.pod, "Warning", kubelet_eviction.REASON, eviction.message)
        return is_new
