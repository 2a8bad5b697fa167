# SPDX-License-Identifier: Apache-2.0
"""Sets of paths, as trees, and their encoding as fieldsV1.

A tree of fields in which some nodes are members. The membership of a node is
independent of that of its children.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from refloat.apiserver.apply import elements

Path: TypeAlias = tuple[str, ...]

_SELF = "."

# Steps from an object to a field: those of the deepest type are about twenty.
MAX_DEPTH = 50


class PathSet:
    """A set of paths. Sets share parts, so only the creator of a set calls `insert`."""

    __slots__ = ("children", "members")

    def __init__(
        self, members: set[str] | None = None, children: "dict[str, PathSet] | None" = None
    ) -> None:
        self.members: set[str] = set() if members is None else members
        self.children: dict[str, PathSet] = {} if children is None else children

    def insert(self, path: Path) -> None:
        if not path:
            return  # the object as such has no owner
        node = self
        for element in path[:-1]:
            child = node.children.get(element)
            if child is None:
                child = node.children[element] = PathSet()
            node = child
        node.members.add(path[-1])

    @property
    def empty(self) -> bool:
        return not self.members and not self.children

    def below(self, element: str) -> "PathSet":
        """The rest of the paths that start with this element."""
        return self.children.get(element) or _EMPTY

    def has(self, path: Path) -> bool:
        node = self
        for element in path[:-1]:
            node = node.below(element)
        return path[-1] in node.members

    def union(self, other: "PathSet") -> "PathSet":
        children = dict(self.children)
        for element, child in other.children.items():
            mine = children.get(element)
            children[element] = child if mine is None else mine.union(child)
        return PathSet(self.members | other.members, children)

    def intersection(self, other: "PathSet") -> "PathSet":
        children = (
            (element, child.intersection(other.children[element]))
            for element, child in self.children.items()
            if element in other.children
        )
        return PathSet(self.members & other.members, _filled(children))

    def difference(self, other: "PathSet") -> "PathSet":
        """The paths that the other set lacks; a parent there does not remove children."""
        if other.empty:
            return self
        children = (
            (element, child.difference(other.below(element)))
            for element, child in self.children.items()
        )
        return PathSet(self.members - other.members, _filled(children))

    def without(self, other: "PathSet") -> "PathSet":
        """The paths that the other set lacks, and of which it has no parent."""
        if other.empty:
            return self
        children = (
            (element, child.without(other.below(element)))
            for element, child in self.children.items()
            if element not in other.members
        )
        return PathSet(self.members - other.members, _filled(children))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PathSet):
            return NotImplemented
        return self.members == other.members and self.children == other.children

    __hash__ = None  # type: ignore[assignment]

    def paths(self) -> Iterator[Path]:
        """All paths: those of a level in order, then those below."""
        for element in sorted(self.members, key=elements.order):
            yield (element,)
        for element in sorted(self.children, key=elements.order):
            for path in self.children[element].paths():
                yield (element, *path)


def _filled(children: Iterator[tuple[str, PathSet]]) -> dict[str, PathSet]:
    return {element: child for element, child in children if not child.empty}


_EMPTY = PathSet()


def of(*paths: Path) -> PathSet:
    path_set = PathSet()
    for path in paths:
        path_set.insert(path)
    return path_set


def show(path: Path) -> str:
    return "".join(map(elements.show, path))


def encode(paths: PathSet) -> dict[str, Any]:
    """The fieldsV1 of a set, in its canonical order."""
    encoded: dict[str, Any] = {}
    for element in sorted(paths.members | paths.children.keys(), key=elements.order):
        child = paths.children.get(element)
        if child is None:
            encoded[element] = {}
        elif element in paths.members:
            encoded[element] = {_SELF: {}, **encode(child)}
        else:
            encoded[element] = encode(child)
    return encoded


def decode(fields: dict[str, Any], depth: int = 0) -> PathSet:
    """The set of a fieldsV1 without unknown elements; raises `ValueError` if malformed."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deep")
    path_set = PathSet()
    for text, below in fields.items():
        element = None if text == _SELF else elements.canonical(text)
        if element is None:
            continue
        if below is None:
            below = {}  # as in Kubernetes
        if not isinstance(below, dict):
            raise ValueError(f"{text!r} holds no set")
        if not below or _SELF in below:
            path_set.members.add(element)
        child = decode(below, depth + 1) if below else _EMPTY
        if not child.empty:
            path_set.children[element] = child
    return path_set
