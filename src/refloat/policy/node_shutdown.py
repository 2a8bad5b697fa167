# SPDX-License-Identifier: Apache-2.0
"""In which order a node that shuts down ends its pods, and how long each may take (D6.4).

Pods come in groups by priority, the least important first; a group waits for
the one before it. When a machine shuts down, and who waits, is the agent's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from refloat.api.core import Pod
from refloat.policy import critical_pods, demand

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
    """In all. A kubelet's default is 0: it ends nothing and the machine just goes off."""

    critical_grace_seconds: int = 10
    """The part of it that is left to critical pods, after all others."""

    by_priority: tuple[Period, ...] = ()
    """If there are any, these hold instead of the two above."""

    def periods(self) -> tuple[Period, ...]:
        """From the least important on; none when pods are not ended gracefully."""
        if self.by_priority:
            return tuple(sorted(self.by_priority, key=lambda each: each.priority))
        rest = self.grace_seconds - self.critical_grace_seconds
        if self.grace_seconds <= 0 or rest < 0:
            return ()
        return (
            Period(0, rest),
            Period(critical_pods.SYSTEM_CRITICAL, self.critical_grace_seconds),
        )


@dataclass(slots=True)
class Group:
    """Pods that are ended together."""

    seconds: int
    pods: list[Pod] = field(default_factory=list)

    def grace(self, pod: Pod) -> int:
        asked = pod.spec.termination_grace_period_seconds
        return self.seconds if asked is None else min(asked, self.seconds)


def groups(settings: ShutdownSettings, pods: Iterable[Pod]) -> list[Group]:
    """Who is ended when; groups without a pod are left out, and nobody waits for them."""
    periods = settings.periods()
    if not periods:
        return []
    made = [Group(period.seconds) for period in periods]
    for pod in pods:
        made[_place(periods, demand.priority(pod))].pods.append(pod)
    return [each for each in made if each.pods]


def _place(periods: tuple[Period, ...], priority: int) -> int:
    """The last period that begins at or below this priority, or else the first."""
    below = [place for place, each in enumerate(periods) if each.priority <= priority]
    return below[-1] if below else 0
