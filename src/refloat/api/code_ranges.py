# SPDX-License-Identifier: Apache-2.0
"""Exit codes as text in a backoffPolicy: `1-12,100-127`.

The parser is strict: a repeated code, or a range that ends before its start, is an
error. Job indexes have a similar form and other rules (`index_intervals.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from refloat.api import fields, index_intervals
from refloat.api.index_intervals import Interval

# What a process can exit with.
LARGEST = 255

_DIGITS = frozenset("0123456789")


class BadCodes(ValueError):
    """Text that is no list of exit codes; the message has the reason."""


@dataclass(frozen=True, slots=True)
class CodeRanges:
    """Exit codes, as ranges in ascending order of which no two touch."""

    intervals: tuple[Interval, ...]

    def __contains__(self, code: int) -> bool:
        return any(first <= code <= last for first, last in self.intervals)

    def __iter__(self) -> Iterator[int]:
        return (code for first, last in self.intervals for code in range(first, last + 1))

    def __len__(self) -> int:
        return index_intervals.count(self.intervals)

    def __str__(self) -> str:
        return index_intervals.render(self.intervals)


def of(codes: Iterable[int]) -> CodeRanges:
    return CodeRanges(tuple(index_intervals.of(codes)))


def parse(text: str) -> CodeRanges:
    """`BadCodes` unless every code stands there once, alone or in a range."""
    ranges = sorted(_range(part) for part in text.split(","))
    for (first, last), (following, end) in pairwise(ranges):
        if following <= last:
            raise BadCodes(_repeated((first, last), (following, end)))
    return CodeRanges(tuple(index_intervals.union(ranges, ())))


def _range(part: str) -> Interval:
    begin, dash, end = part.partition("-")
    first = _code(begin, part)
    last = _code(end, part) if dash else first
    if last < first:
        raise BadCodes(f"the range {fields.quote(part)} ends before it begins")
    return first, last


def _code(digits: str, part: str) -> int:
    if not digits or len(digits) > 9 or not _DIGITS.issuperset(digits):
        raise BadCodes(
            f"{fields.quote(part)} is neither an exit code nor a range of two with '-' between"
        )
    code = int(digits)
    if code > LARGEST:
        raise BadCodes(f"{fields.quote(part)} is out of range: exit codes are 0 to {LARGEST}")
    return code


def _repeated(one: Interval, other: Interval) -> str:
    if one == other and one[0] == one[1]:
        return f"the exit code {one[0]} is there twice"
    return f"{_shown(one)} and {_shown(other)} overlap"


def _shown(of: Interval) -> str:
    return str(of[0]) if of[0] == of[1] else f"{of[0]}-{of[1]}"
