# SPDX-License-Identifier: Apache-2.0
"""Pods by index over time, as lines of text.

Pure. Each pod has a line, and each column is half a second, so that the picture
shows which pods ran at the same time.
"""

from dataclasses import dataclass, field
from enum import StrEnum

COLUMNS = 60
INDENT = 8

# Seconds of a column; the picture takes the first scale with enough room.
_SCALES = (0.5, 1.0, 2.0, 5.0)

# Columns between two numbers of the scale.
_STEP = 10


class PodState(StrEnum):
    """The states of a pod, with the sign of each."""

    PENDING = "."
    RUNNING = "="
    UNREACHABLE = "?"
    TERMINATING = "~"
    FAILED = "X"
    SUCCEEDED = "#"


OVER = (PodState.FAILED, PodState.SUCCEEDED)

LEGEND = ". pending  = runs  ? out of reach  ~ terminating  X failed  # done"


@dataclass(slots=True)
class PodTimeline:
    """The states of one pod over time."""

    index: str
    node: str = ""
    states: list[tuple[float, PodState]] = field(default_factory=list)
    """The states with the second at which each began, in order."""

    @property
    def state(self) -> PodState | None:
        return self.states[-1][1] if self.states else None

    def note(self, seconds: float, state: PodState) -> bool:
        """Add a state; False if the pod has this state already."""
        if state == self.state:
            return False
        self.states.append((seconds, state))
        return True

    def at(self, begin: float, end: float) -> str:
        """The sign for this time. An end has a column even if another state began in it."""
        states = [state for since, state in self.states if since < end]
        ends = [state for state in states if state in OVER]
        if ends:
            return ends[-1] if begin <= self.states[-1][0] else " "
        return states[-1] if states else " "


def draw(timelines: list[PodTimeline], now: float) -> list[str]:
    """The pods until now, with the pods of one index below each other."""
    scale = next((scale for scale in _SCALES if now < scale * COLUMNS), _SCALES[-1])
    numbers = "".join(f"{column * scale:<{_STEP}g}" for column in range(0, COLUMNS, _STEP))
    lines, last = [_row("index", f"{numbers}s")], ""
    columns = range(min(COLUMNS, int(now / scale) + 1))
    for timeline in sorted(timelines, key=lambda timeline: timeline.index):
        signs = "".join(timeline.at(column * scale, (column + 1) * scale) for column in columns)
        label = "" if timeline.index == last else timeline.index
        lines.append(_row(label, f"{signs:<{COLUMNS}}  {timeline.node}"))
        last = timeline.index
    return [*lines, _row("", LEGEND)]


def _row(label: str, text: str) -> str:
    return f"{label:<{INDENT}}{text}".rstrip()
