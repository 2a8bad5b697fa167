# SPDX-License-Identifier: Apache-2.0
"""The environment that `build(env)` of each controller receives.

All controllers of a process share one environment: one watch and one decode of
each kind. A controller declares the kinds that it watches and the indexes that
it needs; a kind that no controller declares is not watched. Clients, elections
and settings come from `refloat.app`, because they differ between clusters.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from prometheus_client import CollectorRegistry

from refloat.api.coordination import NODE_NAMESPACE, Lease
from refloat.api.kinds import Resource
from refloat.api.structs import ApiObject
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import kinds
from refloat.client.contract import Client, Kind
from refloat.policy.job.job_gates import JobGates
from refloat.runtime.candidate import Candidate
from refloat.runtime.controller import Instruments
from refloat.runtime.elections import ElectedController, Elections
from refloat.runtime.index import Index
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Worker
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder, RecorderSettings, Sink

S = TypeVar("S")
T = TypeVar("T", bound=ApiObject)

# The kinds that some controller reads in full. All others are decoded as metadata only.
_FULL_KINDS: dict[Resource, Kind[Any]] = {
    each.resource: each
    for each in (
        kinds.JOBS,
        kinds.LEASES,
        kinds.NAMESPACES,
        kinds.NODES,
        kinds.PERSISTENT_VOLUME_CLAIMS,
        kinds.PERSISTENT_VOLUMES,
        kinds.PODS,
        kinds.POD_DISRUPTION_BUDGETS,
        kinds.VOLUME_ATTACHMENTS,
    )
}


class ControllerEnv:
    """Clock, chance, gates, settings, clients by role, and a cache of each declared kind."""

    def __init__(
        self,
        reader: Client,
        client: Callable[[str], Client],
        elections: Elections,
        *,
        gates: Gates,
        clock: Clock,
        rand: Rand,
        registry: CollectorRegistry,
        settings: Iterable[object] = (),
        controllers: Collection[str] = (),
        namespaces: Sequence[str] = (),
        instance: str = "refloat",
    ) -> None:
        """`reader` fills the caches; `client` gives the client of a role.

        Without `namespaces` the controllers act in all of them.
        """
        self.reader = reader
        self.client = client
        self.gates = gates
        self.clock = clock
        self.rand = rand
        self.registry = registry
        self.controllers = controllers
        self.namespaces = namespaces
        self.instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
        self.recorders: list[Recorder] = []
        self.candidates: list[Candidate] = []
        self.readiness: dict[str, Callable[[], str | None]] = {}
        self._elections = elections
        self._instance = instance
        self._event_metrics = EventMetrics(registry)
        self._settings = {type(each): each for each in settings}
        self._informers: dict[tuple[Resource, str], Informer[Any]] = {}
        self._on_update: list[Callable[[], None]] = []

    # -- configuration

    @property
    def job_gates(self) -> JobGates:
        return JobGates.of(self.gates)

    def settings(self, kind: type[S]) -> S:
        """The settings of this class, or its defaults."""
        value = self._settings.get(kind)
        return kind() if value is None else cast("S", value)

    def update(self, *settings: object, gates: Gates | None = None) -> None:
        """Replace settings and gates, and call each `on_update`."""
        self._settings |= {type(each): each for each in settings}
        self.gates = self.gates if gates is None else gates
        for call in self._on_update:
            call()

    def on_update(self, call: Callable[[], None]) -> None:
        self._on_update.append(call)

    # -- caches

    @property
    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    def informer(self, kind: Kind[T], *indexes: Index[Any]) -> Informer[T]:
        """The cache of a kind in the whole cluster, with at least these indexes."""
        return self._informer(kind, "", indexes)

    def namespaced(self, kind: Kind[T], *indexes: Index[Any]) -> list[Informer[T]]:
        """The caches of a kind, one for each namespace that the controllers act in."""
        return [self._informer(kind, each, indexes) for each in self.namespaces or ("",)]

    def metadata(self, resource: Resource, *indexes: Index[Any]) -> Informer[ApiObject]:
        """The cache of a kind of which only the metadata matters."""
        kind = _FULL_KINDS.get(resource) or Kind(resource, ApiObject)
        return self._informer(kind, "", indexes)

    def node_leases(self) -> Informer[Lease]:
        """The cache that has the Leases of nodes."""
        return self._informer(kinds.LEASES, NODE_NAMESPACE, ())

    def _informer(
        self, kind: Kind[T], namespace: str, indexes: Iterable[Index[Any]]
    ) -> Informer[T]:
        key = (kind.resource, namespace)
        if key not in self._informers:
            self._informers[key] = Informer(
                self.reader, kind, clock=self.clock, rand=self.rand, namespace=namespace
            )
        informer: Informer[T] = self._informers[key]
        for each in indexes:
            informer.cache.add_index(each)
        return informer

    # -- leadership, events, readiness

    def election(self, controller: str) -> ElectedController:
        """The election of a controller that forces; another process may win it."""
        election = self._elections.controller(controller)
        self.candidates.append(election.candidate)
        return election

    def recorder(
        self, client: Client, component: str, *, sourced: bool = False, queued: int = 1000
    ) -> Sink:
        """Records events as `component`; at most `queued` of them wait to be written.

        With `sourced` the component is also the source of the events.
        """
        recorder = Recorder(
            client,
            controller=component,
            instance=self._instance,
            clock=self.clock,
            rand=self.rand,
            metrics=self._event_metrics,
            sourced=sourced,
            settings=RecorderSettings(max_queued=queued),
        )
        self.recorders.append(recorder)
        return recorder

    def ready_when(self, name: str, check: Callable[[], str | None]) -> None:
        """`check` gives the reason why the process is not ready, or None."""
        self.readiness[name] = check


Build: TypeAlias = Callable[[ControllerEnv], Sequence[Worker]]
"""Declares what a controller watches, and returns its workers."""
