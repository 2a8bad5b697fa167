# SPDX-License-Identifier: Apache-2.0
"""The controllers on a cluster: client, caches, leadership and endpoints, joined."""

import hashlib
import logging
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from refloat.api.coordination import NODE_NAMESPACE
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.app import controllers
from refloat.app.actor_publisher import ActorPublisher
from refloat.app.elections import ElectedController, Elections
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import FAILURE_RECOVERY_POLICY, TAINT_FORCE_EVICTION, Gates
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import kinds, kubeconfig
from refloat.client.contract import Client
from refloat.client.http import HttpClient
from refloat.client.settings import Settings as ClientSettings
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.config.load import Configuration
from refloat.config.reload import Reloading
from refloat.controllers.failure_recovery import events as recovery_events
from refloat.controllers.failure_recovery.controller import POD_INDEXES as RECOVERY_POD_INDEXES
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.settings import Settings as FailureRecoverySettings
from refloat.controllers.force_eviction import events as force_eviction_events
from refloat.controllers.force_eviction.controller import ForceEviction
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES, JobController
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.settings import Settings as JobSettings
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.policy.force_eviction import Settings as ForceEvictionSettings
from refloat.policy.switches import Switches
from refloat.runtime.candidate import Candidate, CandidateMetrics
from refloat.runtime.controller import Instruments
from refloat.runtime.election import ElectionSettings, Elector
from refloat.runtime.guard import Guard
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts, Worker
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder, RecorderSettings
from refloat.runtime.serving import Address, Endpoints

log = logging.getLogger(__name__)

LEASE = "refloat-manager"


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controllers run on a cluster."""

    kubeconfig: Path | None = None
    """The file that names the cluster; else KUBECONFIG, the pod's own identity, ~/.kube/config."""
    context: str = ""
    """The context in that file; else the current one."""
    namespaces: tuple[str, ...] = ()
    """Where to act; none is everywhere."""
    config: Path | None = None
    """The configuration file, taken up again when it changes."""
    gate_flags: dict[str, bool] = field(default_factory=dict)
    """Gates that the command line switches, over those of the configuration."""
    controllers: tuple[str, ...] = ()
    """Which controllers act; without any, only the caches are kept."""
    leader_elect: bool = True
    """Whether only one of several managers takes care of Jobs. What forces is always elected."""
    qps: float = 20.0
    """Requests a second; as kube-controller-manager."""
    burst: int = 30
    """Requests at once after a pause; as kube-controller-manager."""
    metrics_at: Address | None = None
    health_at: Address | None = None


class ClusterManager:
    """One process of controllers on a cluster."""

    def __init__(self, settings: Settings, clock: Clock, chance: Rand) -> None:
        self._settings = settings
        self._clock = clock
        self._rand = chance
        self._tasks = Tasks()
        self._access = kubeconfig.find(settings.kubeconfig, context=settings.context)
        self._reloading = Reloading(settings.config, clock) if settings.config else None
        self._registry = metrics.process_registry()
        self._event_metrics = EventMetrics(self._registry)
        self._job_metrics = JobMetrics(self._registry)
        self._instruments = Instruments(
            ReconcileMetrics(self._registry), QueueMetrics(self._registry)
        )
        self._client = self._connect("manager", qps=settings.qps, burst=settings.burst)
        # Renewing the Lease must not wait behind anything, so it has its own way,
        # and the elector itself says when to try again.
        self._election_client = self._connect("leader-election", attempts=1)
        self._identity = f"{platform.node()}_{self._rand.uid()}"
        metrics_of_candidates = CandidateMetrics(self._registry)
        self._elector = self._make_elector(metrics_of_candidates) if settings.leader_elect else None
        self._elections = Elections(
            self._election_client,
            self._identity,
            clock=clock,
            rand=chance,
            metrics=metrics_of_candidates,
        )
        self._candidates: list[Candidate] = []
        self._nodes = Informer(self._client, kinds.NODES, clock=clock, rand=chance)
        self._informers: list[Informer[Any]] = [self._nodes]
        self._recorders: list[Recorder] = []
        self._workers: list[Worker] = []
        self._independent_recorders: list[Recorder] = []
        self._independent: list[Worker] = []
        self._job_controllers: list[JobController] = []
        self._pods: list[Informer[Pod]] = []
        for namespace in settings.namespaces or ("",):
            self._add_jobs(namespace)
        self._recovery: FailureRecovery | None = None
        self._recovery_election = ElectedController(self._elections, controllers.FAILURE_RECOVERY)
        if controllers.FAILURE_RECOVERY in settings.controllers and self._may_recover:
            self._recovery = self._add_recovery()
        self._force_eviction: ForceEviction | None = None
        self._eviction_election = ElectedController(self._elections, controllers.FORCE_EVICTION)
        # Nodes are of no namespace: a manager of some namespaces leaves them alone.
        if controllers.FORCE_EVICTION in settings.controllers and not settings.namespaces:
            self._force_eviction = self._add_force_eviction()
        self._publisher = self._make_publisher()
        self._independent.append(self._publisher)
        self.endpoints = self._make_endpoints()
        self._manager = Manager(self._parts(), clock=clock)

    def _make_endpoints(self) -> Endpoints:
        """Health and metrics; a controller that lacks a right is not ready."""
        endpoints = Endpoints(
            health=self._settings.health_at,
            metrics_at=self._settings.metrics_at,
            registry=self._registry,
            clock=self._clock,
            documents={"/debug/caches": self.caches},
        )
        for controller in (self._recovery, self._force_eviction):
            if controller is not None:
                endpoints.ready_when(
                    f"rights/{controller.name}", partial(getattr, controller.rights, "missing")
                )
        return endpoints

    @property
    def server(self) -> str:
        return self._access.cluster.server

    def _connect(self, component: str, **more: Any) -> HttpClient:
        settings = ClientSettings(component=component, field_manager="refloat-manager", **more)
        return HttpClient(self._access, clock=self._clock, rand=self._rand, settings=settings)

    def _make_elector(self, metrics_of_candidates: CandidateMetrics) -> Elector:
        """The election among managers of one namespace, for Jobs."""
        return Elector(
            self._election_client,
            clock=self._clock,
            rand=self._rand,
            settings=ElectionSettings(self._access.namespace, LEASE, self._identity),
            metrics=metrics_of_candidates.elections,
        )

    def _make_publisher(self) -> ActorPublisher:
        actor = Actor(
            self._identity,
            "manager",
            self._clock.now(),
            self._active_controllers(),
            self._settings.namespaces,
        )
        return ActorPublisher(self._client, actor, self._published, self._clock)

    def _active_controllers(self) -> tuple[str, ...]:
        """Those that run in this process, whatever their gates say."""
        without = controllers.FORCE_EVICTION if self._force_eviction is None else ""
        return tuple(each for each in self._settings.controllers if each != without)

    def _add_jobs(self, namespace: str) -> None:
        """The Jobs and pods of a namespace, or of all, and who takes care of them."""
        how: dict[str, Any] = {"clock": self._clock, "rand": self._rand, "namespace": namespace}
        indexes = (*POD_INDEXES, *RECOVERY_POD_INDEXES)
        pods = Informer(self._client, kinds.PODS, indexes=indexes, **how)
        self._informers.append(pods)
        self._pods.append(pods)
        if controllers.JOB not in self._settings.controllers:
            return  # without rights on Jobs the others still run
        jobs = Informer(self._client, kinds.JOBS, indexes=JOB_INDEXES, **how)
        self._informers.append(jobs)
        controller = JobController(
            self._writer,
            jobs,
            pods,
            clock=self._clock,
            sink=self._recorder("refloat.dev/job-controller"),
            instruments=self._instruments,
            metrics=self._job_metrics,
            settings=self._job_settings(),
        )
        self._job_controllers.append(controller)
        self._workers += controller.controllers

    @cached_property
    def _writer(self) -> Client:
        """Asks before each write whether this process still leads."""
        return Guard(self._client, self._elector.check) if self._elector else self._client

    def _recorder(self, controller: str) -> Recorder:
        recorder = self._new_recorder(self._writer, controller)
        self._recorders.append(recorder)
        return recorder

    def _independent_recorder(
        self, controller: str, *, sourced: bool = False, queued: int = 1000
    ) -> Recorder:
        """Of a controller with an election of its own. Its events tell of writes that are done,
        so they are written even if leadership ended since."""
        recorder = self._new_recorder(self._client, controller, sourced=sourced, queued=queued)
        self._independent_recorders.append(recorder)
        return recorder

    def _new_recorder(
        self, client: Client, controller: str, *, sourced: bool = False, queued: int = 1000
    ) -> Recorder:
        return Recorder(
            client,
            controller=controller,
            instance=platform.node(),
            clock=self._clock,
            rand=self._rand,
            metrics=self._event_metrics,
            sourced=sourced,
            settings=RecorderSettings(max_queued=queued),
        )

    @property
    def _may_recover(self) -> bool:
        """The gate is on, or may come to be; else not even a lease is watched for it."""
        return self._reloading is not None or self._recovery_settings().enabled

    def _add_recovery(self) -> FailureRecovery:
        how: dict[str, Any] = {"clock": self._clock, "rand": self._rand}
        leases = Informer(self._client, kinds.LEASES, namespace=NODE_NAMESPACE, **how)
        namespaces = Informer(self._client, kinds.NAMESPACES, **how)
        self._informers += [leases, namespaces]
        election = self._recovery_election
        recovery = FailureRecovery(
            election.guard(self._client),
            self._pods,
            self._nodes,
            leases,
            namespaces,
            clock=self._clock,
            sink=self._independent_recorder(
                recovery_events.COMPONENT, sourced=True, queued=recovery_events.MAX_QUEUED
            ),
            instruments=self._instruments,
            metrics=FailureRecoveryMetrics(self._registry),
            settings=self._recovery_settings(),
        )
        election.use_recovery(self._recovery_settings())
        election.join(lambda acts: recovery.lead(leads=acts))
        self._candidates.append(election.candidate)
        self._independent.append(recovery)
        return recovery

    def _add_force_eviction(self) -> ForceEviction:
        """Leases are not watched for it: it reads those of nodes with the request taint."""
        election = self._eviction_election
        eviction = ForceEviction(
            election.guard(self._client),
            self._nodes,
            None,
            clock=self._clock,
            sink=self._independent_recorder(force_eviction_events.COMPONENT),
            instruments=self._instruments,
            metrics=ForceEvictionMetrics(self._registry),
            settings=self._force_eviction_settings(),
            switches=Switches.of(self._gates),
            is_on=False,
        )
        election.use(is_on=self._gates.enabled(TAINT_FORCE_EVICTION), forces=True)
        election.join(lambda acts: self._use_force_eviction(eviction, acts=acts))
        self._candidates.append(election.candidate)
        self._independent.append(eviction.controller)
        return eviction

    def _use_force_eviction(self, eviction: ForceEviction, *, acts: bool) -> None:
        eviction.take_up(
            is_on=acts and self._gates.enabled(TAINT_FORCE_EVICTION),
            switches=Switches.of(self._gates),
            settings=self._force_eviction_settings(),
        )

    @property
    def _configured(self) -> Configuration:
        return self._reloading.current if self._reloading else Configuration()

    @property
    def _gates(self) -> Gates:
        return Gates({**self._configured.feature_gates, **self._settings.gate_flags})

    def _job_settings(self) -> JobSettings:
        return JobSettings(takes_default=False, switches=Switches.of(self._gates))

    def _recovery_settings(self) -> FailureRecoverySettings:
        return FailureRecoverySettings(
            self._gates.enabled(FAILURE_RECOVERY_POLICY),
            self._configured.failure_recovery,
            whole_cluster=not self._settings.namespaces,
            says_why=Switches.of(self._gates).retriable_and_non_retriable_failures,
        )

    def _force_eviction_settings(self) -> ForceEvictionSettings:
        grace = self._configured.failure_recovery.node_grace_period
        return ForceEvictionSettings(hands_over=True, node_grace=grace)

    def _published(self) -> Object:
        period = FailureRecoveryPolicy().default_period
        return actors.configuration(self._configured.document, self._gates, period)

    def _take_up(self, _new: Configuration) -> None:
        self._publisher.changed()
        for controller in self._job_controllers:
            controller.take_up(self._job_settings())
        if self._recovery is not None:
            self._recovery.take_up(self._recovery_settings())
            self._recovery_election.use_recovery(self._recovery_settings())
        if self._force_eviction is not None:
            election = self._eviction_election
            election.use(is_on=self._gates.enabled(TAINT_FORCE_EVICTION), forces=True)
            self._use_force_eviction(self._force_eviction, acts=election.acts)

    def _parts(self) -> Parts:
        return Parts(
            informers=self._informers,
            controllers=self._workers,
            recorders=self._recorders,
            leadership=self._elector,
            independent=self._independent,
            independent_recorders=self._independent_recorders,
            candidates=self._candidates,
            serving=self.endpoints,
        )

    @property
    def synced(self) -> bool:
        """Whether the caches are filled."""
        return self._manager.synced

    async def run(self) -> None:
        """Run until `stop`; raises when leadership is lost."""
        if self._reloading is not None:
            self._reloading.on_change(self._take_up)
            self._tasks.spawn(self._reloading.follow(), name="configuration")
        try:
            await self._manager.run()
        finally:
            await self._tasks.close()
            await self._client.close()
            await self._election_client.close()

    def stop(self) -> None:
        self._manager.stop()

    def caches(self) -> Object:
        """What is cached: how much of each kind, and a digest of keys and versions."""
        held: dict[str, list[tuple[str, str]]] = {}
        synced: dict[str, bool] = {}
        for informer in self._informers:
            versions = held.setdefault(informer.name, [])
            for obj in informer.cache:
                metadata = obj.metadata
                key = f"{metadata.namespace or ''}/{metadata.name}"
                versions.append((key, metadata.resource_version or ""))
            synced[informer.name] = synced.get(informer.name, True) and informer.has_synced
        return {
            name: {
                "objects": len(versions),
                "synced": synced[name],
                "digest": digest(sorted(versions)),
            }
            for name, versions in held.items()
        }


def digest(versions: Iterable[tuple[str, str]]) -> str:
    """One text for many keys, each with its version, in order."""
    made = hashlib.sha256()
    for key, version in versions:
        made.update(f"{key}@{version}\n".encode())
    return made.hexdigest()
