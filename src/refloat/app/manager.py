# SPDX-License-Identifier: Apache-2.0
"""The manager: controllers on a cluster, with client, caches, leadership and endpoints."""

import hashlib
import logging
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.api.meta import Object
from refloat.app import controller_names, controller_table
from refloat.app.actor_publisher import ActorPublisher
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from refloat.config import actors
from refloat.config.actors import Actor
from refloat.config.load import Configuration
from refloat.config.reload import Reloading
from refloat.controllers.job.settings import JobSettings
from refloat.policy.recovery.failure_recovery import FailureRecoveryPolicy
from refloat.policy.recovery.force_eviction import ForceEvictionSettings
from refloat.runtime.candidate import CandidateMetrics
from refloat.runtime.controller_env import ControllerEnv
from refloat.runtime.election import ElectionSettings, Elector
from refloat.runtime.elections import Elections
from refloat.runtime.guard import Guard
from refloat.runtime.health_server import Address, Endpoints
from refloat.runtime.manager import Manager, Parts

log = logging.getLogger(__name__)

LEASE = "refloat-manager"


@dataclass(frozen=True, slots=True)
class ClusterManagerSettings:
    """The settings of a manager."""

    kubeconfig: Path | None = None
    """The file that names the cluster; else KUBECONFIG, the pod's own identity, ~/.kube/config."""
    context: str = ""
    """The context in that file; else the current one."""
    namespaces: tuple[str, ...] = ()
    """The namespaces to act in; none means all."""
    config: Path | None = None
    """The configuration file; changes apply without a restart."""
    gate_flags: dict[str, bool] = field(default_factory=dict)
    """The gates on the command line, which override those of the configuration."""
    controllers: tuple[str, ...] = ()
    """The controllers that act; without any, the manager only keeps the caches."""
    leader_elect: bool = True
    """Whether only one of several managers runs the Job controller. Controllers that force always
    have an election."""
    qps: float = 20.0
    """Requests a second; as kube-controller-manager."""
    burst: int = 30
    """Requests at once after a pause; as kube-controller-manager."""
    metrics_at: Address | None = None
    health_at: Address | None = None


class ClusterManager:
    """One process of controllers on a cluster."""

    def __init__(self, settings: ClusterManagerSettings, clock: Clock, chance: Rand) -> None:
        self._settings = settings
        self._clock = clock
        self._rand = chance
        self._tasks = Tasks()
        self._access = kubeconfig.find(settings.kubeconfig, context=settings.context)
        self._reloading = Reloading(settings.config, clock) if settings.config else None
        self._client = self._connect("manager", qps=settings.qps, burst=settings.burst)
        # A renewal of the Lease must not wait behind other requests, and the elector itself
        # decides when to try again.
        self._election_client = self._connect("leader-election", attempts=1)
        self._identity = f"{platform.node()}_{self._rand.uid()}"
        registry = metrics.process_registry()
        candidate_metrics = CandidateMetrics(registry)
        self._elector: Elector | None = None
        if settings.leader_elect:  # among the managers of one namespace, for Jobs
            self._elector = Elector(
                self._election_client,
                clock=clock,
                rand=chance,
                settings=ElectionSettings(self._access.namespace, LEASE, self._identity),
                metrics=candidate_metrics.elections,
            )
        elections = Elections(
            self._election_client,
            self._identity,
            clock=clock,
            rand=chance,
            metrics=candidate_metrics,
        )
        for name in actors.LEASES:
            elections.controller(name)  # the state is a metric, also while the controller is off
        self._env = self._make_env(elections, registry)
        controllers, namespaces = self._active_controllers(), settings.namespaces
        actor = Actor(self._identity, "manager", clock.now(), controllers, namespaces)
        self._publisher = ActorPublisher(self._client, actor, self._document, clock)
        self._manager = Manager(self._build(), clock=clock)

    def _connect(self, component: str, **more: Any) -> HttpClient:
        settings = ClientSettings(component=component, field_manager="refloat-manager", **more)
        return HttpClient(self._access, clock=self._clock, rand=self._rand, settings=settings)

    def _make_env(self, elections: Elections, registry: CollectorRegistry) -> ControllerEnv:
        """The Job controller writes only while this process leads; the others have elections."""
        leader = Guard(self._client, self._elector.check) if self._elector else self._client
        return ControllerEnv(
            self._client,
            lambda role: leader if role == controller_names.JOB else self._client,
            elections,
            gates=self._gates,
            clock=self._clock,
            rand=self._rand,
            registry=registry,
            settings=(
                JobSettings(takes_default=False),
                ForceEvictionSettings(hands_over=True),
                self._configured.failure_recovery,
                self._configured.attempt_logs,
            ),
            controllers=self._settings.controllers,
            namespaces=self._settings.namespaces,
            instance=platform.node(),
        )

    def _build(self) -> Parts:
        env, controllers = self._env, self._active_controllers()
        # The manager always caches nodes and pods: without controllers, it shows its caches.
        env.informer(kinds.NODES)
        env.namespaced(kinds.PODS)
        jobs = [each for each in controllers if each == controller_names.JOB]
        workers = controller_table.build(env, jobs)
        recorders = list(env.recorders)
        # If the gate can never be on, failure recovery does not even watch Leases.
        may_recover = self._reloading is not None or self._gates.enabled(FAILURE_RECOVERY_POLICY)
        without = () if may_recover else (controller_names.FAILURE_RECOVERY,)
        others = [each for each in controllers if each not in (*jobs, *without)]
        independent = [*controller_table.build(env, others), self._publisher]
        self.endpoints = Endpoints(
            health=self._settings.health_at,
            metrics_at=self._settings.metrics_at,
            registry=env.registry,
            clock=self._clock,
            documents={"/debug/caches": self.caches},
        )
        for name, check in env.readiness.items():  # a controller that lacks a right is not ready
            self.endpoints.ready_when(name, check)
        return Parts(
            informers=env.informers,
            controllers=workers,
            recorders=recorders,
            leadership=self._elector,
            independent=independent,
            # These events report finished writes, so they may come after the loss of leadership.
            independent_recorders=env.recorders[len(recorders) :],
            candidates=env.candidates,
            serving=self.endpoints,
        )

    @property
    def server(self) -> str:
        return self._access.cluster.server

    def _active_controllers(self) -> tuple[str, ...]:
        """The controllers of this process, whether their gates are on or off.

        Nodes have no namespace, so a manager of some namespaces does not evict.
        """
        without = controller_names.FORCE_EVICTION if self._settings.namespaces else ""
        return tuple(each for each in self._settings.controllers if each != without)

    @property
    def _configured(self) -> Configuration:
        return self._reloading.current if self._reloading else Configuration()

    @property
    def _gates(self) -> Gates:
        return Gates({**self._configured.feature_gates, **self._settings.gate_flags})

    def _document(self) -> Object:
        period = FailureRecoveryPolicy().default_period
        return actors.configuration(self._configured.document, self._gates, period)

    def _apply(self, configuration: Configuration) -> None:
        self._publisher.changed()
        self._env.update(
            configuration.failure_recovery, configuration.attempt_logs, gates=self._gates
        )

    @property
    def synced(self) -> bool:
        """Whether the caches are full."""
        return self._manager.synced

    async def run(self) -> None:
        """Run until `stop`; raises if this process loses leadership."""
        if self._reloading is not None:
            self._reloading.on_change(self._apply)
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
        """The content of the caches: a count for each kind, and a digest of keys and versions."""
        objects: dict[str, list[tuple[str, str]]] = {}
        synced: dict[str, bool] = {}
        for informer in self._env.informers:
            versions = objects.setdefault(informer.name, [])
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
            for name, versions in objects.items()
        }


def digest(versions: Iterable[tuple[str, str]]) -> str:
    """One text for many keys, each with its version, in order."""
    sha = hashlib.sha256()
    for key, version in versions:
        sha.update(f"{key}@{version}\n".encode())
    return sha.hexdigest()
