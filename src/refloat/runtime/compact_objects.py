# SPDX-License-Identifier: Apache-2.0
"""Shrinks objects before a cache keeps them.

The pods of one Job differ in a few texts only, but decoding gives each pod parts
of its own. A `Compactor` replaces equal parts by one shared part: texts, maps,
lists and whole structs. A pod of 6 KB then takes about 2 KB. A compactor is for
one type and walks the declared fields (`structs.Own` marks fields that are never
alike). The compactor changes the object in place, so the caller must own the
object.

A compactor knows no kind and keeps no object, and a bounded number of parts.
"""

import sys
import types
from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import or_
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from refloat.api.structs import Own, Partial, Time

T = TypeVar("T", bound=Partial)

# A compactor remembers so many parts, and forgets all if there are more: objects
# keep their parts, but new objects share new ones. Ten thousand are the maps and
# lists of about a thousand Jobs, and take 2 MB.
SHARED_PARTS = 10_000

# The annotation of kubectl apply: a copy of the whole object, which only kubectl reads.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_Shrink = Callable[[Any], Any]
_Rows = list[tuple[str, _Shrink]]

_set = msgspec.structs.force_setattr
_encode = msgspec.msgpack.Encoder().encode


class Compactor(Generic[T]):
    """Shrinks objects of one type."""

    def __init__(self, type_: type[T]) -> None:
        self._parts: dict[object, Any] = {}
        self._own: list[tuple[str, _Rows]] = []  # the structs right below an object
        self._rest: _Rows = []
        for name, hint in get_type_hints(type_, include_extras=True).items():
            struct = _without_none(hint)
            if _is_struct(struct):
                # Equal specs and statuses are too rare to be looked for as wholes.
                self._own.append((name, self._rows(struct)))
            elif (shrink := self._of(hint)) is not None:
                self._rest.append((name, shrink))

    def compact(self, obj: T, old: T | None = None) -> None:
        """Replace the parts of an object by shared parts, in place.

        A new version has mostly the parts of the `old` one, and a comparison with
        that one is cheaper than a search for equal parts.
        """
        for name, rows in self._own:
            value, before = getattr(obj, name), getattr(old, name, None)
            if value is None:
                continue
            if before is None:
                _each_field(rows, value)
            elif value == before:
                _set(obj, name, before)
            else:
                for field, shrink in rows:
                    if part := getattr(value, field):
                        same = part == (part_before := getattr(before, field))
                        _set(value, field, part_before if same else shrink(part))
        if self._rest:
            _each_field(self._rest, obj)
        if len(self._parts) > SHARED_PARTS:
            self._parts.clear()

    def _rows(self, struct: type[Partial]) -> _Rows:
        hints = get_type_hints(struct, include_extras=True)
        rows = [(name, self._of(hint)) for name, hint in hints.items()]
        return [(name, shrink) for name, shrink in rows if shrink is not None]

    def _walk(self, struct: type[Partial]) -> Callable[[Any], object]:
        """A function that shrinks each field of a struct."""
        return partial(_each_field, self._rows(struct))

    def _of(self, hint: Any) -> _Shrink | None:
        """The function that shrinks a value of this type; None if a value cannot shrink."""
        hint = _without_none(hint)
        if hint == Own or hint in (int, bool, int | str):
            return None
        if hint is str or hint == Time:
            return sys.intern
        if hint is msgspec.Raw:
            return self._raw
        if get_origin(hint) is Mapping:
            return self._map
        if get_origin(hint) is not tuple:
            return self._share(hint, self._walk(hint))
        element = get_args(hint)[0]
        if element in (str, int):
            return partial(self._shared, lambda _: None)
        if _has_times(element):
            return partial(self._one_by_one, self._share(element, self._walk(element)))
        return self._share(element, partial(_each, self._walk(element)))

    def _share(self, struct: type[Partial], shrink: Callable[[Any], object]) -> _Shrink:
        """Shares equal values, structs or lists of structs, and shrinks each new one."""
        if _is_hashable(struct):
            return partial(self._shared, shrink)

        def share_encoded(value: Any) -> Any:
            """By the encoded form, because the value has no hash. Two types may encode alike."""
            shared = self._parts.setdefault((struct, _encode(value)), value)
            if shared is value:
                shrink(value)
            return shared

        return share_encoded

    def _one_by_one(self, shrink: _Shrink, values: tuple[Any, ...]) -> Any:
        """Lists with times are seldom equal as a whole, but their elements often are."""
        small = tuple([shrink(value) for value in values])
        return self._parts.setdefault(small, small)

    def _shared(self, shrink: Callable[[Any], object], value: Any) -> Any:
        shared = self._parts.setdefault(value, value)
        if shared is value:
            shrink(value)
        return shared

    def _map(self, value: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(value.items())
        shared: Mapping[str, str] | None = self._parts.get(key)
        if shared is None:
            intern = sys.intern
            shared = {intern(k): intern(v) for k, v in key if k != LAST_APPLIED}
            self._parts[key] = shared
        return shared

    def _raw(self, value: msgspec.Raw) -> msgspec.Raw:
        """Copy the value: a raw value is a view, and keeps the whole answer in memory."""
        copied = bytes(value)
        shared: msgspec.Raw | None = self._parts.get(copied)
        if shared is None:
            shared = self._parts[copied] = msgspec.Raw(copied)
        return shared


def _each_field(rows: _Rows, obj: Any) -> None:
    for name, shrink in rows:
        value = getattr(obj, name)
        if value:
            small = shrink(value)
            if small is not value:
                _set(obj, name, small)


def _each(shrink: _Shrink, values: tuple[Any, ...]) -> None:
    for value in values:
        shrink(value)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not types.NoneType]
        return reduce(or_, rest)
    return hint


def _inner(struct: type[Partial]) -> list[Any]:
    """The types of a struct's fields, and for lists the types of the elements."""
    hints = map(_without_none, get_type_hints(struct, include_extras=True).values())
    return [
        _without_none(get_args(hint)[0]) if get_origin(hint) is tuple else hint for hint in hints
    ]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Partial)


def _is_hashable(struct: type[Partial]) -> bool:
    """Whether the struct contains no map and no raw value."""
    return not any(
        hint is msgspec.Raw
        or get_origin(hint) is Mapping
        or (_is_struct(hint) and not _is_hashable(hint))
        for hint in _inner(struct)
    )


def _has_times(struct: type[Partial]) -> bool:
    return any(hint == Time or (_is_struct(hint) and _has_times(hint)) for hint in _inner(struct))
