# SPDX-License-Identifier: Apache-2.0
"""Keeps a node alive that runs low: says so, and evicts pods one after another (D6).

A look every ten seconds; after an eviction the next comes when the pod has
gone, or half a minute later. What follows from what was measured is pure and
in `policy.kubelet_eviction`.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from refloat.agent.gate import Tenants
from refloat.agent.status import Ending
from refloat.agent.usage import Usage
from refloat.agent.worker import Tell
from refloat.base.clock import Clock
from refloat.policy import critical_pods, kubelet_eviction
from refloat.policy.critical_pods import IsCritical
from refloat.policy.eviction_thresholds import RESOURCES, EvictionSettings
from refloat.policy.kubelet_eviction import Eviction, Measured, State
from refloat.runtime.event_series import EventType

log = logging.getLogger(__name__)

# How long the next look waits for a pod that was evicted, and how often it asks (D6.2).
CLEANUP_SECONDS = 30.0
CLEANUP_POLL_SECONDS = 1.0

TellNode: TypeAlias = Callable[[EventType, str, str], object]
"""Says an event of the node: its type, reason and note."""


class Evictions:
    """The evictions of one node."""

    def __init__(
        self,
        tenants: Tenants,
        usage: Usage,
        settings: EvictionSettings,
        *,
        clock: Clock,
        tell: Tell,
        tell_node: TellNode,
        is_critical: IsCritical = critical_pods.has_critical_priority,
    ) -> None:
        self._tenants = tenants
        self._usage = usage
        self._settings = settings
        self._thresholds = settings.thresholds()
        self._clock = clock
        self._tell = tell
        self._tell_node = tell_node
        self._is_critical = is_critical
        self._state = State()
        self._evicted: tuple[str, ...] = ()
        self._wait_until = 0.0
        self._next_at = 0.0
        self._awake = False

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the node is low on, or was until lately."""
        return self._state.conditions

    @property
    def is_due(self) -> bool:
        """Whether somebody should look who does not yet."""
        return not self._awake and not self._usage.is_idle()

    async def look(self) -> float | None:
        """Do what is due; in how many seconds is there more? None: when it `is_due` again."""
        self._awake = True
        now = self._clock.monotonic()
        if self._is_waiting(now):
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

    def _is_waiting(self, now: float) -> bool:
        there = any(map(self._tenants.is_active, self._evicted))
        return there and now < self._wait_until

    def _evict(self, measured: Measured) -> bool:
        self._state = kubelet_eviction.observe(
            self._state,
            self._thresholds,
            measured.node,
            now=self._clock.now(),
            transition_seconds=self._settings.transition_seconds,
        )
        chosen = self._end_excessive(measured) or self._end_for_room(measured)
        self._evicted = tuple(each.pod.metadata.uid for each in chosen)
        longest = max((each.grace_seconds for each in chosen), default=0)
        self._wait_until = self._clock.monotonic() + longest + CLEANUP_SECONDS
        return bool(chosen)

    def _end_excessive(self, measured: Measured) -> list[Eviction]:
        """Whoever takes more than it may, and does not end for it already."""
        found = kubelet_eviction.over_limits(
            self._tenants.active(), measured.pods, self._is_critical
        )
        return [each for each in found if self._end(each)]

    def _end_for_room(self, measured: Measured) -> list[Eviction]:
        """One for the node's sake; if it ends already, as soon, it is only waited for."""
        if not self._state.met:
            return []
        active = self._tenants.active()
        resource = RESOURCES[self._state.met[0].signal]
        note = f"Attempting to reclaim {resource}"
        self._tell_node("Warning", "EvictionThresholdMet", note)
        found = kubelet_eviction.by_pressure(
            self._state, self._settings, active, measured, self._is_critical
        )
        if found is None:
            log.info("low on %s, and there is no pod to evict", resource)
            return []
        self._end(found)
        return [found]

    def _end(self, eviction: Eviction) -> bool:
        ending = Ending(
            kubelet_eviction.REASON,
            eviction.message,
            insists=False,
            disruption=eviction.message if eviction.by_pressure else "",
            grace_seconds=eviction.grace_seconds,
        )
        is_new = self._tenants.kill(eviction.pod.metadata.uid, ending)
        if is_new:
            self._tell(eviction.pod, "Warning", kubelet_eviction.REASON, eviction.message)
        return is_new
