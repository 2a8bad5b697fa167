# SPDX-License-Identifier: Apache-2.0
"""Values and their shapes: merging, comparing, pruning, listing paths.

Nothing here knows managers. Inputs are never changed; results share what is
the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from refloat.apiserver.apply import elements, shapes
from refloat.apiserver.apply.sets import Path, PathSet
from refloat.apiserver.apply.shapes import Kind, Shape

ABSENT: Any = object()  # unlike None, which is an explicit null


def _is_empty(value: Any) -> bool:
    return value is ABSENT or value is None or value in ({}, [])


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any, shape: Shape) -> Iterator[tuple[str, Any]]:
    """Items with their elements; those without one have no owner."""
    for item in value if isinstance(value, list) else ():
        try:
            yield shape.item_element(item), item
        except shapes.BadItem:
            continue


def has_nameless_items(value: Any, shape: Shape) -> bool:
    """Is there a list that should be told by keys, with an item that has none?"""
    if shape.kind in (Kind.STRUCT, Kind.MAP):
        return any(
            has_nameless_items(each, shape.member(name)) for name, each in _members(value).items()
        )
    if shape.kind is Kind.LEAF or not isinstance(value, list):
        return False
    named = list(_items(value, shape))
    element = shape.element or shapes.LEAF
    return len(named) < len(value) or any(has_nameless_items(each, element) for _, each in named)


def paths_of(value: Any, shape: Shape) -> PathSet:
    """The paths that a value says something about."""
    found = PathSet()
    _collect(value, shape, (), found)
    return found


def _collect(value: Any, shape: Shape, path: Path, found: PathSet) -> None:
    if shape.kind is Kind.LEAF:
        found.insert(path)
    elif shape.kind in (Kind.STRUCT, Kind.MAP):
        for name, each in _members(value).items():
            below = (*path, elements.member(name))
            _collect(each, shape.member(name), below, found)
            if each is None or each == {} or not shape.is_named(name):
                found.insert(below)
    else:
        for element, group in _grouped(value, shape).items():
            below = (*path, element)
            if len(group) == 1:
                _collect(group[0], shape.element or shapes.LEAF, below, found)
            found.insert(below)


def _grouped(value: Any, shape: Shape) -> dict[str, list[Any]]:
    """A list's items under their elements; more than one where keys repeat."""
    groups: dict[str, list[Any]] = {}
    for element, item in _items(value, shape):
        groups.setdefault(element, []).append(item)
    return groups


@dataclass(slots=True)
class Comparison:
    """How one value differs from another."""

    removed: PathSet = field(default_factory=PathSet)
    modified: PathSet = field(default_factory=PathSet)
    added: PathSet = field(default_factory=PathSet)

    def without(self, paths: PathSet) -> "Comparison":
        return Comparison(
            self.removed.without(paths), self.modified.without(paths), self.added.without(paths)
        )

    @property
    def written(self) -> PathSet:
        return self.modified.union(self.added)


def compare(old: Any, new: Any, shape: Shape) -> Comparison:
    """What was removed, modified and added on the way from old to new."""
    found = Comparison()
    _compare(old, new, shape, (), found)
    return found


def _compare(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
    if old is new or (old is not ABSENT and new is not ABSENT and old == new):
        return
    if shape.kind is Kind.LEAF or (_is_empty(old) and _is_empty(new)):
        _note(old, new, path, found)
        return
    if shape.kind in (Kind.STRUCT, Kind.MAP):
        before, after = _members(old), _members(new)
        for name in before | after:
            below = (*path, elements.member(name))
            one, other = before.get(name, ABSENT), after.get(name, ABSENT)
            _compare(one, other, shape.member(name), below, found)
    else:
        _compare_items(old, new, shape, path, found)
    if old is ABSENT or new is ABSENT:
        _note(old, new, path, found)


def _note(old: Any, new: Any, path: Path, found: Comparison) -> None:
    if old is ABSENT:
        found.added.insert(path)
    elif new is ABSENT:
        found.removed.insert(path)
    else:
        found.modified.insert(path)


def _compare_items(old: Any, new: Any, shape: Shape, path: Path, found: Comparison) -> None:
    before, after = _grouped(old, shape), _grouped(new, shape)
    for element in before | after:
        below = (*path, element)
        one, other = before.get(element, []), after.get(element, [])
        if len(one) < 2 and len(other) < 2:
            pair = (one[0] if one else ABSENT, other[0] if other else ABSENT)
            _compare(*pair, shape.element or shapes.LEAF, below, found)
        else:
            _compare_repeated(one, other, shape.element or shapes.LEAF, below, found)


def _compare_repeated(
    old: list[Any], new: list[Any], shape: Shape, path: Path, found: Comparison
) -> None:
    """Items whose keys repeat are owned together, as one leaf."""
    if len(old) > 1 and len(new) > 1:
        if old != new:
            found.modified.insert(path)
    elif len(old) > 1:
        if new:
            _compare(ABSENT, new[0], shape, path, found)
        found.removed.insert(path)
    else:
        if old:
            _compare(old[0], ABSENT, shape, path, found)
        found.added.insert(path)


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """The live value with the configuration laid over it."""
    if config is ABSENT:
        return live
    if live is ABSENT or shape.kind is Kind.LEAF or (_is_empty(live) and _is_empty(config)):
        return config
    if shape.kind in (Kind.STRUCT, Kind.MAP):
        merged = dict(_members(live))
        for name, value in _members(config).items():
            merged[name] = merge(merged.get(name, ABSENT), value, shape.member(name))
        return merged
    return _merge_items(list(_items(live, shape)), list(_items(config, shape)), shape)


def _merge_items(
    live: list[tuple[str, Any]], config: list[tuple[str, Any]], shape: Shape
) -> list[Any]:
    """The items of both: those in the configuration in its order.

    An item that only the live list has stays behind the one that it follows
    there, as far as the configuration's order allows that.
    """
    inner = shape.element or shapes.LEAF
    merged: list[Any] = []
    ours = _unrepeated(live)
    wanted = dict(config)
    due = _next_shared(config, ours)
    placed: set[str] = set()
    left = right = 0
    while left < len(live) or right < len(config):
        if left < len(live):
            element, item = live[left]
            if element not in wanted:
                merged.append(item)
                left += 1
                continue
            if due[right] not in (None, element):
                left += 1  # its turn has been, or comes by the configuration's order
                continue
            left += element in placed or config[right][0] == element
        if right < len(config):
            element, item = config[right]
            placed.add(element)
            merged.append(merge(ours.get(element, ABSENT), item, inner))
            right += 1
    return merged


def _unrepeated(live: list[tuple[str, Any]]) -> dict[str, Any]:
    """Items by their elements; one that is repeated is not merged into."""
    found: dict[str, Any] = {}
    for element, item in live:
        found[element] = None if element in found else item
    return found


def _next_shared(config: list[tuple[str, Any]], live: dict[str, Any]) -> list[str | None]:
    """For each place in the configuration, the next element that the live list has too."""
    found: list[str | None] = [None]
    for element, _ in reversed(config):
        found.append(element if element in live else found[-1])
    found.reverse()
    return found


def remove(value: Any, shape: Shape, paths: PathSet) -> Any:
    """The value without these paths; what is emptied by it becomes null."""
    if shape.kind in (Kind.STRUCT, Kind.MAP):
        return _remove_members(_members(value), shape, paths) or None
    if shape.kind is Kind.LEAF:
        return None if isinstance(value, dict | list) else value
    kept = []
    for element, item in _items(value, shape):
        if element not in paths.members:
            below = paths.below(element)
            kept.append(item if below.empty else remove(item, shape.part(element), below))
    return kept or None


def _remove_members(value: dict[str, Any], shape: Shape, paths: PathSet) -> dict[str, Any]:
    kept = {}
    for name, each in value.items():
        element = elements.member(name)
        if element not in paths.members:
            below = paths.below(element)
            kept[name] = each if below.empty else remove(each, shape.member(name), below)
    return kept


def with_named(paths: PathSet, shape: Shape) -> PathSet:
    """Also the fields of structs on the way to a path, which sets leave out."""
    members = set(paths.members)
    children = {}
    for element, child in paths.children.items():
        if shape.is_named(element[2:]) and element.startswith("f:"):
            members.add(element)
        children[element] = with_named(child, shape.part(element))
    return PathSet(members, children)
