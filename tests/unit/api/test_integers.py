# SPDX-License-Identifier: Apache-2.0
"""Whole numbers in text; the errors are those of Go's `strconv`."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import integers

MANY = 5000  # more digits than Python's own `int` takes
ZEROS = "0" * MANY


@pytest.mark.parametrize(
    ("parse", "text", "want"),
    [
        (integers.unsigned, "0", 0),
        (integers.unsigned, "18446744073709551615", 2**64 - 1),
        (integers.unsigned, f"{ZEROS}18446744073709551615", 2**64 - 1),
        (integers.unsigned, ZEROS, 0),
        (integers.signed, "9223372036854775807", 2**63 - 1),
        (integers.signed, "-9223372036854775808", -(2**63)),
        (integers.signed, "+3", 3),
        (integers.signed, f"-{ZEROS}7", -7),
    ],
)
def test_number_of_64_bits_is_read(parse: Callable[[str], int], text: str, want: int) -> None:
    assert parse(text) == want


@pytest.mark.parametrize(
    ("parse", "text", "what"),
    [
        (integers.unsigned, "18446744073709551616", "value out of range"),
        (integers.unsigned, "9" * MANY, "value out of range"),
        (integers.unsigned, "", "invalid syntax"),
        (integers.unsigned, "-1", "invalid syntax"),
        (integers.unsigned, "+1", "invalid syntax"),
        (integers.unsigned, "1_0", "invalid syntax"),
        (integers.unsigned, " 1", "invalid syntax"),
        (integers.unsigned, "٣", "invalid syntax"),
        (integers.unsigned, f"{ZEROS}x", "invalid syntax"),
        # Go stops at the first digit too many, and ignores the rest.
        (integers.unsigned, "99999999999999999999x", "value out of range"),
        (integers.signed, "9223372036854775808", "value out of range"),
        (integers.signed, "-9223372036854775809", "value out of range"),
        (integers.signed, f"-{'9' * MANY}", "value out of range"),
        (integers.signed, "9223372036854775808x", "invalid syntax"),
        (integers.signed, "", "invalid syntax"),
        (integers.signed, "-", "invalid syntax"),
        (integers.signed, "+-1", "invalid syntax"),
    ],
)
def test_what_is_no_such_number_is_told_in_the_words_of_go(
    parse: Callable[[str], int], text: str, what: str
) -> None:
    function = "ParseUint" if parse is integers.unsigned else "ParseInt"
    with pytest.raises(integers.NotInteger) as error:
        parse(text)
    assert str(error.value) == f'strconv.{function}: parsing "{text}": {what}'


def test_text_that_is_no_number_is_quoted() -> None:
    with pytest.raises(integers.NotInteger, match=r'^strconv\.ParseUint: parsing "\\"\\n": inv'):
        integers.unsigned('"\n')


@given(st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_is_read_back(number: int) -> None:
    assert integers.signed(str(number)) == number
    assert integers.unsigned(str(abs(number))) == abs(number)
