# SPDX-License-Identifier: Apache-2.0
"""The controllers on a cluster: client, caches, leadership and endpoints, joined."""

import hashlib
import logging
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refloat.api.meta import Object
from refloat.app import controllers
from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import kinds, kubeconfig
from refloat.client.http import HttpClient
from refloat.client.settings import Settings as ClientSettings
from refloat.config.load import Configuration
from refloat.config.reload import Reloading
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES, JobController
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.settings import Settings as JobSettings
from refloat.policy.switches import Switches
from refloat.runtime.controller import Instruments
from refloat.runtime.election import ElectionSettings, Elector
from refloat.runtime.guard import Guard
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts, Worker
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder
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
    """Whether only one of several managers acts."""
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
        self._elector = self._make_elector() if settings.leader_elect else None
        self._informers: list[Informer[Any]] = [
            Informer(self._client, kinds.NODES, clock=clock, rand=chance)
        ]
        self._recorders: list[Recorder] = []
        self._workers: list[Worker] = []
        self._job_controllers: list[JobController] = []
        for namespace in settings.namespaces or ("",):
            self._add_jobs(namespace)
        self.endpoints = Endpoints(
            health=settings.health_at,
            metrics_at=settings.metrics_at,
            registry=self._registry,
            pages={"/debug/caches": self.caches},
        )
        self._manager = Manager(self._parts(), clock=clock)

    @property
    def server(self) -> str:
        return self._access.cluster.server

    def _connect(self, component: str, **more: Any) -> HttpClient:
        settings = ClientSettings(component=component, field_manager="refloat-manager", **more)
        return HttpClient(self._access, clock=self._clock, rand=self._rand, settings=settings)

    def _make_elector(self) -> Elector:
        identity = f"{platform.node()}_{self._rand.uid()}"
        return Elector(
            self._election_client,
            clock=self._clock,
            rand=self._rand,
            settings=ElectionSettings(self._access.namespace, LEASE, identity),
            registry=self._registry,
        )

    def _add_jobs(self, namespace: str) -> None:
        """The Jobs and pods of a namespace, or of all, and who takes care of them."""
        how: dict[str, Any] = {"clock": self._clock, "rand": self._rand, "namespace": namespace}
        jobs = Informer(self._client, kinds.JOBS, indexes=JOB_INDEXES, **how)
        pods = Informer(self._client, kinds.PODS, indexes=POD_INDEXES, **how)
        self._informers += [jobs, pods]
        if controllers.JOB not in self._settings.controllers:
            return
        client = Guard(self._client, self._elector.check) if self._elector else self._client
        recorder = Recorder(
            client,
            controller="refloat.dev/job-controller",
            instance=platform.node(),
            clock=self._clock,
            rand=self._rand,
            metrics=self._event_metrics,
        )
        self._recorders.append(recorder)
        controller = JobController(
            client,
            jobs,
            pods,
            clock=self._clock,
            sink=recorder,
            instruments=self._instruments,
            metrics=self._job_metrics,
            settings=self._job_settings(),
        )
        self._job_controllers.append(controller)
        self._workers += controller.controllers

    def _job_settings(self) -> JobSettings:
        configured = self._reloading.current.feature_gates if self._reloading else {}
        gates = Gates({**configured, **self._settings.gate_flags})
        return JobSettings(takes_default=False, switches=Switches.of(gates))

    def _take_up(self, _new: Configuration) -> None:
        for controller in self._job_controllers:
            controller.take_up(self._job_settings())

    def _parts(self) -> Parts:
        return Parts(
            informers=self._informers,
            controllers=self._workers,
            recorders=self._recorders,
            leadership=self._elector,
            serving=self.endpoints,
        )

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
