# SPDX-License-Identifier: Apache-2.0
"""How long the leases of nodes have stood still, by this process's own clock.

The time that a lease names is another machine's, and may be wrong by hours: it
is only ever compared with what it was. Where leases are watched, a node that
has been silent for long need not be watched anew when somebody says that it is
down.
"""

from dataclasses import dataclass

from refloat.api.coordination import Lease
from refloat.base.clock import Clock
from refloat.policy import force_eviction
from refloat.policy.force_eviction import Settings, Stillness

NAMESPACE = "kube-node-lease"


@dataclass(slots=True)
class _Seen:
    beat: str
    since: float


class Leases:
    """What was seen of them, by the name of their node."""

    def __init__(self, clock: Clock, settings: Settings, *, watched: bool) -> None:
        """`watched`: whether `saw` is told of every change, not only when somebody asks."""
        self._clock = clock
        self._settings = settings
        self._watched = watched
        self._seen: dict[str, _Seen] = {}
        self._at_first: dict[str, str] = {}  # how it was when the wish was first seen

    def saw(self, name: str, lease: Lease | None) -> None:
        """A lease as it is now; none if it is gone."""
        beat, seen = force_eviction.beat(lease), self._seen.get(name)
        if seen is None or seen.beat != beat:
            self._seen[name] = _Seen(beat, self._clock.monotonic())

    def judge(self, name: str, lease: Lease | None) -> Stillness:
        """For a node that somebody says is down, of its lease as it was just read."""
        before = self._seen.get(name)
        # One that is newer than all that was seen was renewed just now.
        at_first = before.beat if before is not None else force_eviction.beat(lease)
        moved = self._at_first.setdefault(name, at_first) != force_eviction.beat(lease)
        self.saw(name, lease)
        good_for = lease.spec.lease_duration_seconds if lease is not None else None
        return Stillness(
            self._clock.monotonic() - self._seen[name].since,
            float(good_for or self._settings.lease_seconds),
            moved=moved,
        )

    def forget(self, name: str) -> None:
        """Nobody says any more that it is down."""
        self._at_first.pop(name, None)
        if not self._watched:
            self._seen.pop(name, None)

    def __len__(self) -> int:
        """Of how many nodes somebody says that they are down."""
        return len(self._at_first)

    def awaits(self, name: str) -> bool:
        return name in self._at_first
