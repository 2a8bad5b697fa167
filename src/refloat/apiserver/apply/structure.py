# SPDX-License-Identifier: Apache-2.0
"""Values and their shapes: merging, comparing, pruning, listing paths.

Nothing here knows managers. The functions never change their arguments; results
share equal parts.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from refloat.apiserver.apply import elements, shapes
from refloat.apiserver.apply.field_sets import Path, PathSet
from refloat.apiserver.apply.shapes import Shape, ShapeKind

ABSENT: Any = object()  # unlike None, which is an explicit null


def _is_empty(value: Any) -> bool:
    return value is ABSENT or value is None or value in ({}, [])


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any, shape: Shape) -> Iterator[tuple[str, Any]]:
    """Items with their elements; skips items without element, which have no owner."""
    for item in value if isinstance(value, list) else ():
        try:
            yield shape.item_element(item), item
        except shapes.BadItem:
            continue


def has_nameless_items(value: Any, shape: Shape) -> bool:
    """Whether a list with keys has an item without them."""
    if shape.kind in (ShapeKind.STRUCT, ShapeKind.MAP):
        return any(
            has_nameless_items(each, shape.member(name)) for name, each in _members(value).items()
        )
    if shape.kind is ShapeKind.LEAF or not isinstance(value, list):
        return False
    pairs = list(_items(value, shape))
    element = shape.element or shapes.LEAF
    return len(pairs) < len(value) or any(has_nameless_items(each, element) for _, each in pairs)


def paths_of(value: Any, shape: Shape) -> PathSet:
    """The paths that a value has."""
    paths = PathSet()
    _collect(value, shape, (), paths)
    return paths


def _collect(value: Any, shape: Shape, path: Path, paths: PathSet) -> None:
    if shape.kind is ShapeKind.LEAF:
        paths.insert(path)
    elif shape.kind in (ShapeKind.STRUCT, ShapeKind.MAP):
        for name, each in _members(value).items():
            below = (*path, elements.member(name))
            _collect(each, shape.member(name), below, paths)
            if each is None or each == {} or not shape.is_named(name):
                paths.insert(below)
    else:
        for element, group in _grouped(value, shape).items():
            below = (*path, element)
            if len(group) == 1:
                _collect(group[0], shape.element or shapes.LEAF, below, paths)
            paths.insert(below)


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
    """The removed, modified and added paths from old to new."""
    comparison = Comparison()
    _compare(old, new, shape, (), comparison)
    return comparison


def _compare(old: Any, new: Any, shape: Shape, path: Path, comparison: Comparison) -> None:
    if old is new or (old is not ABSENT and new is not ABSENT and old == new):
        return
    if shape.kind is ShapeKind.LEAF or (_is_empty(old) and _is_empty(new)):
        _record(old, new, path, comparison)
        return
    if shape.kind in (ShapeKind.STRUCT, ShapeKind.MAP):
        before, after = _members(old), _members(new)
        for name in before | after:
            below = (*path, elements.member(name))
            one, other = before.get(name, ABSENT), after.get(name, ABSENT)
            _compare(one, other, shape.member(name), below, comparison)
    else:
        inner = shape.element or shapes.LEAF
        olds, news = _grouped(old, shape), _grouped(new, shape)
        for element in olds | news:
            below, ones, others = (*path, element), olds.get(element, []), news.get(element, [])
            one = ones[0] if len(ones) == 1 else ABSENT
            other = others[0] if len(others) == 1 else ABSENT
            _compare(one, other, inner, below, comparison)
            # Items with repeated keys have one owner together.
            repeated = ones if len(ones) > 1 else ABSENT
            repeated_later = others if len(others) > 1 else ABSENT
            if repeated != repeated_later:
                _record(repeated, repeated_later, below, comparison)
    if old is ABSENT or new is ABSENT:
        _record(old, new, path, comparison)


def _record(old: Any, new: Any, path: Path, comparison: Comparison) -> None:
    if old is ABSENT:
        comparison.added.insert(path)
    elif new is ABSENT:
        comparison.removed.insert(path)
    else:
        comparison.modified.insert(path)


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """The live value with the configuration laid over it."""
    if config is ABSENT:
        return live
    if live is ABSENT or shape.kind is ShapeKind.LEAF or (_is_empty(live) and _is_empty(config)):
        return config
    if shape.kind in (ShapeKind.STRUCT, ShapeKind.MAP):
        merged = dict(_members(live))
        for name, value in _members(config).items():
            merged[name] = merge(merged.get(name, ABSENT), value, shape.member(name))
        return merged
    return _merge_items(list(_items(live, shape)), list(_items(config, shape)), shape)


def _merge_items(
    live: list[tuple[str, Any]], config: list[tuple[str, Any]], shape: Shape
) -> list[Any]:
    """The items of both lists; those of the configuration keep its order.

    An item that only the live list has stays behind its predecessor there, as far as
    the configuration's order allows.
    """
    inner = shape.element or shapes.LEAF
    merged: list[Any] = []
    counts = Counter(element for element, _ in live)
    # A repeated item does not merge.
    ours = {element: item if counts[element] == 1 else None for element, item in live}
    theirs = {element for element, _ in config}
    # For each place in the configuration, the next element that is also in the live list.
    due: list[str | None] = [None]
    for element, _ in reversed(config):
        due.append(element if element in ours else due[-1])
    due.reverse()
    so_far: set[str] = set()
    live_index = config_index = 0
    while live_index < len(live) or config_index < len(config):
        if live_index < len(live):
            element, item = live[live_index]
            if element not in theirs:
                merged.append(item)
                live_index += 1
                continue
            if due[config_index] not in (None, element):
                live_index += 1  # the configuration's order places the item
                continue
            live_index += element in so_far or config[config_index][0] == element
        if config_index < len(config):
            element, item = config[config_index]
            so_far.add(element)
            merged.append(merge(ours.get(element, ABSENT), item, inner))
            config_index += 1
    return merged


def remove(value: Any, shape: Shape, paths: PathSet) -> Any:
    """The value without these paths; an emptied part becomes null."""
    if shape.kind in (ShapeKind.STRUCT, ShapeKind.MAP):
        members = {}
        for name, each in _members(value).items():
            element = elements.member(name)
            if element not in paths.members:
                below = paths.below(element)
                members[name] = each if below.empty else remove(each, shape.member(name), below)
        return members or None
    if shape.kind is ShapeKind.LEAF:
        return None if isinstance(value, dict | list) else value
    items = []
    for element, item in _items(value, shape):
        if element not in paths.members:
            below = paths.below(element)
            items.append(item if below.empty else remove(item, shape.part(element), below))
    return items or None


def with_named(paths: PathSet, shape: Shape) -> PathSet:
    """The paths, and the struct fields on the way to them, which sets leave out."""
    members = set(paths.members)
    children = {}
    for element, child in paths.children.items():
        if shape.is_named(element[2:]) and element.startswith("f:"):
            members.add(element)
        children[element] = with_named(child, shape.part(element))
    return PathSet(members, children)
