# SPDX-License-Identifier: Apache-2.0
"""An explanation: headed lines, and times in the words of people."""

from dataclasses import dataclass
from datetime import datetime

from refloat.api import durations, times
from refloat.api.meta import Object


@dataclass(frozen=True, slots=True)
class Point:
    """One thing to know, under one word."""

    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Account:
    """What is told of one object."""

    subject: str
    points: tuple[Point, ...]

    def as_object(self) -> Object:
        """For `-o json` and `-o yaml`."""
        told = [{"about": each.about, "text": each.text} for each in self.points]
        return {"subject": self.subject, "points": told}


def when(moment: datetime, now: datetime) -> str:
    """`10:04:41Z (in 43s)`; with the date if that is another day."""
    text = times.format_time(moment)
    if moment.date() == now.date():
        text = text.partition("T")[2]
    seconds = round((moment - now).total_seconds())
    if seconds == 0:
        return f"{text} (now)"
    length = _length(abs(seconds))
    return f"{text} ({f'in {length}' if seconds > 0 else f'{length} ago'})"


def _length(seconds: int) -> str:
    return durations.show(times.span(seconds))
