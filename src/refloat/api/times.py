# SPDX-License-Identifier: Apache-2.0
"""Points in time, as metav1.Time and metav1.MicroTime read and write them.

Times stay texts in the objects: `2024-05-01T10:00:00Z`, and with exactly six
digits of fraction where the type is MicroTime. This module brings what a
client wrote into that form, with Go's words when it cannot, and turns texts
into `datetime` and back. Nothing here asks what time it is.
"""

import re
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

LAYOUT = "2006-01-02T15:04:05Z07:00"
MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"

_CANONICAL = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{6})?Z"
)
# Moments that are kept, and that Python has no year for.
_BEFORE_PYTHON = re.compile(r"(?:0000|-[0-9]{4,})-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?Z")
_AFTER_PYTHON = re.compile(r"[0-9]{5,}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(?:\.[0-9]+)?Z")
_FRACTION = re.compile(r"[.,][0-9]+")
_MICRO_FRACTION = re.compile(r"[.,][0-9]{6}")
_ZONE = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")

_ZERO = "0001-01-01T00:00:00Z"
_ZERO_MICRO = "0001-01-01T00:00:00.000000Z"


class TimeError(ValueError):
    """A text that is no time; the message is Go's."""


def normalize(text: str) -> str | None:
    """The text under which a Time is kept; None for Go's zero time."""
    match = _CANONICAL.fullmatch(text)
    if match and match[1] is None and text != _ZERO:
        return text
    return _Parser(text, LAYOUT).seconds()


def normalize_micro(text: str) -> str | None:
    """The text under which a MicroTime is kept; None for Go's zero time."""
    match = _CANONICAL.fullmatch(text)
    if match and match[1] is not None and text != _ZERO_MICRO:
        return text
    return _Parser(text, MICRO_LAYOUT).micros()


def parse(text: str) -> datetime:
    """A stored time, with or without fraction; the nearest that Python knows.

    Go knows years before 1 and after 9999, so a client may have written them.
    """
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        if _BEFORE_PYTHON.fullmatch(text):
            return datetime.min.replace(tzinfo=UTC)
        if _AFTER_PYTHON.fullmatch(text):
            return datetime.max.replace(tzinfo=UTC)
        raise


def format_time(when: datetime) -> str:
    """As a Time: whole seconds, the rest cut off."""
    return f"{when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def format_micro(when: datetime) -> str:
    """As a MicroTime."""
    return f"{when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def span(seconds: int) -> timedelta:
    """So many seconds, as Kubernetes counts with them.

    It multiplies to nanoseconds in 64 bits, which overflow after 292 years:
    the greatest number of all is a second before now.
    """
    nanoseconds = (seconds * 10**9 + 2**63) % 2**64 - 2**63
    return timedelta(microseconds=nanoseconds // 1000)


def quoted(text: str) -> str:
    """A text in the quotes of Go's time package."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if escaped.isascii() and escaped.isprintable():
        return f'"{escaped}"'
    characters = (
        chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"
        for byte in escaped.encode(errors="surrogatepass")
    )
    return f'"{"".join(characters)}"'


@dataclass(slots=True)
class _Parser:
    """Reads a text piece by piece, as Go's layouts do."""

    text: str
    layout: str
    rest: str = ""
    fraction: str = "0"
    fields: list[int] = field(default_factory=list)  # year, month, day, hour, minute, second

    def seconds(self) -> str | None:
        moment = self._parse()
        text = f"{moment}Z"
        return None if text == _ZERO else text

    def micros(self) -> str | None:
        text = f"{self._parse()}.{self.fraction:0<6.6}Z"
        return None if text == _ZERO_MICRO else text

    def _parse(self) -> str:
        """The moment in UTC, in whole seconds, without the Z."""
        self.rest = self.text
        self._number("2006", 4)
        self._literal("-")
        self._number("01", 2, "month", 1, 12)
        self._literal("-")
        self._number("02", 2)
        self._literal("T")
        # The one number that may have one digit only.
        digit = self.rest[1:2]
        width = 2 if digit.isascii() and digit.isdigit() else 1
        self._number("15", width, "hour", 0, 23)
        self._literal(":")
        self._number("04", 2, "minute", 0, 59)
        self._literal(":")
        self._number("05", 2, "second", 0, 59)
        self._fraction()
        offset = self._zone()
        if self.rest:
            raise TimeError(f"parsing time {quoted(self.text)}: extra text: {quoted(self.rest)}")
        year, month, day, hour, minute, second = self.fields
        # 400 years later the calendar is the same, and Python knows no year 0.
        if not 1 <= day <= monthrange(year + 400, month)[1]:
            raise self._out_of_range("day")
        days, minutes = divmod(hour * 60 + minute - offset, 24 * 60)
        # A day of a year that Python knows, in the same place of the
        # calendar's cycle of 400 years.
        known_day = date(2000 + year % 400, month, day)
        moved = date.fromordinal(known_day.toordinal() + days)
        year += moved.year - known_day.year
        return (
            f"{'-' if year < 0 else ''}{abs(year):04d}-{moved.month:02d}-{moved.day:02d}"
            f"T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
        )

    def _literal(self, expected: str) -> None:
        if not self.rest.startswith(expected):
            raise self._unreadable(expected)
        self.rest = self.rest[len(expected) :]

    def _number(
        self, element: str, width: int, name: str = "", low: int = 0, high: int = 9999
    ) -> None:
        digits = self.rest[:width]
        if len(digits) < width or not (digits.isascii() and digits.isdigit()):
            raise self._unreadable(element)
        self.rest = self.rest[width:]
        number = int(digits)
        if not low <= number <= high:
            raise self._out_of_range(name)
        self.fields.append(number)

    def _fraction(self) -> None:
        if self.layout == MICRO_LAYOUT:
            match = _MICRO_FRACTION.match(self.rest)
            if match is None:
                raise self._unreadable(".000000")
        else:
            match = _FRACTION.match(self.rest)
        if match is not None:
            self.fraction = match[0][1:10]
            self.rest = self.rest[match.end() :]

    def _zone(self) -> int:
        """Minutes east of Greenwich."""
        if self.rest.startswith("Z"):
            self.rest = self.rest[1:]
            return 0
        match = _ZONE.match(self.rest)
        if match is None:
            raise self._unreadable("Z07:00")
        self.rest = self.rest[match.end() :]
        hours, minutes = int(match[2]), int(match[3])
        if hours > 24:
            raise self._out_of_range("time zone offset hour")
        if minutes > 60:
            raise self._out_of_range("time zone offset minute")
        offset = hours * 60 + minutes
        return -offset if match[1] == "-" else offset

    def _unreadable(self, element: str) -> TimeError:
        return TimeError(
            f"parsing time {quoted(self.text)} as {quoted(self.layout)}: "
            f"cannot parse {quoted(self.rest)} as {quoted(element)}"
        )

    def _out_of_range(self, name: str) -> TimeError:
        return TimeError(f"parsing time {quoted(self.text)}: {name} out of range")
