# SPDX-License-Identifier: Apache-2.0
"""Job indexes as text: behaviour A7.2, A7.3 and B5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import index_intervals
from tests.cases import cases


@cases(
    "indexes want",
    {
        "none is the empty text": ([], ""),
        "one stands alone": ([3], "3"),
        "two in a row have no dash": ([3, 4], "3,4"),
        "three in a row have a dash": ([3, 4, 5], "3-5"),
        "out of order is put in order": ([9, 0, 1, 3, 4, 5], "0,1,3-5,9"),
        "repeated ones count once": ([2, 2, 2], "2"),
    },
)
def test_indexes_are_written_as_kubernetes_writes_them(indexes: list[int], want: str) -> None:
    assert index_intervals.render(index_intervals.of(indexes)) == want  # behaviour A7.2


@cases(
    "text completions want",
    {
        "nothing": ("", 5, []),
        "well-formed text": ("0-2,4", 5, [(0, 2), (4, 4)]),
        "bad fragments are passed over": ("x,1,2-y,3", 5, [(1, 1), (3, 3)]),
        "neighbours become one": ("0,1,2", 5, [(0, 2)]),
        "the end is cut at completions": ("3-9", 5, [(3, 4)]),
        "the first one too high ends the list": ("1,7,2", 5, [(1, 1)]),
        "one too high ends the list even when it is bad": ("7-x,2", 5, []),
        "a third part is not looked at": ("1-2-3", 5, [(1, 2)]),
    },
)
def test_a_stored_list_is_read_with_tolerance(
    text: str, completions: int, want: list[index_intervals.Interval]
) -> None:
    assert index_intervals.parse(text, completions) == want  # behaviour A7.3


def test_lists_have_no_index_in_common() -> None:
    assert index_intervals.first_common("0-1,5", "2-4,6", 10) is None


def test_the_first_index_in_common_is_found_past_bad_fragments() -> None:
    assert index_intervals.first_common("0,x,7-9", "1-2,8", 10) == 8


def test_a_bad_list_is_not_counted() -> None:
    with pytest.raises(
        index_intervals.BadIndexes, match="non-increasing order, previous: 2, current: 2"
    ):
        index_intervals.check("0-2,2", 5)


def test_an_index_of_thousands_of_digits_is_refused_and_not_a_crash() -> None:
    text = "9" * 5000
    with pytest.raises(index_intervals.BadIndexes) as error:
        index_intervals.check(f"0-{text}", 5)
    assert str(error.value) == f'cannot convert string to integer for index: "{text}"'
    assert index_intervals.parse(f"1,{text},3", 5) == [(1, 1), (3, 3)]


def test_thousands_of_leading_zeros_do_not_count() -> None:
    assert index_intervals.check(f"{'0' * 5000}1-3", 5) == 3


@given(st.sets(st.integers(0, 200)))
def test_what_is_written_is_read_back(indexes: set[int]) -> None:
    text = index_intervals.render(index_intervals.of(indexes))

    intervals = index_intervals.parse(text, 201)

    assert index_intervals.check(text, 201) == len(indexes) == index_intervals.count(intervals)
    assert {i for i in range(201) if index_intervals.contains(intervals, i)} == indexes


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_union_and_overlap_agree_with_sets(one: set[int], other: set[int]) -> None:
    first, right = index_intervals.of(one), index_intervals.of(other)
    texts = index_intervals.render(first), index_intervals.render(right)

    assert index_intervals.union(first, right) == index_intervals.of(one | other)
    common = index_intervals.first_common(*texts, 61)
    assert (common is None) == (not one & other)
    assert common is None or common in one & other
