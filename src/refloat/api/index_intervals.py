# SPDX-License-Identifier: Apache-2.0
"""Job indexes as text: `0-4,7,9-12`.

Reading is either strict, as the API demands of what clients write (`check`,
`first_common`), or tolerant, as the Job controller reads a status that is
stored already (`parse`). Writing is `render`.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from refloat.api import fields, integers

Interval: TypeAlias = tuple[int, int]
"""The first index and the last one."""


class BadIndexes(ValueError):
    """Text that is no list of indexes; the message is the API's."""


def check(text: str, completions: int) -> int:
    """How many indexes a list names; `BadIndexes` unless it is well-formed."""
    total = 0
    previous: int | None = None
    for fragment in text.split(",") if text else ():
        first, last = _interval(fragment, completions)
        if previous is not None and previous >= first:
            raise BadIndexes(_unordered(previous, first))
        total += last - first + 1
        previous = last
    return total


def first_common(one: str, other: str, completions: int) -> int | None:
    """The first index found in two lists; fragments that are wrong are passed over."""
    first, second = (_well_formed(text, completions) for text in (one, other))
    a, b = next(first, None), next(second, None)
    while a is not None and b is not None:
        if a[0] <= b[1] and b[0] <= a[1]:
            return max(a[0], b[0])
        if a[0] <= b[0]:
            a = next(first, None)
        else:
            b = next(second, None)
    return None


def _well_formed(text: str, completions: int) -> Iterator[Interval]:
    for fragment in text.split(",") if text else ():
        try:
            yield _interval(fragment, completions)
        except BadIndexes:
            continue


def _interval(fragment: str, completions: int) -> Interval:
    parts = fragment.split("-")
    if len(parts) > 2:
        raise BadIndexes(
            f"the fragment {fields.quote(fragment)} violates the requirement that "
            "an index interval can have at most two parts separated by '-'"
        )
    first = _index(parts[0], completions)
    if len(parts) == 1:
        return first, first
    last = _index(parts[1], completions)
    if first >= last:
        raise BadIndexes(_unordered(first, last))
    return first, last


def _index(text: str, completions: int) -> int:
    number = _integer(text)
    if number is None:
        raise BadIndexes(f"cannot convert string to integer for index: {fields.quote(text)}")
    if number >= completions:
        raise BadIndexes(f"too large index: {fields.quote(text)}")
    return number


def _integer(text: str) -> int | None:
    try:
        return integers.signed(text)
    except integers.NotInteger:
        return None


def _unordered(previous: int, current: int) -> str:
    return f"non-increasing order, previous: {previous}, current: {current}"


def parse(text: str, completions: int) -> list[Interval]:
    """The indexes below `completions`, as the Job controller reads them.

    Fragments that make no sense are passed over, the first one that begins
    too high ends the list, and neighbours become one interval.
    """
    intervals: list[Interval] = []
    for fragment in text.split(",") if text else ():
        parts = fragment.split("-")
        first = _integer(parts[0])
        if first is None:
            continue
        if first >= completions:
            break
        last = _integer(parts[1]) if len(parts) > 1 else first
        if last is not None:
            _append(intervals, first, min(last, completions - 1))
    return intervals


def _append(intervals: list[Interval], first: int, last: int) -> None:
    if intervals and intervals[-1][1] + 1 == first:
        intervals[-1] = (intervals[-1][0], last)
    else:
        intervals.append((first, last))


def of(indexes: Iterable[int]) -> list[Interval]:
    """The intervals that hold these indexes, in order."""
    intervals: list[Interval] = []
    for index in sorted(set(indexes)):
        _append(intervals, index, index)
    return intervals


def union(one: Iterable[Interval], other: Iterable[Interval]) -> list[Interval]:
    """All indexes of two lists of intervals, in order."""
    merged: list[Interval] = []
    for first, last in sorted([*one, *other]):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            _append(merged, first, last)
    return merged


def count(intervals: Iterable[Interval]) -> int:
    return sum(last - first + 1 for first, last in intervals)


def contains(intervals: list[Interval], index: int) -> bool:
    """Whether an index lies in one of the intervals, which are in order."""
    low, high = 0, len(intervals)
    while low < high:
        middle = (low + high) // 2
        if intervals[middle][1] < index:
            low = middle + 1
        else:
            high = middle
    return low < len(intervals) and intervals[low][0] <= index


def render(intervals: Iterable[Interval]) -> str:
    """`0,1,3-5`: only three and more in a row are written with a dash."""
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in intervals
    )
