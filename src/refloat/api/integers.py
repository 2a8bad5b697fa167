# SPDX-License-Identifier: Apache-2.0
"""Whole numbers of 64 bits, read from text as Go reads them.

Go takes digits, perhaps after a sign, with as many leading zeros as there are,
and has its own words for what is wrong. Python's `int` also takes spaces and
`_`, knows no bound, and fails at more than 4,300 digits: what clients wrote
must not reach it unseen.
"""

import re

from refloat.api import fields

_SIGNED_LIMIT = 2**63
_UNSIGNED_LIMIT = 2**64
_MOST_DIGITS = len(str(_UNSIGNED_LIMIT))
_SHORT = 18  # so many digits always fit

_leading_digits = re.compile("[0-9]*").match


class NotInteger(ValueError):
    """Text that is no such number; the message is Go's."""


def unsigned(text: str) -> int:
    """The number that `strconv.ParseUint` reads, or `NotInteger`."""
    if _is_short(text):
        return int(text)
    return _magnitude(text, text, "ParseUint")


def signed(text: str) -> int:
    """The number that `strconv.ParseInt` reads, or `NotInteger`."""
    if _is_short(text):
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    number = _magnitude(digits, text, "ParseInt")
    if text[0] == "-":
        number = -number
    if not -_SIGNED_LIMIT <= number < _SIGNED_LIMIT:
        raise _out_of_range(text, "ParseInt")
    return number


def _is_short(text: str) -> bool:
    return len(text) <= _SHORT and text.isascii() and text.isdigit()


def _magnitude(digits: str, text: str, function: str) -> int:
    """The number without a sign; a too large number is an error before a wrong digit is."""
    match = _leading_digits(digits)
    assert match is not None  # no digits are found too
    significant = match[0].lstrip("0")
    if len(significant) > _MOST_DIGITS or int(significant or "0") >= _UNSIGNED_LIMIT:
        raise _out_of_range(text, function)
    if not digits or match[0] != digits:
        raise NotInteger(_message(text, function, "invalid syntax"))
    return int(significant or "0")


def _out_of_range(text: str, function: str) -> NotInteger:
    return NotInteger(_message(text, function, "value out of range"))


def _message(text: str, function: str, what: str) -> str:
    return f"strconv.{function}: parsing {fields.quote(text)}: {what}"
