# SPDX-License-Identifier: Apache-2.0
"""The writes of a controller whose events are not in the cache yet.

A cache lags behind the controller's own writes. A controller that creates ten
pods and reads the cache before their events arrive would create ten more. So a
controller notes its writes in advance, the event handlers note the events, and
the controller waits until both agree. Lost events cannot block the controller
for ever, because a note expires.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from refloat.base.clock import Clock

K = TypeVar("K", bound=Hashable)

# After so long no events are missing, and the cache is right again (behaviour A1.8).
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
        """Expect so many creations, instead of the earlier expectation."""
        self._pending[key] = _Pending(count, 0, self._clock.monotonic())

    def expect_deletions(self, key: K, count: int) -> None:
        """Expect so many deletions, instead of the earlier expectation."""
        self._pending[key] = _Pending(0, count, self._clock.monotonic())

    def creation_observed(self, key: K, count: int = 1) -> None:
        """A creation arrived, or failed."""
        if (pending := self._pending.get(key)) is not None:
            pending.creations -= count

    def deletion_observed(self, key: K, count: int = 1) -> None:
        """A deletion arrived, or failed."""
        if (pending := self._pending.get(key)) is not None:
            pending.deletions -= count

    def satisfied(self, key: K) -> bool:
        """Whether nothing is expected, everything has arrived, or the expectation has expired."""
        pending = self._pending.get(key)
        if pending is None or (pending.creations <= 0 and pending.deletions <= 0):
            return True
        return self._clock.monotonic() - pending.since > EXPIRY_SECONDS

    def forget(self, key: K) -> None:
        self._pending.pop(key, None)


class FinalizerExpectations(Generic[K]):
    """The pods that lose their finalizer, by UID and per key (behaviour A10.4).

    These do not expire: each ends with an update or a deletion that every cache
    receives, and only a pod without the finalizer counts once.
    """

    def __init__(self) -> None:
        self._pending: dict[K, set[str]] = {}

    def expect_removed(self, key: K, uids: Iterable[str]) -> None:
        """Expect these removals too, beside the earlier ones."""
        if expected := set(uids):
            self._pending.setdefault(key, set()).update(expected)

    def removal_observed(self, key: K, uid: str) -> None:
        """The pod lost the finalizer, is gone, or the removal failed."""
        if (pending := self._pending.get(key)) is None:
            return
        pending.discard(uid)
        if not pending:
            del self._pending[key]

    def expected(self, key: K) -> frozenset[str]:
        return frozenset(self._pending.get(key, ()))

    def forget(self, key: K) -> None:
        self._pending.pop(key, None)
