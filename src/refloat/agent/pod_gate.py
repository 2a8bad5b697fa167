# SPDX-License-Identifier: Apache-2.0
"""Interfaces between the pod worker and the modules that admit and end pods.

`admission` is the gate; `admission`, `eviction` and `shutdown` end pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from refloat.agent.pod_status import Ending
from refloat.api.core import Pod


@dataclass(frozen=True, slots=True)
class Later:
    """The pod is not admitted yet."""

    retry_seconds: float | None = None
    """Seconds until the next try; None: when another pod has left."""


LATER = Later()


class PodGate(Protocol):
    """Admits pods, and counts the admitted ones."""

    async def admit(self, pod: Pod) -> Ending | Later | None:
        """None: the pod may start. The caller awaits nothing between this answer and `joined`."""
        ...

    def joined(self, pod: Pod) -> None:
        """Count a pod that was admitted, now or by an earlier agent."""
        ...

    def left(self, uid: str) -> None:
        """Stop counting a pod that has ended."""
        ...


class OpenGate:
    """Admits every pod."""

    async def admit(self, pod: Pod) -> Ending | Later | None:
        return None

    def joined(self, pod: Pod) -> None:
        """Counts nothing."""

    def left(self, uid: str) -> None:
        """Counts nothing."""


class ActivePods(Protocol):
    """The pod worker, for modules that end pods for the node."""

    def active(self) -> Sequence[Pod]:
        """Pods that were admitted and have not ended."""
        ...

    def is_active(self, uid: str) -> bool: ...

    def is_ending(self, uid: str) -> bool:
        """Whether the node itself ends the pod."""
        ...

    def kill(self, uid: str, ending: Ending) -> bool:
        """End a pod, or end it sooner or for another reason. Returns whether this call ends it."""
        ...
