# SPDX-License-Identifier: Apache-2.0
"""Records the steps of a run with their times, to compare two runs.

A line must not differ between two processes: no address, no real time, no text in the
order of a set.
"""

import hashlib
from collections.abc import Callable

# 10 million lines are a gigabyte, too much to read.
MAX_LINES = 10_000_000


class Trace:
    """Lines, each with its virtual time."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.lines: list[tuple[float, str]] = []

    def add(self, text: str) -> None:
        assert len(self.lines) < MAX_LINES, "the trace is full"
        self.lines.append((self._time(), text))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.lines]

    def digest(self) -> str:
        """A hash of all lines and times."""
        digest = hashlib.sha256()
        for when, text in self.lines:
            digest.update(f"{when!r} {text!r}\n".encode())
        return digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(f"{when:12.6f} {text}" for when, text in self.lines)
