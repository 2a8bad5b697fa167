# SPDX-License-Identifier: Apache-2.0
"""How long a pod stays on a node with NoExecute taints (behaviour C2).

One decision, from the taints, the tolerations and whether a countdown runs. `tolerations` matches;
taint eviction counts down and deletes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from refloat.api.core import Taint, Toleration
from refloat.policy.scheduling import tolerations as matching
from refloat.policy.scheduling.tolerations import NO_EXECUTE

REASON = "DeletionByTaintManager"
MESSAGE = "Taint manager: deleting due to NoExecute taint"

Act: TypeAlias = Literal["evict", "start", "keep", "cancel"]


@dataclass(frozen=True, slots=True)
class Step:
    """The next step for a pod's countdown."""

    act: Act
    """`evict` ends a countdown and deletes now; `start` begins one; `cancel` ends one."""

    seconds: float = 0.0
    """The length of a countdown that begins."""


EVICT = Step("evict")
KEEP = Step("keep")
CANCEL = Step("cancel")


def executing(taints: Iterable[Taint] | None) -> tuple[Taint, ...]:
    """The taints that evict pods (C2.1)."""
    return tuple(each for each in taints or () if each.effect == NO_EXECUTE)


def decide(
    taints: Sequence[Taint], tolerations: Sequence[Toleration] | None, *, counting: bool
) -> Step:
    """What to do about a pod on a node with these NoExecute taints.

    A running countdown continues, whatever the new wait would be (C2.7).
    """
    if not taints:
        return CANCEL
    used = [_used(taint, tolerations or ()) for taint in taints]
    matched = [each for each in used if each is not None]
    if len(matched) < len(used):
        return EVICT
    # The least of their seconds counts, below zero as zero; without any, all tolerate forever
    # (C2.5).
    limits = [each.toleration_seconds for each in matched if each.toleration_seconds is not None]
    if not limits:
        return CANCEL
    return KEEP if counting else Step("start", max(0.0, float(min(limits))))


def _used(taint: Taint, tolerations: Sequence[Toleration]) -> Toleration | None:
    """The first toleration that matches, whatever the others are (C2.3)."""
    return next((each for each in tolerations if matching.tolerates(each, taint)), None)
