# SPDX-License-Identifier: Apache-2.0
"""What a PriorityClass's fields are when nobody says."""

from refloat.api.meta import Object


def apply(item: Object) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")
