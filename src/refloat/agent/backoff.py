# SPDX-License-Identifier: Apache-2.0
"""How long a container that ended waits for its next start (behaviour D3).

The first restart is immediate; then 10 s from the last end, doubling to five
minutes. It is kept in memory only: a node that restarts begins anew, as a
kubelet does.
"""

import zlib
from dataclasses import dataclass
from datetime import datetime

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0

# Whoever was not restarted for so long begins anew.
FORGOTTEN_SECONDS = 2 * LONGEST_SECONDS

# A start that failed is tried again after this, and up to half as long again. Otherwise a
# thousand pods that could not start at one moment, for one reason, would all be tried again at
# one moment.
START_RETRY_SECONDS = FIRST_SECONDS
START_RETRY_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class _Entry:
    seconds: float
    restarted_at: datetime


class RestartBackoff:
    """The back-off of the containers of one pod, by name."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def seconds(self, name: str, now: datetime) -> float:
        """How long it has to wait after an end; 0 when it never restarted lately."""
        entry = self._fresh(name, now)
        return 0.0 if entry is None else entry.seconds

    def remaining(self, name: str, finished_at: datetime | None, now: datetime) -> float:
        """How much of that is left."""
        if finished_at is None:
            return 0.0
        return max(0.0, self.seconds(name, now) - (now - finished_at).total_seconds())

    def restarted(self, name: str, now: datetime) -> None:
        """It is started again: the next wait is longer."""
        entry = self._fresh(name, now)
        seconds = FIRST_SECONDS if entry is None else min(LONGEST_SECONDS, 2 * entry.seconds)
        self._entries[name] = _Entry(seconds, now)

    def _fresh(self, name: str, now: datetime) -> _Entry | None:
        entry = self._entries.get(name)
        if entry is None or (now - entry.restarted_at).total_seconds() > FORGOTTEN_SECONDS:
            return None
        return entry


def duration(seconds: float) -> str:
    """Whole seconds as Go writes them: `10s`, `1m20s`, `5m0s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def start_retry_seconds(uid: str, container: str = "") -> float:
    """Until a start that failed is tried again.

    Not drawn but computed from the names: uids are chance enough to spread pods, and one
    pod keeps its rhythm, also when its node is restarted.
    """
    share = zlib.crc32(f"{uid}/{container}".encode()) / 2**32
    return START_RETRY_SECONDS * (1 + START_RETRY_JITTER * share)
