# SPDX-License-Identifier: Apache-2.0
"""How long an ended container waits for its next start (behaviour D3).

The first restart is immediate; then 10 s from the last end, doubling to 5 min.
Back-off is only in memory: a restarted agent starts again at 0, like a kubelet.
"""

import zlib
from dataclasses import dataclass
from datetime import datetime

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0

# A container without a restart for so long starts again at 0.
FORGOTTEN_SECONDS = 2 * LONGEST_SECONDS

# A failed start is retried after 10 to 15 s. The spread keeps 1,000 pods that failed at one
# moment from being retried at one moment.
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
        """The wait after an end; 0 without a recent restart."""
        entry = self._fresh(name, now)
        return 0.0 if entry is None else entry.seconds

    def remaining(self, name: str, finished_at: datetime | None, now: datetime) -> float:
        """The rest of that wait."""
        if finished_at is None:
            return 0.0
        return max(0.0, self.seconds(name, now) - (now - finished_at).total_seconds())

    def restarted(self, name: str, now: datetime) -> None:
        """Note a restart: the next wait is longer."""
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
    """Seconds until a failed start is retried.

    A hash of the names, not a random number: uids are random enough to spread pods, and the
    interval of a pod survives a restart of the agent.
    """
    share = zlib.crc32(f"{uid}/{container}".encode()) / 2**32
    return START_RETRY_SECONDS * (1 + START_RETRY_JITTER * share)
