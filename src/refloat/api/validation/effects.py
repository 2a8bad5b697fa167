# SPDX-License-Identifier: Apache-2.0
"""Which effects a taint or a toleration may have.

`ForceEviction` is Refloat's (KEP-36). While its gate is off it is as unknown as
it is to Kubernetes, but what was stored while it was on stays valid as it is:
else nobody could write the object any more, not even to take it off.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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

    def of(self, each: Object) -> tuple[str, ...]:
        """Those that this taint or toleration may have."""
        known = self.force_eviction or any(_is_same(each, other) for other in self.stored)
        return (*STOCK, FORCE_EVICTION) if known else STOCK


NONE_NEW = Effects()


def _is_same(one: Object, other: Object) -> bool:
    return all((one.get(key) or "") == (other.get(key) or "") for key in _IDENTITY)
