# SPDX-License-Identifier: Apache-2.0
"""Items of merged lists: their keys, and their order.

Items that the patch (or its `$setElementOrder`) names come in the patch's
order, the others in the live list's, and the two are interleaved so that an
item of the live list stays before the first named one that it was before.
"""

import math
from typing import Any, TypeAlias

from refloat.api import errors
from refloat.apiserver.patch import go_values, rejections

# In Go, 1, 1.0 and true are different, so a key includes its type.
Key: TypeAlias = tuple[type, Any]


def key_of(item: Any, merge_key: str) -> Key:
    """The key of an item: the value of the merge key, or the scalar itself."""
    if not merge_key:
        return _comparable(item)
    if not isinstance(item, dict):
        raise bad_argument("map[string]interface {}", item)
    if merge_key not in item:
        text = go_values.show(item)
        raise rejections.plain(f"map: {text} does not contain declared merge key: {merge_key}")
    return _comparable(item[merge_key])


def _comparable(value: Any) -> Key:
    return type(value), repr(value) if isinstance(value, dict | list) else value


def bad_argument(expected: str, value: Any) -> errors.StatusError:
    return rejections.plain(f"expected a {expected}, but received a {go_values.type_name(value)}")


def places(items: list[Any], merge_key: str) -> dict[Key, int]:
    """The first place of each key; skips items without a key."""
    by_key: dict[Key, int] = {}
    for place, item in enumerate(items):
        if merge_key and not isinstance(item, dict):
            raise rejections.plain(f"value for key {place} is not a map")
        if not merge_key or merge_key in item:
            by_key.setdefault(key_of(item, merge_key), place)
    return by_key


def element_type(*lists: list[Any]) -> type:
    """The one type of all elements."""
    first: type | None = None
    for items in lists:
        for item in items:
            if first is None:
                first = type(item)
                if first is list:
                    raise rejections.unprocessable()
            elif type(item) is not first:
                text = go_values.show(list(lists))
                raise rejections.plain(f"list element types are not identical: {text}")
    if first is None:
        raise rejections.plain("no elements in any of the given slices")
    return first


def arrange(items: list[Any], order: list[Any], live: list[Any], merge_key: str) -> list[Any]:
    """The merged items in their order."""
    named_places, live_places = places(order, merge_key), places(live, merge_key)
    mine: list[Any] = []
    others: list[Any] = []
    for item in items:
        (mine if key_of(item, merge_key) in named_places else others).append(item)
    for item in [*order, *live]:
        key_of(item, merge_key)
    result: list[Any] = []
    waiting = iter(_sorted(others, live_places, merge_key))
    other = next(waiting, None)
    for item in _sorted(mine, named_places, merge_key):
        place = live_places.get(key_of(item, merge_key))
        while other is not None and place is not None:
            rank = live_places.get(key_of(other, merge_key))
            if rank is None or rank >= place:
                break
            result.append(other)
            other = next(waiting, None)
        result.append(item)
    if other is not None:
        result.append(other)
    return [*result, *waiting]


def _sorted(items: list[Any], order: dict[Key, int], merge_key: str) -> list[Any]:
    """The items in the order of their places; a stable sort.

    Kubernetes sorts by insertion, with a comparison by which an item without a place
    is smaller than any other item, and any other item smaller than that one. So an
    item without a place goes before all earlier items, and a later item goes before
    it only if its place is below all of theirs. A sort by that bound gives the same.
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


def check(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """Check that the patch's items are in the order list, in the same order."""
    if not patch or not order:
        return
    items = patch
    if merge_key:
        for item in patch:
            if not isinstance(item, dict):
                raise bad_argument("map[string]interface {}", item)
        items = [item for item in patch if item.get("$patch") != "delete"]
    at = 0
    for item in items:
        # An item with `$patch` may be anywhere, but not behind the end of the order.
        if isinstance(item, dict) and "$patch" in item and at < len(order):
            continue
        while at < len(order) and key_of(item, merge_key) != key_of(order[at], merge_key):
            at += 1
        at += 1
        if at > len(order):
            raise rejections.plain(
                f"The order in patch list:\n{go_values.show(patch)}\n"
                f" doesn't match $setElementOrder list:\n{go_values.show(order)}\n"
            )
