# SPDX-License-Identifier: Apache-2.0
"""What the controllers of one process are made of, each part once for all of them.

One watch and one decode of a kind, whoever reads it; nothing is watched that
nobody asked for.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from refloat.api.batch import Job
from refloat.api.coordination import Lease
from refloat.api.core import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod
from refloat.api.kinds import Resource
from refloat.api.policy import PodDisruptionBudget
from refloat.api.storage import VolumeAttachment
from refloat.api.structs import ApiObject
from refloat.apiserver import identity, roles
from refloat.apiserver.identity import Identity
from refloat.app import actor_publisher, timings
from refloat.app.controllers import Chosen
from refloat.app.elections import ElectedController, Elections
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import kinds
from refloat.client.contract import Client, Kind
from refloat.controllers import volume_binding
from refloat.controllers.attach_detach import controller as attach_detach
from refloat.controllers.job import controller as job
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.policy.switches import Switches
from refloat.runtime import index
from refloat.runtime.candidate import Candidate, CandidateMetrics
from refloat.runtime.controller import Instruments
from refloat.runtime.index import Index
from refloat.runtime.informer import Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder, RecorderSettings, Sink

T = TypeVar("T", bound=ApiObject)

Connect = Callable[[Identity], Client]


class Equipment:
    """Clock, chance, gates, clients by identity, and a cache of each kind that is asked for."""

    def __init__(
        self,
        connect: Connect,
        chosen: Chosen,
        *,
        gates: Gates,
        clock: Clock,
        rand: Rand,
        registry: CollectorRegistry,
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        self._connect = connect
        self.chosen = chosen
        self.timings = timings.chosen(fast=chosen.fast)
        policy = recovery or FailureRecoveryPolicy()
        self.recovery = replace(
            policy,
            default_period=self.timings.recovery_period,
            default_node_grace=self.timings.node_grace,
        )
        self.gates = gates
        self.switches = Switches.of(gates)
        self.clock = clock
        self.rand = rand
        self.registry = registry
        self.instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
        self.informers: list[Informer[Any]] = []
        self.recorders: list[Recorder] = []
        self.candidates: list[Candidate] = []

    @cached_property
    def admin(self) -> Client:
        return self._connect(identity.ADMIN)

    def client(self, role: str) -> Client:
        """With the rights of a controller, by its name in `roles`."""
        return self._connect(roles.controller(role))

    def election(self, controller: str) -> ElectedController:
        """Of a controller that forces; a manager that joined the cluster may lead instead."""
        election = ElectedController(self._elections, controller)
        self.candidates.append(election.candidate)
        return election

    @cached_property
    def _elections(self) -> Elections:
        """An identity for ever: the process before this one has ended, as it had the store."""
        return Elections(
            self.admin,
            actor_publisher.EMBEDDED,
            clock=self.clock,
            rand=self.rand,
            metrics=CandidateMetrics(self.registry),
        )

    def recorder(
        self, client: Client, component: str, *, sourced: bool = False, queued: int = 1000
    ) -> Sink:
        """With `sourced` also as the source of its events; so many of them may wait at once."""
        made = Recorder(
            client,
            controller=component,
            instance="refloat",
            clock=self.clock,
            rand=self.rand,
            metrics=self._event_metrics,
            sourced=sourced,
            settings=RecorderSettings(max_queued=queued),
        )
        self.recorders.append(made)
        return made

    @cached_property
    def _event_metrics(self) -> EventMetrics:
        return EventMetrics(self.registry)

    def _informer(self, kind: Kind[T], *indexes: Index[T] | Index[ApiObject]) -> Informer[T]:
        wanted: tuple[Index[Any], ...] = (index.OWNER, *indexes)
        by_name = {each.name: each for each in wanted}
        made = Informer(
            self.admin,
            kind,
            clock=self.clock,
            rand=self.rand,
            indexes=by_name.values(),
        )
        self.informers.append(made)
        return made

    def metadata(self, resource: Resource) -> Informer[ApiObject]:
        """What all objects of a kind have, from the cache that others use if there is one."""
        known: dict[Resource, Callable[[], Informer[Any]]] = {
            kinds.JOBS.resource: lambda: self.jobs,
            kinds.LEASES.resource: lambda: self.leases,
            kinds.NAMESPACES.resource: lambda: self.namespaces,
            kinds.NODES.resource: lambda: self.nodes,
            kinds.PERSISTENT_VOLUME_CLAIMS.resource: lambda: self.claims,
            kinds.PERSISTENT_VOLUMES.resource: lambda: self.volumes,
            kinds.PODS.resource: lambda: self.pods,
            kinds.POD_DISRUPTION_BUDGETS.resource: lambda: self.budgets,
            kinds.VOLUME_ATTACHMENTS.resource: lambda: self.attachments,
        }
        if resource in known:
            return known[resource]()
        return self._informer(Kind(resource, ApiObject))

    @cached_property
    def jobs(self) -> Informer[Job]:
        return self._informer(kinds.JOBS, *job.JOB_INDEXES)

    @cached_property
    def pods(self) -> Informer[Pod]:
        return self._informer(kinds.PODS, index.CLAIM, index.NODE, *job.POD_INDEXES)

    @cached_property
    def nodes(self) -> Informer[Node]:
        return self._informer(kinds.NODES)

    @cached_property
    def leases(self) -> Informer[Lease]:
        """Those of nodes, and those of elections."""
        return self._informer(kinds.LEASES)

    @cached_property
    def namespaces(self) -> Informer[Namespace]:
        return self._informer(kinds.NAMESPACES)

    @cached_property
    def budgets(self) -> Informer[PodDisruptionBudget]:
        return self._informer(kinds.POD_DISRUPTION_BUDGETS, index.NAMESPACE)

    @cached_property
    def claims(self) -> Informer[PersistentVolumeClaim]:
        return self._informer(kinds.PERSISTENT_VOLUME_CLAIMS, volume_binding.BY_VOLUME)

    @cached_property
    def volumes(self) -> Informer[PersistentVolume]:
        return self._informer(kinds.PERSISTENT_VOLUMES, volume_binding.BY_CLAIM)

    @cached_property
    def attachments(self) -> Informer[VolumeAttachment]:
        return self._informer(
            kinds.VOLUME_ATTACHMENTS, attach_detach.BY_NODE, attach_detach.BY_VOLUME
        )
