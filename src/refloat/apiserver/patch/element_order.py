# SPDX-License-Identifier: Apache-2.0
"""Items of merged lists: how they are found by their keys, and their order.

Items that the patch (or its `$setElementOrder`) names come in the patch's
order, the others in the live list's, and the two are interleaved so that an
item of the live list stays before the first named one that it was before.
"""

import math
from typing import Any, TypeAlias

from refloat.api import errors
from refloat.apiserver.patch import go_values, rejected

# Go tells 1, 1.0 and true apart, so a key is compared with its type.
Key: TypeAlias = tuple[type, Any]


def key_of(item: Any, merge_key: str) -> Key:
    """What an item is found by: its merge key's value, or a scalar itself."""
    if not merge_key:
        return _comparable(item)
    if not isinstance(item, dict):
        raise bad_argument("map[string]interface {}", item)
    if merge_key not in item:
        shown = go_values.show(item)
        raise rejected.plain(f"map: {shown} does not contain declared merge key: {merge_key}")
    return _comparable(item[merge_key])


def _comparable(value: Any) -> Key:
    return type(value), repr(value) if isinstance(value, dict | list) else value


def bad_argument(expected: str, value: Any) -> errors.StatusError:
    return rejected.plain(f"expected a {expected}, but received a {go_values.type_name(value)}")


def places(items: list[Any], merge_key: str) -> dict[Key, int]:
    """Where each key stands, the first of several; items without one are passed over."""
    found: dict[Key, int] = {}
    for place, item in enumerate(items):
        if merge_key and not isinstance(item, dict):
            raise rejected.plain(f"value for key {place} is not a map")
        if not merge_key or merge_key in item:
            found.setdefault(key_of(item, merge_key), place)
    return found


def element_type(*lists: list[Any]) -> type:
    """The one type of all elements."""
    first: type | None = None
    for items in lists:
        for item in items:
            if first is None:
                first = type(item)
                if first is list:
                    raise rejected.unprocessable()
            elif type(item) is not first:
                shown = go_values.show(list(lists))
                raise rejected.plain(f"list element types are not identical: {shown}")
    if first is None:
        raise rejected.plain("no elements in any of the given slices")
    return first


def arranged(items: list[Any], named: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """The merged items in their order."""
    named_places, live_places = places(named, merge_key), places(live, merge_key)
    mine: list[Any] = []
    others: list[Any] = []
    for item in items:
        (mine if key_of(item, merge_key) in named_places else others).append(item)
    for item in [*named, *live]:
        key_of(item, merge_key)
    return _interleaved(
        _sorted(others, live_places, merge_key),
        _sorted(mine, named_places, merge_key),
        live_places,
        merge_key,
    )


def _sorted(items: list[Any], order: dict[Key, int], merge_key: str) -> list[Any]:
    """The items by their places, those with equal places as they were.

    Kubernetes sorts by insertion, with a comparison that calls an item without
    a place smaller than any other, and any other smaller than it. So such an
    item is put before all that there are; a later one comes before it only if
    its place is below all of theirs. Sorting by that bound gives the same.
    """
    lowest = math.inf
    keys: list[tuple[float, int, int]] = []
    for index, item in enumerate(items):
        rank = order.get(key_of(item, merge_key))
        if rank is None:
            keys.append((lowest, 0, -index))
        else:
            keys.append((rank, 1, index))
            lowest = min(lowest, rank)
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]


def _interleaved(
    others: list[Any], mine: list[Any], live: dict[Key, int], merge_key: str
) -> list[Any]:
    result: list[Any] = []
    waiting = iter(others)
    other = next(waiting, None)
    for item in mine:
        place = live.get(key_of(item, merge_key))
        while other is not None and place is not None:
            rank = live.get(key_of(other, merge_key))
            if rank is None or rank >= place:
                break
            result.append(other)
            other = next(waiting, None)
        result.append(item)
    if other is not None:
        result.append(other)
    return [*result, *waiting]


def check(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """The patch's items must stand in the order list, in the same order."""
    if not patch or not order:
        return
    at = 0
    for item in _not_deleted(patch) if merge_key else patch:
        at = _passed(item, order, at, merge_key)
        if at < 0:
            raise rejected.plain(
                f"The order in patch list:\n{go_values.show(patch)}\n"
                f" doesn't match $setElementOrder list:\n{go_values.show(order)}\n"
            )


def _not_deleted(patch: list[Any]) -> list[Any]:
    for item in patch:
        if not isinstance(item, dict):
            raise bad_argument("map[string]interface {}", item)
    return [item for item in patch if item.get("$patch") != "delete"]


def _passed(item: Any, order: list[Any], at: int, merge_key: str) -> int:
    """Where to look for the next item, or -1 when this one was not found."""
    if isinstance(item, dict) and "$patch" in item:
        # Such an item is passed over, but not behind the end of the order.
        return at if at < len(order) else -1
    while at < len(order):
        if key_of(item, merge_key) == key_of(order[at], merge_key):
            return at + 1
        at += 1
    return -1
