# SPDX-License-Identifier: Apache-2.0
"""The order in which a node that shuts down ends its pods, and their grace periods (D6.4).

Pods end in groups by priority, the least important first; a group waits for the one before it. The
agent detects the shutdown and waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from refloat.api.core import Pod
from refloat.policy.scheduling import critical_pods, demand

REASON = "Terminated"
MESSAGE = "Pod was terminated in response to imminent node shutdown."


@dataclass(frozen=True, slots=True)
class Period:
    """Pods of this priority and above, up to the next, have so long to end."""

    priority: int
    seconds: int


@dataclass(frozen=True, slots=True)
class ShutdownSettings:
    """How long a node takes to shut down."""

    grace_seconds: int = 30
    """The whole time. A kubelet's default is 0: then the machine stops without ending pods."""

    critical_grace_seconds: int = 10
    """The part of this time for critical pods, after all others."""

    by_priority: tuple[Period, ...] = ()
    """If not empty, these replace the two settings above."""

    def periods(self) -> tuple[Period, ...]:
        """The periods from the least important on; empty without a graceful end."""
        if self.by_priority:
            return tuple(sorted(self.by_priority, key=lambda each: each.priority))
        rest = self.grace_seconds - self.critical_grace_seconds
        if self.grace_seconds <= 0 or rest < 0:
            return ()
        return (
            Period(0, rest),
            Period(critical_pods.SYSTEM_CRITICAL, self.critical_grace_seconds),
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that are ended together."""

    seconds: int
    pods: tuple[Pod, ...]

    def grace(self, pod: Pod) -> int:
        own = pod.spec.termination_grace_period_seconds
        return self.seconds if own is None else min(own, self.seconds)


def groups(settings: ShutdownSettings, pods: Iterable[Pod]) -> list[Group]:
    """The groups in the order of their end; groups without pods are left out."""
    periods = settings.periods()
    if not periods:
        return []
    members: list[list[Pod]] = [[] for _ in periods]
    for pod in pods:
        # The last period that begins at or below this priority, or else the first.
        priority = demand.priority(pod)
        below = [number for number, each in enumerate(periods) if each.priority <= priority]
        members[below[-1] if below else 0].append(pod)
    groups = zip(periods, members, strict=True)
    return [Group(period.seconds, tuple(each)) for period, each in groups if each]
