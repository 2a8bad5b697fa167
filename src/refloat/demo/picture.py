# SPDX-License-Identifier: Apache-2.0
"""Pods by index over time, as lines of text.

Pure: what was noted goes in, lines come out. A pod has a line of its own, on
which each column is half a second, so that one sees which ran beside which.
"""

from dataclasses import dataclass, field
from enum import StrEnum

COLUMNS = 60
INDENT = 8

# Seconds of a column; the first that has room for all of it is taken.
_SCALES = (0.5, 1.0, 2.0, 5.0)

# Columns between two numbers of the scale.
_STEP = 10


class State(StrEnum):
    """What a pod is seen to be, by the sign for it."""

    PENDING = "."
    RUNNING = "="
    UNREACHABLE = "?"
    TERMINATING = "~"
    FAILED = "X"
    SUCCEEDED = "#"


OVER = (State.FAILED, State.SUCCEEDED)

LEGEND = ". pending  = runs  ? out of reach  ~ terminating  X failed  # done"


@dataclass(slots=True)
class Lane:
    """One pod."""

    index: str
    node: str = ""
    states: list[tuple[float, State]] = field(default_factory=list)
    """From when on it was what, in order."""

    @property
    def state(self) -> State | None:
        return self.states[-1][1] if self.states else None

    def note(self, seconds: float, state: State) -> bool:
        """Whether it is news."""
        if state == self.state:
            return False
        self.states.append((seconds, state))
        return True

    def at(self, begin: float, end: float) -> str:
        """The sign for the time from begin to end: an end is shown, however short."""
        ended = [state for since, state in self.states if state in OVER and since < end]
        if ended:
            since = self.states[-1][0]
            return ended[-1] if begin <= since else " "
        seen = [state for since, state in self.states if since < end]
        return seen[-1] if seen else " "


def draw(lanes: list[Lane], now: float) -> list[str]:
    """The pods until now, those of one index below each other."""
    scale = next((each for each in _SCALES if now < each * COLUMNS), _SCALES[-1])
    return [_row("index", _numbers(scale)), *_lanes(lanes, now, scale), _row("", LEGEND)]


def _lanes(lanes: list[Lane], now: float, scale: float) -> list[str]:
    lines, last = [], ""
    for lane in sorted(lanes, key=lambda each: each.index):
        columns = range(min(COLUMNS, int(now / scale) + 1))
        signs = "".join(lane.at(each * scale, (each + 1) * scale) for each in columns)
        label = "" if lane.index == last else lane.index
        lines.append(_row(label, f"{signs:<{COLUMNS}}  {lane.node}"))
        last = lane.index
    return lines


def _numbers(scale: float) -> str:
    return "".join(f"{each * scale:<{_STEP}g}" for each in range(0, COLUMNS, _STEP)) + "s"


def _row(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}".rstrip()
