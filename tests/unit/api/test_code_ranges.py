# SPDX-License-Identifier: Apache-2.0
"""Exit codes written as codes and ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import code_ranges
from tests.cases import cases

CODES = st.sets(st.integers(0, code_ranges.LARGEST), min_size=1)


@cases(
    "text want",
    {
        "one code": ("3", [3]),
        "a range": ("40-43", [40, 41, 42, 43]),
        "two ranges": ("1-3,100-101", [1, 2, 3, 100, 101]),
        "in any order": ("100-101,1-3", [1, 2, 3, 100, 101]),
        "neighbours": ("1-3,4", [1, 2, 3, 4]),
        "a range of one": ("5-5", [5]),
        "the smallest and the largest": ("0,255", [0, 255]),
    },
)
def test_codes_are_read(text: str, want: list[int]) -> None:
    ranges = code_ranges.parse(text)
    assert list(ranges) == want
    assert len(ranges) == len(want)


BETWEEN = "is neither an exit code nor a range of two with '-' between"


@cases(
    "text want",
    {
        "no number": ("x", f'"x" {BETWEEN}'),
        "nothing between commas": ("1,,2", f'"" {BETWEEN}'),
        "nothing after a comma": ("1,", f'"" {BETWEEN}'),
        "no end": ("1-", f'"1-" {BETWEEN}'),
        "no begin, or less than none": ("-5", f'"-5" {BETWEEN}'),
        "three codes in a range": ("1-2-3", f'"1-2-3" {BETWEEN}'),
        "a space": ("1, 2", f'" 2" {BETWEEN}'),
        "a sign": ("+1", f'"+1" {BETWEEN}'),
        "digits as Python writes them": ("1_0", f'"1_0" {BETWEEN}'),
        "digits of another script": ("٣", f'"٣" {BETWEEN}'),
        "endless digits": ("1" * 5000, f'"{"1" * 5000}" {BETWEEN}'),
        "reversed": ("12-1", 'the range "12-1" ends before it begins'),
        "out of range": ("1-256", '"1-256" is out of range: exit codes are 0 to 255'),
        "a code twice": ("3,3", "the exit code 3 is there twice"),
        "a code that is in a range": ("1-5,3", "1-5 and 3 overlap"),
        "ranges that overlap": ("5-9,1-5", "1-5 and 5-9 overlap"),
        "a range twice": ("1-2,1-2", "1-2 and 1-2 overlap"),
    },
)
def test_what_was_not_meant_is_refused(text: str, want: str) -> None:
    with pytest.raises(code_ranges.BadCodes) as problem:
        code_ranges.parse(text)
    assert str(problem.value) == want


@given(CODES, st.integers(-1, 300))
def test_a_code_is_in_its_ranges_and_no_other(codes: set[int], code: int) -> None:
    assert (code in code_ranges.of(codes)) == (code in codes)


@given(CODES)
def test_what_is_written_is_read_back(codes: set[int]) -> None:
    ranges = code_ranges.of(codes)
    assert code_ranges.parse(str(ranges)) == ranges
    assert set(ranges) == codes
