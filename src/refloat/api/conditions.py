# SPDX-License-Identifier: Apache-2.0
"""The conditions of an object's status: finding them, and writing them.

Which conditions there are and what they mean is not known here.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from refloat.api import structs
from refloat.api.meta import Object

Condition: TypeAlias = dict[str, Any]


def of(obj: Object) -> list[Condition]:
    """The conditions of an object, empty for none."""
    return (obj.get("status") or {}).get("conditions") or []


def find(conditions: list[Condition], condition_type: str) -> Condition | None:
    """The first condition of this type."""
    for condition in conditions:
        if condition.get("type") == condition_type:
            return condition
    return None


def is_true(conditions: list[Condition], condition_type: str) -> bool:
    """Whether the first condition of this type has status True."""
    condition = find(conditions, condition_type)
    return condition is not None and condition.get("status") == "True"


def upsert(conditions: list[Condition], condition: Condition, *, now: str) -> bool:
    """Put a condition in the place of the one of its type, or at the end.

    `lastTransitionTime` becomes `now`, a timestamp, unless the status stays
    the same. Returns whether anything changed.
    """
    old = find(conditions, condition["type"])
    if old is None:
        conditions.append({**condition, "lastTransitionTime": now})
        return True
    old_time = (
        old.get("lastTransitionTime") if old.get("status") == condition.get("status") else None
    )
    new = {**condition, "lastTransitionTime": old_time or now}
    if new == old:
        return False
    conditions[conditions.index(old)] = new
    return True


def merged(conditions: structs.Conditions, changed: Sequence[Condition]) -> Object:
    """The part of a strategic merge patch that changes conditions.

    New ones come last, as in a write of the whole list; without the order they
    would come first. The server requires the changes in that order too.
    """
    types = [each.type for each in conditions or ()] + [each["type"] for each in changed]
    places = {each: place for place, each in enumerate(dict.fromkeys(types))}
    return {
        "$setElementOrder/conditions": [{"type": each} for each in places],
        "conditions": sorted(changed, key=lambda each: places[each["type"]]),
    }
