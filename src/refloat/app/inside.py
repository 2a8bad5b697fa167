# SPDX-License-Identifier: Apache-2.0
"""What runs inside the embedded cluster besides the API server: controllers and nodes.

Each controller goes through the same rights as over the wire, under its own
name. Caches are shared: one watch and one decode for all of them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.agent.fleet import Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.simulated import SimulatedRuntime
from refloat.apiserver import identity, roles
from refloat.apiserver.identity import Identity
from refloat.app import controllers
from refloat.app.controllers import Chosen
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import kinds
from refloat.client.contract import Client
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES, JobController
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.job.settings import Settings as JobSettings
from refloat.controllers.scheduler.binder import Binder
from refloat.policy.switches import Switches
from refloat.runtime.controller import Controller, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.manager import Manager, Parts, Worker
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder

Connect = Callable[[Identity], Client]

# What a simulated node offers; Kubernetes' own number of pods.
CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "110"}


class Inside:
    """The controllers and the simulated nodes of one embedded cluster."""

    def __init__(
        self,
        connect: Connect,
        chosen: Chosen,
        *,
        gates: Gates,
        clock: Clock,
        rand: Rand,
        registry: CollectorRegistry,
    ) -> None:
        self._connect = connect
        self._gates = gates
        self._clock = clock
        self._rand = rand
        self._registry = registry
        self._instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
        reader = connect(identity.ADMIN)
        self._jobs = Informer(reader, kinds.JOBS, clock=clock, rand=rand, indexes=JOB_INDEXES)
        self._pods = Informer(reader, kinds.PODS, clock=clock, rand=rand, indexes=POD_INDEXES)
        self._nodes = Informer(reader, kinds.NODES, clock=clock, rand=rand)
        self._recorders: list[Recorder] = []
        self._manager = Manager(self._parts(chosen), clock=clock)
        self._running: asyncio.Task[None] | None = None

    def _parts(self, chosen: Chosen) -> Parts:
        workers: list[Worker] = []
        if controllers.JOB in chosen.controllers:
            workers += self._job_controller()
        if controllers.SCHEDULER in chosen.controllers:
            workers.append(self._scheduler())
        if chosen.simulated_nodes:
            workers.append(self._fleet(chosen.simulated_nodes))
        informers: list[Informer[Any]] = [self._jobs, self._nodes, self._pods]
        return Parts(informers=informers, controllers=workers, recorders=self._recorders)

    def _job_controller(self) -> list[Controller[str]]:
        client = self._connect(roles.controller("job-controller"))
        recorder = Recorder(
            client,
            controller="job-controller",
            instance="refloat",
            clock=self._clock,
            rand=self._rand,
            metrics=EventMetrics(self._registry),
        )
        self._recorders.append(recorder)
        return JobController(
            client,
            self._jobs,
            self._pods,
            clock=self._clock,
            sink=recorder,
            instruments=self._instruments,
            metrics=JobMetrics(self._registry),
            settings=JobSettings(switches=Switches.of(self._gates)),
        ).controllers

    def _scheduler(self) -> Controller[str]:
        client = self._connect(roles.controller(roles.SCHEDULER))
        binder = Binder(client, self._pods, self._nodes, clock=self._clock, rand=self._rand)
        made: Controller[str] = Controller(
            "scheduler", binder, clock=self._clock, instruments=self._instruments
        )
        binder.feed(made.queue)
        return made

    def _fleet(self, count: int) -> Fleet:
        members = [
            Member(NodeSettings(f"node-{number}", CAPACITY), SimulatedRuntime(self._clock))
            for number in range(count)
        ]
        return Fleet(
            self._connect(identity.ADMIN),
            members,
            self._pods,
            clock=self._clock,
            rand=self._rand,
            instruments=self._instruments,
        )

    def start(self) -> None:
        self._running = asyncio.ensure_future(self._manager.run())

    async def close(self) -> None:
        """Let what is worked on finish, then end."""
        if self._running is not None:
            self._manager.stop()
            await self._running
