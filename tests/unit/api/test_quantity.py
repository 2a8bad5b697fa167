# SPDX-License-Identifier: Apache-2.0
"""Quantities have Kubernetes' texts and values."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refloat.api import quantity

CANONICAL = {
    # what is kept as written
    "1": "1",
    "500m": "500m",
    "100Mi": "100Mi",
    "1028Mi": "1028Mi",
    "+1": "+1",
    "001": "001",
    "1E3": "1E3",
    "1.234": "1.234",
    " 1 ": "1",
    # what is written anew
    "0": "0",
    "-0": "0",
    "0Ki": "0",
    "-": "0",
    ".": "0",
    "0.5": "500m",
    ".5": "500m",
    "1.5": "1500m",
    "1.2340": "1234m",
    "1000m": "1",
    "1000": "1k",
    "10000": "10k",
    "1e4": "10e3",
    "1e-10": "1e-9",
    "1024": "1024",
    "1024Ki": "1Mi",
    "1024Mi": "1Gi",
    "0.5Ki": "512",
    "1.5Gi": "1536Mi",
    "-1.5Gi": "-1536Mi",
    "0.1Ki": "102400m",
    # rounded up to a billionth
    "1.1n": "2n",
    "0.1n": "1n",
    "-0.1n": "-1n",
    # longer than 64 bits
    "9223372036854775808": "9223372036854775808",
    "99999999999999999999Ki": "9223372036854775807",
    "7Ei": "7Ei",
    "8Ei": "9223372036854775807",
    # there is no suffix above E
    "1000E": "1",
}


@pytest.mark.parametrize(("text", "want"), CANONICAL.items(), ids=repr)
def test_the_canonical_form_is_kubernetes(text: str, want: str) -> None:
    assert quantity.canonical(text) == want


@pytest.mark.parametrize("text", ["", "x", "1..", "1 k", "1_0", "0x1", "１", "1e1.5", "{}"])
def test_what_has_another_form_is_refused(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="must match the regular expression"):
        quantity.parse(text)


@pytest.mark.parametrize("text", ["1K", "1ki", "1e", "1ee", "1kk", "1m1", "1e99999999999999999999"])
def test_an_unknown_suffix_is_refused(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match=r"^unable to parse quantity's suffix$"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "value", "whole", "milli"),
    [
        ("1500m", Fraction(3, 2), 2, 1500),
        ("1Ki", 1024, 1024, 1_024_000),
        ("1n", Fraction(1, 10**9), 1, 1),
        ("-1500m", Fraction(-3, 2), -1, -1500),
        ("1.234", Fraction(1234, 1000), 2, 1234),
        ("12e3", 12_000, 12_000, 12_000_000),
    ],
)
def test_the_number_is_exact_and_rounded_up_on_request(
    text: str, value: int | Fraction, whole: int, milli: int
) -> None:
    assert quantity.value(text) == value
    assert quantity.int_value(text) == whole
    assert quantity.milli_value(text) == milli


@pytest.mark.parametrize(
    ("text", "want"),
    [("1u", "1m"), ("1", "1"), ("0.3592", "360m"), ("4805.62m", "4806m"), ("7012.6990u", "8m")],
)
def test_rounding_up_to_thousandths(text: str, want: str) -> None:
    assert quantity.rounded_up(text, -3) == want


def test_comparison_is_of_values_not_of_texts() -> None:
    assert quantity.compare("1000m", "1") == 0
    assert quantity.compare("1Gi", "1G") == 1
    assert quantity.compare("-1", "0") == -1


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [("1", "500m", "1500m"), ("1Gi", "1Gi", "2Gi"), ("0", "1Ki", "1Ki"), ("1", "-1", "0")],
)
def test_a_sum_has_the_form_of_its_first_part(first: str, second: str, want: str) -> None:
    assert quantity.add(first, second) == want


@pytest.mark.parametrize(
    "text", ["1e2000000000", "1e-2000000000", "12345678901234567890e2000000000"]
)
def test_enormous_exponents_cost_nothing(text: str) -> None:
    assert quantity.canonical(text)
    assert quantity.value(text) > 0
    assert quantity.add(text, "1")


TEXTS = st.from_regex(
    r"[+-]?[0-9]{1,22}(\.[0-9]{0,12})?(n|u|m||k|M|G|T|P|Ki|Mi|Gi|Ti|e[+-]?[0-9]|E3)?",
    fullmatch=True,
)


@given(TEXTS)
def test_the_canonical_form_is_a_fixpoint(text: str) -> None:
    once = quantity.canonical(text)
    assert quantity.canonical(once) == once


# Below the greatest suffix: above, Kubernetes itself loses the value.
@given(st.integers(-(10**14), 10**14), st.sampled_from(["n", "u", "m", "", "k", "M", "e3"]))
def test_the_canonical_form_preserves_the_value(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    scale = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "e3": 3}[suffix]
    assert quantity.value(quantity.canonical(text)) == number * Fraction(10) ** scale
