# SPDX-License-Identifier: Apache-2.0
"""Measures how long the Lease of each node has not changed, by the observer's own clock.

The observer never reads the time in a Lease, because the clock of a lost node may
be wrong. A silence counts only while the observer could have seen its end. The
count begins anew

* when the observer begins to act, because a node may have renewed its Lease
  before;
* when the API server did not answer a read, or the watch of leases broke: without
  the server no node can renew its Lease, so an unchanged Lease proves nothing;
* when the API server answered a read late: the server stood still, and the
  renewal of a living node may still wait behind the read;
* when the observer's own process did not run for a while: renewals from this time
  are not read yet.

A controller reads the Lease again right before a write and notes the answer
here: if the version has changed, the silence is over. `policy.node_evidence`
decides what a silence means.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.base.clock import Clock, Handle
from refloat.client import errors
from refloat.policy.recovery.node_evidence import LeaseSilence

log = logging.getLogger(__name__)

# The duration of a lease without leaseDurationSeconds: the kubelet's number.
_LASTS_SECONDS = 40.0

# A later answer to a read shows that the server stood still. All requests of a busy manager wait
# for some 3 s at the usual rate limit, so they are below.
LATE_ANSWER_SECONDS = 5.0

# How often the observer checks that the process runs, and the gap that shows a stop (SIGSTOP, a
# paused virtual machine). The delay of a busy event loop is shorter.
_TICK_SECONDS = 2.5
STOP_SECONDS = 5.0


@dataclass(slots=True)
class _Observed:
    version: str
    renewed: str
    changed: float
    lasts: float


class LeaseObserver:
    """The versions of leases by the name of their node; times are monotonic."""

    def __init__(
        self,
        clock: Clock,
        failed_at: Callable[[], float | None] = lambda: None,
        *,
        by_renew_time: bool = False,
    ) -> None:
        """`failed_at` returns when the watch of leases last failed.

        With `by_renew_time` only another renewTime is a change, because users can change other
        fields. An earlier time is a change too, unlike for the node controller of Kubernetes
        (behaviour C3.2): the clock of a living node may be set back.
        """
        self._clock = clock
        self._by_renew_time = by_renew_time
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
        """After a stop, this timer runs before any work that other timers wake."""
        now = self._clock.monotonic()
        gap = now - self._ran_at
        if gap > STOP_SECONDS:
            log.warning("this process did not run for %.0f s: silence counts anew", gap)
            self._began = now
        self._ran_at = now
        self._timer = self._clock.call_at(now + _TICK_SECONDS, self._tick)

    def observe(self, name: str, lease: Lease | None) -> bool:
        """Note the lease of a node, or None; returns whether that is a change."""
        record = self._leases.get(name)
        if lease is None:
            self._leases.pop(name, None)
            return record is not None
        version, renewed = lease.metadata.resource_version, lease.spec.renew_time or ""
        if self._by_renew_time:
            if renewed in ("", None if record is None else record.renewed):
                return False
        elif record is not None and record.version == version:
            return False
        lasts = float(lease.spec.lease_duration_seconds or _LASTS_SECONDS)
        self._leases[name] = _Observed(version, renewed, self._clock.monotonic(), lasts)
        return True

    @property
    def is_cut_off(self) -> bool:
        """Whether the last read was not answered."""
        return self._is_cut_off

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The block makes one live read. A late or missing answer ends all silences."""
        start = self._clock.monotonic()
        try:
            yield
        except (errors.Timeout, errors.Unavailable):
            self.lose_contact()
            raise
        if self._clock.monotonic() - start > LATE_ANSWER_SECONDS:
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
        """The last resourceVersion of the lease; empty without a lease."""
        record = self._leases.get(name)
        return "" if record is None else record.version

    def changed_at(self, name: str) -> float:
        """When the lease was last seen to change; long ago without a lease."""
        record = self._leases.get(name)
        return float("-inf") if record is None else record.changed

    def forget(self, name: str) -> None:
        self._leases.pop(name, None)

    def silence(self, name: str) -> LeaseSilence:
        record = self._leases.get(name)
        now, failed = self._clock.monotonic(), self._failed_at()
        since = self._began if failed is None else max(self._began, failed)
        if record is None:
            return LeaseSilence(now - since, exists=False)
        return LeaseSilence(now - max(record.changed, since), record.lasts)


class PolledSilence:
    """For how long a Lease has not changed, for a process that reads the Lease now and then.

    A pause counts from one answer to the sending of the next request, because the Lease stood
    still at least that long.
    """

    def __init__(self, now: float) -> None:
        self._answered_at = now
        self.seconds = 0.0

    def changed(self, now: float) -> None:
        self._answered_at = now
        self.seconds = 0.0

    def unchanged(self, *, sent_at: float, now: float, most: float) -> None:
        """Count the pause before this answer, `most` at most.

        While the API server was away, the owner of the Lease could not renew the Lease.
        """
        self.seconds += min(max(sent_at - self._answered_at, 0.0), most)
        self._answered_at = now
