# SPDX-License-Identifier: Apache-2.0
"""Objects of one kind in memory, by key and by declared indexes.

Controllers only read; the informer calls `put` and `remove`. All readers share
the objects, and no object changes: a new version is a new object. The order is
always that of insertion, never of a set, so equal histories give equal answers.
"""

from collections.abc import Iterable, Iterator, KeysView
from typing import Generic, TypeVar

from refloat.api.structs import ApiObject
from refloat.runtime.index import Index

T = TypeVar("T", bound=ApiObject)


def key_of(obj: ApiObject) -> str:
    """`namespace/name`, and the name alone where there is no namespace."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def split_key(key: str) -> tuple[str, str]:
    """The namespace, which may be empty, and the name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


class Cache(Generic[T]):
    """The objects of one kind."""

    def __init__(self, indexes: Iterable[Index[T]] = ()) -> None:
        self._objects: dict[str, T] = {}
        self._indexes: list[Index[T]] = []
        # index -> value -> keys; a dict keeps their order
        self._buckets: dict[str, dict[str, dict[str, None]]] = {}
        for each in indexes:
            self.add_index(each)

    def add_index(self, index: Index[T]) -> None:
        """Declare an index; a declared index stays unchanged."""
        if index in self._indexes:
            return
        if index.name in self._buckets:
            raise ValueError(f"two indexes of one cache have the name {index.name!r}")
        self._indexes.append(index)
        self._buckets[index.name] = {}
        for key, obj in self._objects.items():
            self._note(index, index.values(obj), key)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def keys(self) -> KeysView[str]:
        return self._objects.keys()

    def by(self, index: Index[T], value: str) -> list[T]:
        """The objects with this value, in a list of the caller's own."""
        objects = self._objects
        return [objects[key] for key in self._buckets[index.name].get(value, ())]

    def count(self, index: Index[T], value: str) -> int:
        """How many objects have this value."""
        return len(self._buckets[index.name].get(value, ()))

    def put(self, key: str, obj: T) -> None:
        """Add an object, or replace the object with the same key."""
        old = self._objects.get(key)
        self._objects[key] = obj
        for index in self._indexes:
            before = index.values(old) if old is not None else ()
            now = index.values(obj)
            if before != now:
                self._forget(index, before, key)
                self._note(index, now, key)

    def remove(self, key: str) -> None:
        """Remove the object with this key, which must exist."""
        old = self._objects.pop(key)
        for index in self._indexes:
            self._forget(index, index.values(old), key)

    def _note(self, index: Index[T], values: Iterable[str], key: str) -> None:
        buckets = self._buckets[index.name]
        for value in values:
            buckets.setdefault(value, {})[key] = None

    def _forget(self, index: Index[T], values: Iterable[str], key: str) -> None:
        buckets = self._buckets[index.name]
        for value in values:
            bucket = buckets.get(value)
            if bucket is None:
                continue  # an object may have the same value twice
            bucket.pop(key, None)
            if not bucket:
                del buckets[value]
