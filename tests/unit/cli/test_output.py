# SPDX-License-Identifier: Apache-2.0
"""What commands print for machines is read as it was meant."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refloat.api import goyaml
from refloat.cli import output

# What one reader takes for a number, a truth value, a time or nothing, and another for a text.
ODD = [
    *("1e3", "y", "n", "Y", "on", "No", "0o14", "014", "0b1", "0x1F", "1_000", "1__0", "+1", "-1"),
    *(".5", "5.", "+.inf", ".NaN", "~", "null", "", " ", "<<", "=", "2001-01-01", "1:30", "1,000"),
    *("- a", "a: b", "#", "a #b", "%a", "@a", "`a", "? a", "&a", "*a", "!a", "|", ">", "'", '"'),
    *("a\nb", "a\n", "\n", "\ta", "a\u0085b", "a\u2028b", "\ufeff", "\x00", "\x7f", "\U0001f600"),
]
TEXTS = st.sampled_from(ODD) | st.text(st.characters(exclude_categories=["Cs"]))
# JSON has one kind of numbers: a whole one is an integer, whoever wrote it.
FRACTIONS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
NUMBERS = st.integers(-(2**63), 2**64 - 1) | FRACTIONS
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
@example({text: [text] for text in ODD})
def test_kubernetes_reads_what_was_written(value: object) -> None:
    assert goyaml.parse(output.as_yaml(value).encode()) == (value, [])


@pytest.mark.parametrize("text", ["train", "1-3,100", "1.2.3", "ünlaut", "a b"])
def test_plain_texts_stay_plain(text: str) -> None:
    assert output.as_yaml([text]) == f"- {text}\n"
