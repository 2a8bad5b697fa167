# SPDX-License-Identifier: Apache-2.0
"""Joins each controller that forces to the election of its cluster.

One process of a cluster marks pods Failed, taints nodes and evicts by force, in
whatever namespace the process runs and whatever its flags say. Both worlds use
this module, so an embedded cluster and a manager that joins it see each other.
"""

from collections.abc import Callable

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client.contract import Client
from refloat.config import actors
from refloat.controllers.failure_recovery.settings import Settings as FailureRecoverySettings
from refloat.runtime.candidate import Candidate, CandidateMetrics
from refloat.runtime.election import ElectionSettings
from refloat.runtime.guard import Guard


class Elections:
    """What the elections of one process share."""

    def __init__(
        self,
        client: Client,
        identity: str,
        *,
        clock: Clock,
        rand: Rand,
        metrics: CandidateMetrics,
    ) -> None:
        """`identity` must be of this process alone, now and ever."""
        self._client = client
        self._identity = identity
        self._clock = clock
        self._rand = rand
        self._metrics = metrics

    def candidate(self, controller: str, on_change: Callable[[bool], None]) -> Candidate:
        return Candidate(
            controller,
            self._client,
            clock=self._clock,
            rand=self._rand,
            settings=ElectionSettings(
                actors.NAMESPACE, actors.LEASES[controller], self._identity, unique_identity=True
            ),
            metrics=self._metrics,
            on_change=on_change,
        )


class ElectedController:
    """Says whether one controller of this process acts now, and lets its writes through.

    A controller that would force nothing needs no election: in mode Report a
    process reports beside the leader, and never keeps another from acting.
    """

    def __init__(self, elections: Elections, controller: str) -> None:
        self.candidate = elections.candidate(controller, self._led)
        self._apply: Callable[[bool], None] = lambda _: None
        self._leads = False
        self._reports = False
        self.acts = False

    def guard(self, client: Client) -> Client:
        """A client that writes only while this process leads."""
        return Guard(client, self._check)

    def join(self, apply: Callable[[bool], None]) -> None:
        """`apply` gets at once, and at each change, whether the controller acts."""
        self._apply = apply
        apply(self.acts)

    def use(self, *, is_on: bool, forces: bool) -> None:
        """By its gates, and whether it would force anything."""
        self._reports = is_on and not forces
        self.candidate.contend(wanted=is_on and forces)
        self._update()

    def use_recovery(self, settings: FailureRecoverySettings) -> None:
        self.use(is_on=settings.enabled, forces=settings.policy.mode != "Report")

    def _check(self) -> None:
        if not self._reports:
            self.candidate.check()

    def _led(self, leads: bool) -> None:
        self._leads = leads
        self._update()

    def _update(self) -> None:
        acts = self._leads or self._reports
        if acts != self.acts:
            self.acts = acts
            self._apply(acts)
