# SPDX-License-Identifier: Apache-2.0
"""What happened in a run, and when, so that two runs can be compared.

Whoever writes into it must write nothing that differs between two processes:
no address, no real time, nothing in the order of a set.
"""

import hashlib
from collections.abc import Callable

# A run that says more than this has a trace that nobody reads: 10 million
# lines are a gigabyte.
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
        """The same for the same lines at the same times, and only for these."""
        found = hashlib.sha256()
        for when, text in self.lines:
            found.update(f"{when!r} {text!r}\n".encode())
        return found.hexdigest()

    def __str__(self) -> str:
        return "\n".join(f"{when:12.6f} {text}" for when, text in self.lines)
