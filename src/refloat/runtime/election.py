# SPDX-License-Identifier: Apache-2.0
"""Leader election on a Lease: of many processes one acts.

Why two processes never act at once. A leader counts from the moment at which
the leader *sent* the last successful renewal, and stops `renew_deadline` later.
The others count from the moment at which they *saw* this renewal, which is
later, and wait for `lease_duration`, which is longer. Times inside the Lease are
for people: no decision reads them, so clocks may be wrong or jump. All times are
of `Clock.monotonic()`, which does not stop while the process is frozen or the
machine sleeps. Only a successful answer moves the deadline; if the answer is
lost, the leader renews again.

A task of its own renews, with a request timeout below the deadline. Give the
elector a client of its own too, so that a renewal never waits behind other
requests. A leader writes through `guard.Guard`.

One gap remains. If a user deletes the Lease, a process that never saw the Lease
can create a new one and act, while the old leader acts until the next renewal. A
process that saw the old leader waits until the old lease runs out.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from prometheus_client import CollectorRegistry, Gauge

from refloat.api import times
from refloat.api.coordination import Lease, LeaseSpec
from refloat.api.meta import Object
from refloat.base.clock import Clock, Handle
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import LEASES
from refloat.runtime.errors import BadElection, LeadershipLost

log = logging.getLogger(__name__)

# Waits between tries are longer by up to this share, so that contenders that
# started together do not stay together (the share is Kubernetes').
JITTER = 1.2

# The duration of a released Lease: the next leader need not wait.
RELEASED_SECONDS = 1

# The leader repeats a failed renewal after this share of the retry period: during
# a restart, the API server at first answers for moments only.
AFTER_FAILURE = 0.25

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    """The Lease, the identity of this process, and the times."""

    namespace: str
    name: str
    identity: str
    """Must be unique to this process: two with one name would both lead."""

    unique_identity: bool = False
    """Whether no other process has this identity: the identity is random, or the earlier owner has
    ended. Then the process takes a Lease with its own identity at once. Otherwise the process waits
    for such a Lease to run out, because an earlier process of the same name may still act."""

    lease_duration: float = 15.0
    """Seconds that the others wait after the last renewal; Kubernetes' default."""

    renew_deadline: float = 10.0
    """Seconds after a renewal at which a leader stops acting; Kubernetes' default."""

    retry_period: float = 2.0
    """Seconds between two tries to acquire or renew; Kubernetes' default."""

    request_timeout: float = 5.0
    """Seconds for one request; half the deadline, so that a hang leaves time for another try."""

    def __post_init__(self) -> None:
        if not self.identity:
            raise BadElection("leader election: the identity is empty")
        ordered = (
            ("retry_period", self.retry_period, "zero", 0.0),
            ("request_timeout", self.request_timeout, "zero", 0.0),
            ("renew_deadline", self.renew_deadline, "retry_period * 1.2", self.retry_period * 1.2),
            ("renew_deadline", self.renew_deadline, "request_timeout", self.request_timeout),
            ("lease_duration", self.lease_duration, "renew_deadline", self.renew_deadline),
        )
        for name, value, than, bound in ordered:
            if value <= bound:
                raise BadElection(f"leader election: {name} {value:g} must be above {than}")
        if self.lease_duration != int(self.lease_duration):
            raise BadElection(
                f"leader election: lease_duration {self.lease_duration:g} must be whole seconds"
            )


class ElectionMetrics:
    """Whether this process leads, for each election; make one for each process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._status = Gauge(
            "leader_election_master_status",
            "1 for the leader, 0 else",
            ("name",),
            registry=registry,
        )

    def of(self, name: str) -> Gauge:
        return self._status.labels(name)


class Elector:
    """One contender. `acquire` once, act through a `Guard`, `release` at the end."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rand: Rand,
        settings: ElectionSettings,
        metrics: ElectionMetrics | None = None,
        on_holder: Callable[[str], None] | None = None,
    ) -> None:
        """`on_holder` gets the holder in the Lease at each change."""
        self._client = client
        self._clock = clock
        self._rand = rand
        self._settings = settings
        self._seen: Lease | None = None
        self._seen_at = 0.0  # when the Lease changed, on our own clock
        self._is_stale = True  # whether the next write needs a read before
        self._tried = False  # whether a Lease in our name can be ours
        self._deadline: float | None = None  # until when we may act; None: we do not lead
        self._alarm: Handle | None = None
        self._tasks = Tasks()
        self._lost = asyncio.Event()
        self._why = f"{settings.name}: not the leader"
        self._status = None if metrics is None else metrics.of(settings.name)
        self._on_holder = on_holder
        self._failure = ""  # why the last try failed, as it was logged
        self.denied = ""
        """Why the API server forbids the Lease; empty without a refusal."""

    @property
    def leads(self) -> bool:
        """Whether a write may start now; reads the clock each time."""
        return self._deadline is not None and self._clock.monotonic() < self._deadline

    @property
    def holder(self) -> str:
        """The last observed leader; for people."""
        return "" if self._seen is None else self._seen.spec.holder_identity or ""

    def check(self) -> None:
        """Raise `LeadershipLost` unless a write may start now."""
        if self.leads:
            return
        if self._deadline is not None:
            self._lose("not renewed in time")
        raise LeadershipLost(self._why)

    async def acquire(self) -> None:
        """Wait until this process leads. From then on a task renews the Lease."""
        name, identity = self._settings.name, self._settings.identity
        log.info("%s: waiting for leadership as %s", name, identity)
        while not await self._attempt(self._settings.request_timeout):
            self._deadline = None  # the answer came too late
            await self._clock.sleep(self._rand.jitter(self._settings.retry_period, JITTER))
        log.info("%s: leading as %s", name, identity)
        self._show(leads=True)
        self._ring()
        self._tasks.spawn(self._keep(), name=f"election/{name}")

    async def lost(self) -> LeadershipLost:
        """Wait until leadership is lost; returns the reason."""
        await self._lost.wait()
        return LeadershipLost(self._why)

    async def release(self) -> None:
        """Release the Lease, so that the next leader need not wait. All work must have ended.

        A failure costs the next leader a wait and nothing else.
        """
        await self.close()
        try:
            async with self._clock.timeout(self._settings.request_timeout):
                lease = await self._read() if self._is_stale else self._seen
                if lease is not None and self._is_ours(lease):
                    now = times.format_micro(self._clock.now())
                    spec = {
                        "holderIdentity": None,
                        "leaseDurationSeconds": RELEASED_SECONDS,
                        "acquireTime": now,
                        "renewTime": now,
                    }
                    await self._patch(lease, spec)
                    log.info("%s: released", self._settings.name)
        except (errors.ClientError, TimeoutError) as error:
            log.warning("%s: not released: %s", self._settings.name, str(error) or "no answer")

    async def close(self) -> None:
        """Stop acting and renewing at once, without a release."""
        self._deadline = None
        self._why = f"{self._settings.name}: stopped"
        self._show(leads=False)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        await self._tasks.close()

    async def _keep(self) -> None:
        """Renew until leadership is lost."""
        renewed = True
        while not self._lost.is_set():
            pause = self._settings.retry_period
            await self._clock.sleep(pause if renewed else pause * AFTER_FAILURE)
            # The process may have been frozen: check the time first, so that no former leader
            # sends a renewal.
            if self._deadline is None:
                return
            seconds = self._deadline - self._clock.monotonic()
            if seconds <= 0:
                self._lose("not renewed in time")
                return
            before = self._deadline
            await self._attempt(min(self._settings.request_timeout, seconds))
            renewed = self._deadline != before

    async def _attempt(self, seconds: float) -> bool:
        """Try once to acquire or to renew; whether this process leads then. Logs failures."""
        try:
            async with self._clock.timeout(seconds):
                await self._acquire_or_renew()
        except TimeoutError:
            self._failed(f"no answer in {seconds:g} s")
        except (errors.Conflict, errors.AlreadyExists):
            log.info("%s: another process was faster", self._settings.name)
        except errors.ClientError as error:
            self._failed(str(error), denied=isinstance(error, errors.Forbidden))
        else:
            self._failure = self.denied = ""
        return self.leads

    def _failed(self, why: str, *, denied: bool = False) -> None:
        """Log each reason once, and not at each try."""
        if why != self._failure:
            log.warning("%s: %s", self._settings.name, why)
        self._failure = why
        self.denied = why if denied else ""

    async def _acquire_or_renew(self) -> None:
        if self.leads and not self._is_stale and self._seen is not None:
            with contextlib.suppress(errors.Conflict, errors.NotFound):
                return await self._claim(self._seen)
        lease = await self._read()
        if lease is None:
            if self._seen is None or self._is_ours(self._seen) or self._is_free(self._seen):
                await self._claim(None)
        elif self._is_ours(lease):
            await self._claim(lease)
        elif self._deadline is not None:
            self._lose(f"{lease.spec.holder_identity or 'nobody'} has the Lease")
        elif self._is_free(lease):
            await self._claim(lease)
        return None

    async def _read(self) -> Lease | None:
        """Read the Lease. A change counts from now, which is later than the write."""
        try:
            lease = await self._client.get(
                LEASES, self._settings.name, namespace=self._settings.namespace
            )
        except errors.NotFound:
            return None
        if self._seen is None or lease != self._seen:
            self._see(lease)
        return lease

    def _see(self, lease: Lease) -> None:
        before, is_first = self.holder, self._seen is None
        self._seen, self._seen_at = lease, self._clock.monotonic()
        if self._on_holder is not None and (is_first or self.holder != before):
            self._on_holder(self.holder)

    def _is_ours(self, lease: Lease) -> bool:
        """Whether this process wrote the Lease, and not an earlier one of the same name."""
        ours = self._tried or self._settings.unique_identity
        return ours and lease.spec.holder_identity == self._settings.identity

    def _is_free(self, lease: Lease) -> bool:
        if not lease.spec.holder_identity:
            return True
        duration = lease.spec.lease_duration_seconds or self._settings.lease_duration
        return self._clock.monotonic() >= self._seen_at + duration

    async def _claim(self, old: Lease | None) -> None:
        """Write the Lease in our name, over exactly the version `old`."""
        if self._deadline is not None and not self.leads:
            return self._lose("not renewed in time")
        self._tried = self._is_stale = True
        start = self._clock.monotonic()
        spec = self._spec(old or self._seen)
        lease = await (self._create(spec) if old is None else self._patch(old, spec))
        # Only here does the deadline move. It counts from the sending; others see the write later.
        self._is_stale = False
        self._see(lease)
        if not self._lost.is_set():
            self._deadline = start + self._settings.renew_deadline
        return None

    def _spec(self, old: Lease | None) -> Object:
        identity, now = self._settings.identity, self._clock.now()
        spec = LeaseSpec() if old is None else old.spec
        renewed = times.format_micro(now)
        if renewed == spec.renew_time:
            # A write without a change has no event, so the others would not see it.
            renewed = times.format_micro(now + _MICROSECOND)
        ours = spec.holder_identity == identity
        transitions = spec.lease_transitions or 0
        return {
            "holderIdentity": identity,
            "leaseDurationSeconds": int(self._settings.lease_duration),
            "acquireTime": spec.acquire_time if ours and spec.acquire_time else renewed,
            "renewTime": renewed,
            "leaseTransitions": transitions if ours or old is None else transitions + 1,
        }

    async def _patch(self, old: Lease, spec: Object) -> Lease:
        version = old.metadata.resource_version
        return await self._client.patch(
            LEASES,
            self._settings.name,
            {"metadata": {"resourceVersion": version}, "spec": spec},
            namespace=self._settings.namespace,
        )

    async def _create(self, spec: Object) -> Lease:
        metadata = {"name": self._settings.name, "namespace": self._settings.namespace}
        return await self._client.create(
            LEASES,
            {
                "apiVersion": LEASES.resource.api_version,
                "kind": LEASES.resource.kind,
                "metadata": metadata,
                "spec": spec,
            },
            namespace=self._settings.namespace,
        )

    def _ring(self) -> None:
        """Lose leadership in time, even if the renewal hangs and cannot be cancelled."""
        self._alarm = None
        if self._deadline is None:
            return
        if self.leads:
            self._alarm = self._clock.call_at(self._deadline, self._ring)
        else:
            self._lose("not renewed in time")

    def _lose(self, why: str) -> None:
        self._deadline = None
        self._why = f"{self._settings.name}: leadership lost: {why}"
        if not self._lost.is_set():
            log.error("%s", self._why)
        self._lost.set()
        self._show(leads=False)

    def _show(self, *, leads: bool) -> None:
        if self._status is not None:
            self._status.set(1 if leads else 0)
