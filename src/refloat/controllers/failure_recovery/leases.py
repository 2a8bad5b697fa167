# SPDX-License-Identifier: Apache-2.0
"""For how long the lease of each node has been silent, by the observer's own clock.

What a lease says of the time is never read: the clock of a lost node may be
wrong. All silence begins anew with the process, because nobody knows what was
renewed while nobody looked: a node that was lost by then may be on its way back.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.policy.zombie import Silence

# Of a lease that does not say for how long it holds: the kubelet's number.
_LASTS_SECONDS = 40

# For which part of its lease's life a lost node must be silent until anything is
# forced there. A lease is renewed four times in its life, so that of two renewals
# one is seen, if its node lives.
_WATCHED, _UNWATCHED, _MOVED = 0.0, 0.5, 1.0

NO_LEASE = ""


@dataclass(slots=True)
class _Seen:
    version: str
    changed: float
    lasts: float


class LeaseBook:
    """What was seen of leases; times are monotonic."""

    def __init__(self) -> None:
        self._began = 0.0
        self._seen: dict[str, _Seen] = {}
        self._lost: dict[str, float] = {}  # name of a lost node -> part of its lease's life

    def begin(self, leases: Iterable[Lease], now: float) -> None:
        """Whatever was seen before counts from now."""
        self._began = now
        self._seen.clear()
        self._lost = dict.fromkeys(self._lost, _UNWATCHED)
        for lease in leases:
            if lease.metadata.namespace == NODE_NAMESPACE:
                self._seen[lease.metadata.name] = _seen(lease, now)

    def saw(self, name: str, lease: Lease | None, now: float) -> None:
        """The lease of a node, or that it has none any more."""
        if self.version(name) == (NO_LEASE if lease is None else lease.metadata.resource_version):
            return
        lasts = _LASTS_SECONDS if lease is None else _lasts(lease)
        version = NO_LEASE if lease is None else lease.metadata.resource_version
        self._seen[name] = _Seen(version, now, lasts)
        if name in self._lost:
            self._lost[name] = _MOVED

    def version(self, name: str) -> str:
        """Under which resourceVersion it was last seen."""
        seen = self._seen.get(name)
        return NO_LEASE if seen is None else seen.version

    def lost(self, name: str) -> None:
        """The node became unreachable: from now on a change is a sign of its return."""
        self._lost[name] = _WATCHED

    def found(self, name: str) -> None:
        self._lost.pop(name, None)

    def silence(self, name: str, now: float) -> Silence:
        seen = self._seen.get(name)
        if seen is None:
            return Silence(now - self._began)
        return Silence(now - seen.changed, seen.lasts * self._lost.get(name, _WATCHED))


def _lasts(lease: Lease) -> float:
    return float(lease.spec.lease_duration_seconds or _LASTS_SECONDS)


def _seen(lease: Lease, now: float) -> _Seen:
    return _Seen(lease.metadata.resource_version, now, _lasts(lease))
