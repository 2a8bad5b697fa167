# SPDX-License-Identifier: Apache-2.0
"""The elections of the controllers that force.

One process of a cluster marks pods Failed, taints nodes and evicts by force. The
namespace and the flags of the process do not matter. An embedded cluster and a
manager that joins it contend for the same Leases.
"""

from collections.abc import Callable

from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client.contract import Client
from refloat.config import actors
from refloat.runtime.candidate import Candidate, CandidateMetrics
from refloat.runtime.election import ElectionSettings
from refloat.runtime.guard import Guard


class Elections:
    """The elections of one process; one client and one identity for all."""

    def __init__(
        self,
        client: Client,
        identity: str,
        *,
        clock: Clock,
        rand: Rand,
        metrics: CandidateMetrics,
    ) -> None:
        """No other process may ever have the same `identity`."""
        self._client = client
        self._identity = identity
        self._clock = clock
        self._rand = rand
        self._metrics = metrics
        self._controllers: dict[str, ElectedController] = {}

    def controller(self, name: str) -> "ElectedController":
        """The one election of this controller in this process."""
        if name not in self._controllers:
            self._controllers[name] = ElectedController(self, name)
        return self._controllers[name]

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
    """Decides whether one controller of this process acts, and guards its writes.

    A controller that forces nothing needs no election: in mode Report a process
    reports beside the leader, and does not contend for the Lease.
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
        """Contend for the Lease if the controller is on and forces; report if it only reports."""
        self._reports = is_on and not forces
        self.candidate.contend(enabled=is_on and forces)
        self._update()

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
