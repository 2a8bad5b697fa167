# SPDX-License-Identifier: Apache-2.0
"""When the past may be forgotten.

This module only decides on a revision; `store` forgets. The caller gives the time.
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


# Times remembered within one `age`: the store forgets a change this share of `age`
# late at most, and the memory for the times stays small.
MARKS = 60


class Policy:
    """The revision to compact to, from the revisions at past times."""

    def __init__(self, settings: Compaction) -> None:
        self._settings = settings
        self._marks: deque[tuple[float, int]] = deque()  # (when, revision then)

    def due(self, now: float, log: Log) -> int:
        """The revision to forget up to; the store may have forgotten it already."""
        self._mark(now, log.revision)
        # The newest revision from `age` ago.
        limit = now - self._settings.age
        while len(self._marks) > 1 and self._marks[1][0] <= limit:
            self._marks.popleft()
        aged = self._marks[0][1] if self._marks and self._marks[0][0] <= limit else 0
        return max(
            aged,
            log.revision - self._settings.changes,
            log.revision_within(self._settings.superseded_bytes),
        )

    def _mark(self, now: float, revision: int) -> None:
        if self._marks:
            when, marked = self._marks[-1]
            if marked == revision or now - when < self._settings.age / MARKS:
                return
        self._marks.append((now, revision))
