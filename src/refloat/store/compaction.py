# SPDX-License-Identifier: Apache-2.0
"""When the past may be forgotten.

It decides on a revision and does nothing else; `engine` forgets. It reads no
clock: the time comes with each question.
"""

from collections import deque
from dataclasses import dataclass

from refloat.store.log import Log


@dataclass(frozen=True, slots=True)
class Compaction:
    """How much of the past is kept; what exceeds any of these is forgotten."""

    age: float = 300.0
    """Seconds that a change is kept: 300, as Kubernetes keeps them, so that a
    client may lose its connection or turn pages that long without listing anew."""

    changes: int = 100_000
    """Changes kept at most: 100,000, five minutes of 330 a second, and about as
    many as can be searched through in 10 ms."""

    superseded_bytes: int = 32 * 1024 * 1024
    """Bytes of old versions kept at most: 32 MiB, so that frequent changes of
    large objects cannot fill the memory within `age`."""


# Times remembered within one `age`: changes are forgotten this share of it
# late at most, and the memory for it stays small however often it is asked.
MARKS = 60


class Policy:
    """The revision to compact to, by what was seen when."""

    def __init__(self, settings: Compaction) -> None:
        self._settings = settings
        self._marks: deque[tuple[float, int]] = deque()  # (when, revision then)

    def due(self, now: float, log: Log) -> int:
        """Forget up to this revision; it may already be forgotten."""
        self._mark(now, log.revision)
        return max(
            self._aged(now),
            log.revision - self._settings.changes,
            log.revision_within(self._settings.superseded_bytes),
        )

    def _mark(self, now: float, revision: int) -> None:
        if self._marks:
            when, marked = self._marks[-1]
            if marked == revision or now - when < self._settings.age / MARKS:
                return
        self._marks.append((now, revision))

    def _aged(self, now: float) -> int:
        """The newest revision that was there `age` ago."""
        limit = now - self._settings.age
        while len(self._marks) > 1 and self._marks[1][0] <= limit:
            self._marks.popleft()
        if self._marks and self._marks[0][0] <= limit:
            return self._marks[0][1]
        return 0
