# SPDX-License-Identifier: Apache-2.0
"""A process's part in an election that it may win and lose many times.

`manager.Leadership` ends the process when it loses its Lease. A candidate goes
on: it stops acting, reports that it is a standby, and takes over again when the
leader is gone. So one process can lead in one election and stand by in another,
and an embedded cluster, which must not end, can lose one.

The callback only starts and stops the work. The protection is `check`, which
`guard.Guard` calls before each write.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Gauge

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client.contract import Client
from refloat.runtime.election import ElectionMetrics, ElectionSettings, Elector
from refloat.runtime.errors import LeadershipLost

log = logging.getLogger(__name__)

State = Literal["leader", "standby", "off"]


class CandidateMetrics:
    """The state of each candidate; make one for each process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.elections = ElectionMetrics(registry)
        self._states = Gauge(
            "refloat_actor_state",
            "1 for the state that this process is in, 0 else",
            ("controller", "state"),
            registry=registry,
        )

    def show(self, controller: str, now: State) -> None:
        for state in get_args(State):
            self._states.labels(controller, state).set(1 if state == now else 0)


class Candidate:
    """Contends for the Lease of one controller while `contend` enables that."""

    def __init__(
        self,
        controller: str,
        client: Client,
        *,
        clock: Clock,
        rand: Rand,
        settings: ElectionSettings,
        metrics: CandidateMetrics,
        on_change: Callable[[bool], None],
    ) -> None:
        """`on_change` gets at each change whether this process leads."""
        self.controller = controller
        self._client = client
        self._clock = clock
        self._rand = rand
        self._settings = settings
        self._metrics = metrics
        self._on_change = on_change
        self._enabled = False  # until `contend`: a process without the controller is no standby
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._elector: Elector | None = None  # of the present term, or of the last one
        self._is_leader = False  # the last argument of `on_change`
        self._show()

    @property
    def leads(self) -> bool:
        return self._elector is not None and self._elector.leads

    def check(self) -> None:
        """Raise `LeadershipLost` unless a write may start now."""
        if self._elector is None:
            raise LeadershipLost(f"{self._settings.name}: not the leader")
        self._elector.check()

    def contend(self, *, enabled: bool) -> None:
        """Start or stop contending: the gate of the controller may be switched off and on."""
        self._enabled = enabled
        self._changed.set()
        self._show()

    def start(self) -> None:
        self._tasks.spawn(self._run(), name=f"candidate/{self._settings.name}")

    async def stop(self, *, release: bool) -> None:
        """Stop. With `release` the next leader need not wait; all work must have ended before."""
        await self._tasks.close()
        if self._elector is not None:
            await (self._elector.release() if release else self._elector.close())
        self._set_leader(leads=False)

    def describe(self) -> str:
        """The state of this process, for people."""
        if not self._enabled:
            return "off"
        if self.leads:
            return "leader"
        holder = "" if self._elector is None else self._elector.holder
        return f"standby; {holder or 'no process'} leads"

    def why_unhealthy(self) -> str | None:
        """Why this process can never act: no right to the Lease. A standby is healthy."""
        denied = "" if self._elector is None or not self._enabled else self._elector.denied
        return denied or None

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self._enabled:
                await self._changed.wait()
                continue
            term = asyncio.ensure_future(self._term())
            disabled = asyncio.ensure_future(self._until_disabled())
            try:
                await asyncio.wait((term, disabled), return_when=asyncio.FIRST_COMPLETED)
            finally:
                term.cancel()
                disabled.cancel()
                ends = await asyncio.gather(term, disabled, return_exceptions=True)
            if error := next((each for each in ends if isinstance(each, Exception)), None):
                name, wait = self._settings.name, self._settings.retry_period
                text = "%s: the term as leader by the Lease %s failed; again in %.1f s"
                log.error(text, self.controller, name, wait, exc_info=error)
                await self._clock.sleep(wait)

    async def _until_disabled(self) -> None:
        while self._enabled:
            self._changed.clear()
            await self._changed.wait()

    async def _term(self) -> None:
        """Wait for leadership, and for its end. An early end does not release the Lease: a write
        may be on the way, and the wait of the next leader gives this write time to land."""
        elector = self._elector = Elector(
            self._client,
            clock=self._clock,
            rand=self._rand,
            settings=self._settings,
            metrics=self._metrics.elections,
            on_holder=self._saw_holder,
        )
        try:
            await elector.acquire()
            self._set_leader(leads=True)
            await elector.lost()
        finally:
            try:
                self._set_leader(leads=False)
            finally:
                await elector.close()  # else the elector would renew the Lease for ever

    def _saw_holder(self, holder: str) -> None:
        if holder and holder != self._settings.identity:
            text = "%s: standby: %s leads by the Lease %s/%s"
            lease = (self._settings.namespace, self._settings.name)
            log.warning(text, self.controller, holder, *lease)

    def _set_leader(self, *, leads: bool) -> None:
        if leads != self._is_leader:
            self._is_leader = leads
            self._on_change(leads)
        self._show()

    def _show(self) -> None:
        state: State = "standby" if self._enabled else "off"
        self._metrics.show(self.controller, "leader" if self._is_leader else state)
