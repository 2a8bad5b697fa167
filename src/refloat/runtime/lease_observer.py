# SPDX-License-Identifier: Apache-2.0
"""For how long the Lease of each node has not changed, by the observer's own clock.

The time that a Lease names is never read: the clock of a lost node may be
wrong. A silence is counted only while the observer could have seen its end:

* It begins anew when the observer begins to act, because a node may have
  renewed its Lease unseen before.
* It begins anew when the API server did not answer a read, or the watch of
  leases broke: while the server is out, no node can renew its Lease, so a Lease
  that stays the same proves nothing.
* It begins anew when the API server answered a read late: the server stood still,
  and the renewal of a living node may still wait behind the read.
* It begins anew when the observer's own process did not run for a while: what came
  meanwhile was not read yet.

Whoever acts reads the Lease once more right before the write and notes the
answer here: if it is not the version that was silent, the silence is over.
What a silence means is said by `policy.node_evidence`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.base.clock import Clock, Handle
from refloat.client import errors
from refloat.policy.node_evidence import LeaseSilence

log = logging.getLogger(__name__)

# Of a lease that does not say for how long it is good: the kubelet's number.
_LASTS_SECONDS = 40.0

# An answer to a read that comes later shows that the server stood still. All requests of a
# manager at once wait for some 3 s at its usual rate limit, so a busy manager is not meant.
LATE_ANSWER_SECONDS = 5.0

# How often the observer notes that its process runs, and the gap that shows a stop (SIGSTOP, a
# paused virtual machine). A busy event loop is late by less.
_TICK_SECONDS = 2.5
STOP_SECONDS = 5.0


@dataclass(slots=True)
class _Observed:
    version: str
    changed: float
    lasts: float


class LeaseObserver:
    """The versions of leases by the name of their node; times are monotonic."""

    def __init__(self, clock: Clock, failed_at: Callable[[], float | None] = lambda: None) -> None:
        """`failed_at` says when the watch of leases last failed."""
        self._clock = clock
        self._failed_at = failed_at
        self._began = clock.monotonic()
        self._is_cut_off = False
        self._ran_at = self._began
        self._timer: Handle | None = None
        self._leases: dict[str, _Observed] = {}

    def begin(self, leases: Iterable[Lease]) -> None:
        """Start to act: the silence of every lease counts from now."""
        self._began = self._clock.monotonic()
        self._leases.clear()
        for lease in leases:
            if lease.metadata.namespace == NODE_NAMESPACE:
                self.observe(lease.metadata.name, lease)

    def watch_stops(self) -> None:
        """Notice from now on when this process does not run, until `close`."""
        self.close()
        self._ran_at = self._clock.monotonic()
        self._timer = self._clock.call_at(self._ran_at + _TICK_SECONDS, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Timers that are due are called before any work that they wake, also after a stop."""
        now = self._clock.monotonic()
        stood = now - self._ran_at
        if stood > STOP_SECONDS:
            log.warning("this process did not run for %.0f s: silence counts anew", stood)
            self._began = now
        self._ran_at = now
        self._timer = self._clock.call_at(now + _TICK_SECONDS, self._tick)

    def observe(self, name: str, lease: Lease | None) -> bool:
        """Note the lease of a node, None if it has none; whether it is another than before."""
        known = self._leases.get(name)
        if lease is None:
            self._leases.pop(name, None)
            return known is not None
        version = lease.metadata.resource_version
        if known is not None and known.version == version:
            return False
        lasts = float(lease.spec.lease_duration_seconds or _LASTS_SECONDS)
        self._leases[name] = _Observed(version, self._clock.monotonic(), lasts)
        return True

    @property
    def is_cut_off(self) -> bool:
        """Whether the last read was not answered."""
        return self._is_cut_off

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One live read is inside. No silence counts before a late answer, or without one."""
        asked = self._clock.monotonic()
        try:
            yield
        except (errors.Timeout, errors.Unavailable):
            self.lose_contact()
            raise
        if self._clock.monotonic() - asked > LATE_ANSWER_SECONDS:
            self.lose_contact()
        self.answered()

    def lose_contact(self) -> None:
        """The API server did not answer a read: no silence before its next answer counts."""
        self._began = self._clock.monotonic()
        self._is_cut_off = True

    def answered(self) -> None:
        """The API server answered a read."""
        if self._is_cut_off:
            self._began = self._clock.monotonic()
            self._is_cut_off = False

    def version(self, name: str) -> str:
        """The resourceVersion under which the lease was last seen; empty without a lease."""
        known = self._leases.get(name)
        return "" if known is None else known.version

    def forget(self, name: str) -> None:
        self._leases.pop(name, None)

    def silence(self, name: str) -> LeaseSilence:
        known = self._leases.get(name)
        now, failed = self._clock.monotonic(), self._failed_at()
        since = self._began if failed is None else max(self._began, failed)
        if known is None:
            return LeaseSilence(now - since, exists=False)
        return LeaseSilence(now - max(known.changed, since), known.lasts)
