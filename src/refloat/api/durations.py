# SPDX-License-Identifier: Apache-2.0
"""Lengths of time, as metav1.Duration reads and writes them: `1m30s`, `1.5h`, `250ms`."""

import re
from datetime import timedelta
from fractions import Fraction

_UNITS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "μs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(1_000_000),
    "m": Fraction(60_000_000),
    "h": Fraction(3_600_000_000),
}
"""Each in microseconds; there are two letters that look like a Greek mu."""

_PART = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(sorted(_UNITS, reverse=True))})")
_WHOLE = re.compile(rf"([+-]?)((?:{_PART.pattern})+)")

# Go counts in nanoseconds, in 64 bits: some 292 years.
LONGEST = timedelta(microseconds=2**63 // 1000)

# The digits of that in nanoseconds. What has more before its point is too long a
# time in any unit; what has more behind it is cut off, as Go does.
_MAX_DIGITS = 19


def parse(text: str) -> timedelta | None:
    """A duration, to the microsecond; None for a text that is none."""
    if text in ("0", "+0", "-0"):
        return timedelta()
    match = _WHOLE.fullmatch(text)
    if match is None:
        return None
    parts = _PART.findall(match[2])
    micros = sum((_amount(number) * _UNITS[unit] for number, unit in parts), Fraction(0))
    if micros > LONGEST // timedelta(microseconds=1):
        return None
    return timedelta(microseconds=int(-micros if match[1] == "-" else micros))


def _amount(number: str) -> Fraction:
    """To as many digits as matter; Python reads some thousands only with an error."""
    whole, _, fraction = number.partition(".")
    whole = whole.lstrip("0")
    if len(whole) > _MAX_DIGITS:
        return Fraction(10**_MAX_DIGITS)
    return Fraction(f"{whole or '0'}.{fraction[:_MAX_DIGITS] or '0'}")


def show(length: timedelta) -> str:
    """As Go prints it: `1m30s`, `1h0m0s`, `500ms`, `0s`."""
    micros = abs(length) // timedelta(microseconds=1)
    sign = "-" if length < timedelta() else ""
    if micros < 1_000_000:
        text = f"{micros}µs" if micros < 1000 else f"{_decimal(micros, 1000)}ms"
        return sign + text if micros else "0s"
    minutes, micros = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(micros, 1_000_000)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    return f"{whole}.{rest:0{len(str(unit)) - 1}}".rstrip("0").rstrip(".")
