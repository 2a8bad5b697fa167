# SPDX-License-Identifier: Apache-2.0
"""Between the pod worker and those that let pods in and make them leave.

Apart from the worker so that neither knows the other: `admission` is the gate
that asks what a kubelet asks; it, `eviction` and `shutdown` end pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from refloat.agent.status import Ending
from refloat.api.core import Pod


@dataclass(frozen=True, slots=True)
class Later:
    """A pod that is not let in yet."""

    retry_seconds: float | None = None
    """When it is asked about again; None: when another pod has left."""


LATER = Later()


class Gate(Protocol):
    """Admits pods, and knows who is there."""

    async def admit(self, pod: Pod) -> Ending | Later | None:
        """None: it may begin. Between this answer and `joined` nothing is awaited."""
        ...

    def joined(self, pod: Pod) -> None:
        """It was admitted, now or by an agent before this one."""
        ...

    def left(self, uid: str) -> None:
        """It has ended, and takes nothing any more."""
        ...


class OpenGate:
    """Takes everybody."""

    async def admit(self, pod: Pod) -> Ending | Later | None:
        return None

    def joined(self, pod: Pod) -> None:
        """Nobody counts."""

    def left(self, uid: str) -> None:
        """Nobody counts."""


class Tenants(Protocol):
    """The pod worker, as those see it that end pods for the node's sake."""

    def active(self) -> Sequence[Pod]:
        """Those that were admitted and have not ended."""
        ...

    def is_active(self, uid: str) -> bool: ...

    def is_ending(self, uid: str) -> bool:
        """Whether the node itself ends it."""
        ...

    def kill(self, uid: str, ending: Ending) -> bool:
        """Begin to end it, or end it sooner or for another reason; is it this that ends it?"""
        ...
