# SPDX-License-Identifier: Apache-2.0
"""Job indexes as text: behaviour A7.2, A7.3 and B5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import intervals


@pytest.mark.parametrize(
    ("indexes", "want"),
    [
        pytest.param([], "", id="none is the empty text"),
        pytest.param([3], "3", id="one stands alone"),
        pytest.param([3, 4], "3,4", id="two in a row have no dash"),
        pytest.param([3, 4, 5], "3-5", id="three in a row have a dash"),
        pytest.param([9, 0, 1, 3, 4, 5], "0,1,3-5,9", id="out of order is put in order"),
        pytest.param([2, 2, 2], "2", id="repeated ones count once"),
    ],
)
def test_indexes_are_written_as_kubernetes_writes_them(indexes: list[int], want: str) -> None:
    assert intervals.render(intervals.of(indexes)) == want  # behaviour A7.2


@pytest.mark.parametrize(
    ("text", "completions", "want"),
    [
        pytest.param("", 5, [], id="nothing"),
        pytest.param("0-2,4", 5, [(0, 2), (4, 4)], id="well-formed text"),
        pytest.param("x,1,2-y,3", 5, [(1, 1), (3, 3)], id="bad fragments are passed over"),
        pytest.param("0,1,2", 5, [(0, 2)], id="neighbours become one"),
        pytest.param("3-9", 5, [(3, 4)], id="the end is cut at completions"),
        pytest.param("1,7,2", 5, [(1, 1)], id="the first one too high ends the list"),
        pytest.param("7-x,2", 5, [], id="one too high ends the list even when it is bad"),
        pytest.param("1-2-3", 5, [(1, 2)], id="a third part is not looked at"),
    ],
)
def test_a_stored_list_is_read_with_tolerance(
    text: str, completions: int, want: list[intervals.Interval]
) -> None:
    assert intervals.parse(text, completions) == want  # behaviour A7.3


def test_lists_have_no_index_in_common() -> None:
    assert intervals.first_common("0-1,5", "2-4,6", 10) is None


def test_the_first_index_in_common_is_found_past_bad_fragments() -> None:
    assert intervals.first_common("0,x,7-9", "1-2,8", 10) == 8


def test_a_bad_list_is_not_counted() -> None:
    with pytest.raises(intervals.BadIndexes, match="non-increasing order, previous: 2, current: 2"):
        intervals.check("0-2,2", 5)


def test_an_index_of_thousands_of_digits_is_refused_and_not_a_crash() -> None:
    text = "9" * 5000
    with pytest.raises(intervals.BadIndexes) as told:
        intervals.check(f"0-{text}", 5)
    assert str(told.value) == f'cannot convert string to integer for index: "{text}"'
    assert intervals.parse(f"1,{text},3", 5) == [(1, 1), (3, 3)]


def test_thousands_of_leading_zeros_do_not_count() -> None:
    assert intervals.check(f"{'0' * 5000}1-3", 5) == 3


@given(st.sets(st.integers(0, 200)))
def test_what_is_written_is_read_back(indexes: set[int]) -> None:
    written = intervals.render(intervals.of(indexes))

    read = intervals.parse(written, 201)

    assert intervals.check(written, 201) == len(indexes) == intervals.count(read)
    assert {i for i in range(201) if intervals.contains(read, i)} == indexes


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_union_and_overlap_agree_with_sets(one: set[int], other: set[int]) -> None:
    left, right = intervals.of(one), intervals.of(other)
    texts = intervals.render(left), intervals.render(right)

    assert intervals.union(left, right) == intervals.of(one | other)
    common = intervals.first_common(*texts, 61)
    assert (common is None) == (not one & other)
    assert common is None or common in one & other
