# SPDX-License-Identifier: Apache-2.0
"""Exit codes written as codes and ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import code_ranges

CODES = st.sets(st.integers(0, code_ranges.LARGEST), min_size=1)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("3", [3], id="one code"),
        pytest.param("40-43", [40, 41, 42, 43], id="a range"),
        pytest.param("1-3,100-101", [1, 2, 3, 100, 101], id="two ranges"),
        pytest.param("100-101,1-3", [1, 2, 3, 100, 101], id="in any order"),
        pytest.param("1-3,4", [1, 2, 3, 4], id="neighbours"),
        pytest.param("5-5", [5], id="a range of one"),
        pytest.param("0,255", [0, 255], id="the smallest and the largest"),
    ],
)
def test_codes_are_read(text: str, want: list[int]) -> None:
    found = code_ranges.parse(text)
    assert list(found) == want
    assert len(found) == len(want)


BETWEEN = "is neither an exit code nor a range of two with '-' between"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("x", f'"x" {BETWEEN}', id="no number"),
        pytest.param("1,,2", f'"" {BETWEEN}', id="nothing between commas"),
        pytest.param("1,", f'"" {BETWEEN}', id="nothing after a comma"),
        pytest.param("1-", f'"1-" {BETWEEN}', id="no end"),
        pytest.param("-5", f'"-5" {BETWEEN}', id="no begin, or less than none"),
        pytest.param("1-2-3", f'"1-2-3" {BETWEEN}', id="three codes in a range"),
        pytest.param("1, 2", f'" 2" {BETWEEN}', id="a space"),
        pytest.param("+1", f'"+1" {BETWEEN}', id="a sign"),
        pytest.param("1_0", f'"1_0" {BETWEEN}', id="digits as Python writes them"),
        pytest.param("٣", f'"٣" {BETWEEN}', id="digits of another script"),
        pytest.param("1" * 5000, f'"{"1" * 5000}" {BETWEEN}', id="endless digits"),
        pytest.param("12-1", 'the range "12-1" ends before it begins', id="reversed"),
        pytest.param(
            "1-256", '"1-256" is out of range: exit codes are 0 to 255', id="out of range"
        ),
        pytest.param("3,3", "the exit code 3 is there twice", id="a code twice"),
        pytest.param("1-5,3", "1-5 and 3 overlap", id="a code that is in a range"),
        pytest.param("5-9,1-5", "1-5 and 5-9 overlap", id="ranges that overlap"),
        pytest.param("1-2,1-2", "1-2 and 1-2 overlap", id="a range twice"),
    ],
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
    made = code_ranges.of(codes)
    assert code_ranges.parse(str(made)) == made
    assert set(made) == codes
