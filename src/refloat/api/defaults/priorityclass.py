# SPDX-License-Identifier: Apache-2.0
"""The default values of a PriorityClass's fields."""

from refloat.api.meta import Object


def apply(item: Object) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")
