# SPDX-License-Identifier: Apache-2.0
"""Quantities such as `500m` and `1Gi`, as Kubernetes reads and writes them.

A quantity stays a text in the objects. This module makes the canonical text,
and the number for comparisons and sums. Kubernetes keeps some texts that are not
canonical (`1.234`, `+5`, `1E3`), and so does this module.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["DecimalSI", "DecimalExponent", "BinarySI"]

BAD_FORM = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
BAD_SUFFIX = "unable to parse quantity's suffix"

_PATTERN = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)")

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}

_INT64_MAX = (1 << 63) - 1

# So many decimal digits surely fit into 64 bits; longer numbers are worked
# out in Kubernetes by another way, which rounds and caps.
_SHORT = 18

_NANO = -9

# An exponent may have nine digits and more; numbers are not made longer than
# this, which is beyond every real amount and cheap to compute with.
_LARGEST_EXPONENT = 4096

# Kubernetes takes any number of digits; Python converts no more than 4300.
_MOST_DIGITS = 4096

# The letter, a sign and as many digits as fit; leading zeros are rare enough.
_LONGEST_EXPONENT = 64

# A cluster writes the same few quantities again and again.
_CACHED = 4096


class QuantityError(ValueError):
    """A text that is no quantity; worded as Kubernetes does."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """`unscaled` times ten to the power of `exponent`, and the form of the text."""

    unscaled: int
    exponent: int
    form: Form
    text: str = ""  # kept as it was written, where Kubernetes keeps it

    @property
    def value(self) -> int | Fraction:
        """The exact number."""
        if self.exponent >= 0:
            return int(self.unscaled * 10 ** min(self.exponent, _LARGEST_EXPONENT))
        number = Fraction(self.unscaled, 10 ** min(-self.exponent, _LARGEST_EXPONENT))
        return number.numerator if number.denominator == 1 else number

    def __str__(self) -> str:
        """The text that was kept, or the number with its suffix."""
        if self.text:
            return self.text
        if self.unscaled == 0:
            return "0"
        if self.form != "BinarySI":
            return _written_decimal(self, self.form)
        value = self.value
        # Between these, and with a fraction, powers of 1024 would lose something.
        if not isinstance(value, int) or abs(value) < 1024:
            return _written_decimal(self, "DecimalSI")
        exponent = 0
        while value % 1024 == 0:
            value //= 1024
            exponent += 10
        return f"{value}{_BINARY_SUFFIX.get(exponent, '')}"


@lru_cache(_CACHED)
def parse(text: str) -> Quantity:
    """Read a quantity; `QuantityError` when the text is none."""
    text = text.strip()
    match = _PATTERN.fullmatch(text) if text else None
    if match is None:
        raise QuantityError(BAD_FORM)
    sign, whole, fraction, suffix = match.groups()
    if len(whole) + len(fraction or "") > _MOST_DIGITS:
        raise QuantityError(BAD_FORM)
    form, exponent = _suffix(suffix)
    digits, decimals = (whole or "0") + (fraction or ""), len(fraction or "")
    number, factor = int(digits), -1 if sign == "-" else 1
    # A number that fits into 64 bits, perhaps with its text.
    if form == "BinarySI":
        if not decimals and len(digits) <= 14 - exponent * 3 // 10:
            return Quantity(factor * number << exponent, 0, form, text if number % 8 else "")
        number, exponent = number << exponent, 0
    elif len(digits) <= _SHORT and exponent - decimals >= _NANO:
        scale = exponent - decimals
        keep = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        return Quantity(factor * number, scale, form, text if keep else "")
    # A number of any length: rounded up to a billionth, and capped if binary.
    number, scale = _rounded_up(number, exponent - decimals, _NANO)
    if form == "BinarySI" and number > _INT64_MAX * 10**-scale:
        number, scale = _INT64_MAX, 0
    elif form == "BinarySI" and 0 < number < 10**-scale:
        form = "DecimalSI"
    return Quantity(factor * number, scale, form)


def _suffix(suffix: str) -> tuple[Form, int]:
    if (exponent := _DECIMAL.get(suffix)) is not None:
        return "DecimalSI", exponent
    if (exponent := _BINARY.get(suffix)) is not None:
        return "BinarySI", exponent
    match = _EXPONENT.fullmatch(suffix)
    power = int(match[1]) if match and len(suffix) <= _LONGEST_EXPONENT else None
    if power is None or not -_INT64_MAX <= power + 1 <= _INT64_MAX + 1:
        raise QuantityError(BAD_SUFFIX)
    # Kubernetes keeps 32 bits of the power.
    return "DecimalExponent", (power + (1 << 31)) % (1 << 32) - (1 << 31)


def _rounded_up(number: int, exponent: int, least: int) -> tuple[int, int]:
    excess = least - exponent
    if excess <= 0:
        return number, exponent
    if excess > _LARGEST_EXPONENT + number.bit_length():
        return min(number, 1), least
    return -(-number // 10**excess), least


def _written_decimal(quantity: Quantity, form: Form) -> str:
    number, exponent = quantity.unscaled, quantity.exponent
    while number % 10 == 0:
        number //= 10
        exponent += 1
    while exponent % 3:
        number *= 10
        exponent -= 1
    if form == "DecimalSI":
        # There is no suffix above E; Kubernetes then writes none.
        return f"{number}{_DECIMAL_SUFFIX.get(exponent, '')}"
    return f"{number}e{exponent}" if exponent else str(number)


@lru_cache(_CACHED)
def canonical(text: str) -> str:
    """The text under which Kubernetes keeps a quantity."""
    return str(parse(text))


@lru_cache(_CACHED)
def rounded_up(text: str, exponent: int) -> str:
    """The quantity, rounded away from zero to a multiple of ten to that power."""
    quantity = parse(text)
    if quantity.exponent >= exponent:
        return str(quantity)
    number, exponent = _rounded_up(abs(quantity.unscaled), quantity.exponent, exponent)
    sign = -1 if quantity.unscaled < 0 else 1
    return str(Quantity(sign * number, exponent, quantity.form))


def value(text: str) -> int | Fraction:
    """The exact number."""
    return parse(text).value


def int_value(text: str) -> int:
    """The number, rounded up to a whole one."""
    return math.ceil(value(text))


def milli_value(text: str) -> int:
    """Thousandths, rounded up."""
    return math.ceil(value(text) * 1000)


def compare(first: str, second: str) -> int:
    """-1, 0 or 1: the first is less than, equal to or more than the second."""
    one, other = value(first), value(second)
    return (one > other) - (one < other)


def add(first: str, second: str) -> str:
    """The sum, in the form of the first quantity, or of the second if the first is zero."""
    one, other = parse(first), parse(second)
    form = one.form if one.unscaled else other.form
    exponent = min(one.exponent, other.exponent)
    if max(one.exponent, other.exponent) - exponent > _LARGEST_EXPONENT:
        return str(one if one.exponent > other.exponent else other)
    total = sum(each.unscaled * 10 ** (each.exponent - exponent) for each in (one, other))
    return str(Quantity(total, exponent, form))
