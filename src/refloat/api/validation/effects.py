# SPDX-License-Identifier: Apache-2.0
"""Which effects a taint or a toleration may have.

`ForceEviction` is Refloat's own (KEP-36). While the gate is off the effect is unknown,
as in Kubernetes. A stored taint or toleration with the effect stays valid, because
otherwise no client could write the object, not even to remove the effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from refloat.api.meta import Object

FORCE_EVICTION = "ForceEviction"

STOCK = ("NoSchedule", "PreferNoSchedule", "NoExecute")

# What else a taint or toleration has may change.
_IDENTITY = ("key", "operator", "value", "effect")


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects that are known, to one write of an object."""

    force_eviction: bool = False
    """Whether the gate is on."""

    stored: Sequence[Object] = ()
    """The taints or tolerations that the object has."""

    _forced: frozenset[tuple[str, ...]] = field(init=False)  # of those stored, by what they are

    def __post_init__(self) -> None:
        forced = (each for each in self.stored if each.get("effect") == FORCE_EVICTION)
        object.__setattr__(self, "_forced", frozenset(map(_identity, forced)))

    def of(self, each: Object) -> tuple[str, ...]:
        """Those that this taint or toleration may have."""
        if each.get("effect") != FORCE_EVICTION and not self.force_eviction:
            return STOCK  # the ordinary case; thousands of them are not compared with each other
        is_allowed = self.force_eviction or _identity(each) in self._forced
        return (*STOCK, FORCE_EVICTION) if is_allowed else STOCK


def _identity(each: Object) -> tuple[str, ...]:
    return tuple(each.get(key) or "" for key in _IDENTITY)


NONE_NEW = Effects()
