# SPDX-License-Identifier: Apache-2.0
"""Objects of one kind in memory, found by key and by what was declared.

Controllers only read; `put` and `remove` are the informer's. What comes out
is shared by everybody and never changes: a new version is a new object. All
orders are those of insertion, never of a set, so equal histories give equal
answers.
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
    """What is known of the objects of one kind."""

    def __init__(self, indexes: Iterable[Index[T]] = ()) -> None:
        self._objects: dict[str, T] = {}
        self._indexes = tuple(indexes)
        # index -> value -> keys; the keys' values are of no meaning
        self._buckets: dict[str, dict[str, dict[str, None]]] = {
            each.name: {} for each in self._indexes
        }
        if len(self._buckets) != len(self._indexes):
            raise ValueError("two indexes of one cache have the same name")

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
        """Keep an object in the place of the one with its key, if there is one."""
        old = self._objects.get(key)
        self._objects[key] = obj
        for index in self._indexes:
            before = index.values(old) if old is not None else ()
            now = index.values(obj)
            if before != now:
                self._forget(index, before, key)
                self._note(index, now, key)

    def remove(self, key: str) -> None:
        """Forget the object with this key, which must be there."""
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
                continue  # one value may stand twice among an object's own
            bucket.pop(key, None)
            if not bucket:
                del buckets[value]
