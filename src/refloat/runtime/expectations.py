# SPDX-License-Identifier: Apache-2.0
"""What a controller has done and not yet seen.

A cache lags behind one's own writes. Whoever creates ten pods and looks again
before their events have come would create ten more. So a controller notes
what it is about to do, its event handlers note what they see, and until both
agree it does not do more of it. Lost events cannot hold it up for ever: a
note expires.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from refloat.base.clock import Clock

K = TypeVar("K", bound=Hashable)

# After so long the events will not come any more, and the cache is right
# again (behaviour A1.8).
EXPIRY_SECONDS = 300.0


@dataclass(slots=True)
class _Pending:
    creations: int
    deletions: int
    since: float


class Expectations(Generic[K]):
    """Counted creations and deletions per key (behaviour A10.1-A10.3)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[K, _Pending] = {}

    def expect_creations(self, key: K, count: int) -> None:
        """So many will be created; replaces what was expected."""
        self._pending[key] = _Pending(count, 0, self._clock.monotonic())

    def expect_deletions(self, key: K, count: int) -> None:
        """So many will be deleted; replaces what was expected."""
        self._pending[key] = _Pending(0, count, self._clock.monotonic())

    def creation_observed(self, key: K, count: int = 1) -> None:
        """One was seen, or failed and will never be."""
        if (pending := self._pending.get(key)) is not None:
            pending.creations -= count

    def deletion_observed(self, key: K, count: int = 1) -> None:
        """One was seen to go, or failed and will not."""
        if (pending := self._pending.get(key)) is not None:
            pending.deletions -= count

    def satisfied(self, key: K) -> bool:
        """Nothing is expected, all was seen, or it is too long ago."""
        pending = self._pending.get(key)
        if pending is None or (pending.creations <= 0 and pending.deletions <= 0):
            return True
        return self._clock.monotonic() - pending.since > EXPIRY_SECONDS

    def forget(self, key: K) -> None:
        self._pending.pop(key, None)


class FinalizerExpectations(Generic[K]):
    """Which pods lose their finalizer, by UID and per key (behaviour A10.4).

    These do not expire: each ends with an update or a deletion that every
    cache gets to see, and treating a pod as done is what counts it once.
    """

    def __init__(self) -> None:
        self._pending: dict[K, set[str]] = {}

    def expect_removed(self, key: K, uids: Iterable[str]) -> None:
        """These too lose it; what was expected stays."""
        if expected := set(uids):
            self._pending.setdefault(key, set()).update(expected)

    def removal_observed(self, key: K, uid: str) -> None:
        """Seen without it, seen to go, or the removal failed."""
        if (pending := self._pending.get(key)) is None:
            return
        pending.discard(uid)
        if not pending:
            del self._pending[key]

    def expected(self, key: K) -> frozenset[str]:
        return frozenset(self._pending.get(key, ()))

    def forget(self, key: K) -> None:
        self._pending.pop(key, None)
