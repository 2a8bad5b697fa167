# SPDX-License-Identifier: Apache-2.0
"""Making objects small before they are kept.

The pods of one Job are alike but for a few texts, and yet every one is
decoded into parts of its own. A `Compactor` puts one shared part in the place
of equal ones: texts, maps, lists and whole structs. What is left for a pod of
6 KB is about 2 KB. It is made for one type, walks its fields as they are
declared (`structs.Own` says what is not worth looking at), and changes the
object in place: whoever decoded it gives it away.

It knows no kind and keeps no object; what it keeps of parts is bounded.
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

# Parts that are remembered for sharing. When there are more, all are
# forgotten: those that are in use stay in use, they are only not found again.
# Ten thousand are the maps and lists of about a thousand Jobs, and cost 2 MB.
SHARED_PARTS = 10_000

# What kubectl apply leaves on an object to compare with: a copy of the whole
# object, which nobody but kubectl reads.
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_Shrink = Callable[[Any], Any]
_Rows = list[tuple[str, _Shrink]]

_set = msgspec.structs.force_setattr
_encode = msgspec.msgpack.Encoder().encode


class Compactor(Generic[T]):
    """Makes objects of one type small."""

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
        """Replace the parts of an object by shared ones, in place.

        Most of a new version is what it was, and comparing with the one
        before is cheaper than looking for equal parts.
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
                _each_field_like(rows, value, before)
        if self._rest:
            _each_field(self._rest, obj)
        if len(self._parts) > SHARED_PARTS:
            self._parts.clear()

    def _rows(self, struct: type[Partial]) -> _Rows:
        hints = get_type_hints(struct, include_extras=True)
        rows = [(name, self._of(hint)) for name, hint in hints.items()]
        return [(name, shrink) for name, shrink in rows if shrink is not None]

    def _walk(self, struct: type[Partial]) -> Callable[[Any], object]:
        """Looks at each field of a struct."""
        return partial(_each_field, self._rows(struct))

    def _of(self, hint: Any) -> _Shrink | None:
        """How a value of this type is made small; None when it cannot be."""
        hint = _without_none(hint)
        if hint == Own or hint in (int, bool, int | str):
            return None
        if hint is str or hint == Time:
            return sys.intern
        if hint is msgspec.Raw:
            return self._raw
        if get_origin(hint) is tuple:
            return self._list_of(get_args(hint)[0])
        if get_origin(hint) is Mapping:
            return self._map
        return self._struct(hint)

    def _struct(self, struct: type[Partial]) -> _Shrink:
        if _is_hashable(struct):
            return partial(self._shared, self._walk(struct))
        return partial(self._shared_as, struct, self._walk(struct))

    def _list_of(self, hint: Any) -> _Shrink:
        if hint in (str, int):
            return partial(self._shared, _nothing)
        struct: type[Partial] = hint
        if _has_times(struct):
            return partial(self._one_by_one, self._struct(struct))
        each = partial(_each, self._walk(struct))
        if _is_hashable(struct):
            return partial(self._shared, each)
        return partial(self._shared_as, struct, each)

    def _one_by_one(self, shrink: _Shrink, values: tuple[Any, ...]) -> Any:
        """What has times is seldom equal as a whole list, but its elements often are."""
        small = tuple([shrink(value) for value in values])
        return self._parts.setdefault(small, small)

    def _shared(self, shrink: Callable[[Any], object], value: Any) -> Any:
        known = self._parts.setdefault(value, value)
        if known is value:
            shrink(value)
        return known

    def _shared_as(self, struct: type[Partial], shrink: Callable[[Any], object], value: Any) -> Any:
        """Shared by how it is written, as it cannot be hashed; two types may be written alike."""
        known = self._parts.setdefault((struct, _encode(value)), value)
        if known is value:
            shrink(value)
        return known

    def _map(self, value: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(value.items())
        known: Mapping[str, str] | None = self._parts.get(key)
        if known is None:
            intern = sys.intern
            known = {intern(k): intern(v) for k, v in key if k != LAST_APPLIED}
            self._parts[key] = known
        return known

    def _raw(self, value: msgspec.Raw) -> msgspec.Raw:
        """A raw value is a view on all that was read with it; only a copy lets that go."""
        copied = bytes(value)
        known: msgspec.Raw | None = self._parts.get(copied)
        if known is None:
            known = self._parts[copied] = msgspec.Raw(copied)
        return known


def _each_field(rows: _Rows, obj: Any) -> None:
    for name, shrink in rows:
        value = getattr(obj, name)
        if value:
            small = shrink(value)
            if small is not value:
                _set(obj, name, small)


def _each_field_like(rows: _Rows, obj: Any, old: Any) -> None:
    for name, shrink in rows:
        value = getattr(obj, name)
        if value:
            before = getattr(old, name)
            _set(obj, name, before if value == before else shrink(value))


def _each(shrink: _Shrink, values: tuple[Any, ...]) -> None:
    for value in values:
        shrink(value)


def _nothing(_: Any) -> None:
    pass


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        rest = [each for each in get_args(hint) if each is not types.NoneType]
        return reduce(or_, rest)
    return hint


def _hints(struct: type[Partial]) -> list[Any]:
    return [_without_none(each) for each in get_type_hints(struct, include_extras=True).values()]


def _inner(struct: type[Partial]) -> list[Any]:
    """The types of a struct's fields, those of elements for lists."""
    return [
        _without_none(get_args(hint)[0]) if get_origin(hint) is tuple else hint
        for hint in _hints(struct)
    ]


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Partial)


def _is_hashable(struct: type[Partial]) -> bool:
    """Nothing in it is a map or a raw value."""
    return not any(
        hint is msgspec.Raw
        or get_origin(hint) is Mapping
        or (_is_struct(hint) and not _is_hashable(hint))
        for hint in _inner(struct)
    )


def _has_times(struct: type[Partial]) -> bool:
    return any(hint == Time or (_is_struct(hint) and _has_times(hint)) for hint in _inner(struct))
