# SPDX-License-Identifier: Apache-2.0
"""What runs inside the embedded cluster besides the API server: controllers and nodes.

Each controller goes through the same rights as over the wire, under its own
name, and is made by one function here, of what `equipment` has for all.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from refloat.agent.fleet import Fleet
from refloat.apiserver import roles
from refloat.app import controllers, nodes
from refloat.app.controllers import Chosen
from refloat.app.equipment import Connect, Equipment
from refloat.base import gates as gate_names
from refloat.base.clock import Clock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.controllers import disruption, volume_binding
from refloat.controllers.attach_detach import controller as attach_detach
from refloat.controllers.failure_recovery import events as recovery_events
from refloat.controllers.failure_recovery.controller import FailureRecovery
from refloat.controllers.failure_recovery.metrics import FailureRecoveryMetrics
from refloat.controllers.failure_recovery.settings import Settings as FailureRecoverySettings
from refloat.controllers.force_eviction import events as force_eviction_events
from refloat.controllers.force_eviction.controller import ForceEviction
from refloat.controllers.force_eviction.metrics import ForceEvictionMetrics
from refloat.controllers.garbage import collector, known
from refloat.controllers.job.controller import JobController
from refloat.controllers.job.metrics import JobMetrics
from refloat.controllers.namespaces import NamespaceController
from refloat.controllers.node_lifecycle import events as node_events
from refloat.controllers.node_lifecycle.controller import NodeLifecycle
from refloat.controllers.node_lifecycle.metrics import NodeLifecycleMetrics
from refloat.controllers.pod_gc import PodGarbageCollector, PodGcMetrics
from refloat.controllers.scheduler.scheduler import Scheduler
from refloat.controllers.scheduler.settings import Settings as SchedulerSettings
from refloat.controllers.taint_eviction import controller as taint_eviction
from refloat.controllers.taint_eviction.metrics import TaintEvictionMetrics
from refloat.controllers.ttl.controller import TtlController
from refloat.controllers.ttl.metrics import TtlMetrics
from refloat.policy.failure_recovery import FailureRecoveryPolicy
from refloat.policy.force_eviction import Settings as ForceEvictionSettings
from refloat.runtime.manager import Manager, Parts, Worker


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
        recovery: FailureRecoveryPolicy | None = None,
    ) -> None:
        shared = Equipment(
            connect,
            chosen,
            gates=gates,
            clock=clock,
            rand=rand,
            registry=registry,
            recovery=recovery,
        )
        workers = [worker for name in chosen.controllers for worker in MAKERS[name](shared)]
        self.fleet: Fleet | None = None
        if chosen.simulated_nodes:
            self.fleet = _fleet(shared, chosen.simulated_nodes)
            workers.append(self.fleet)
        parts = Parts(
            informers=shared.informers,
            controllers=workers,
            recorders=shared.recorders,
            candidates=shared.candidates,
        )
        self._manager = Manager(parts, clock=clock)
        self.notes = {f"leader/{each.controller}": each.describe for each in shared.candidates}
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.ensure_future(self._manager.run())

    async def close(self) -> None:
        """Let what is worked on finish, then end."""
        if self._running is not None:
            self._manager.stop()
            await self._running


def _job(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("job-controller")
    return JobController(
        client,
        shared.jobs,
        shared.pods,
        clock=shared.clock,
        sink=shared.recorder(client, "job-controller"),
        instruments=shared.instruments,
        metrics=JobMetrics(shared.registry),
        settings=replace(shared.timings.job, switches=shared.switches),
    ).controllers


def _scheduler(shared: Equipment) -> Sequence[Worker]:
    client = shared.client(roles.SCHEDULER)
    settings = SchedulerSettings(
        pod_disruption_conditions=shared.switches.pod_disruption_conditions,
        deletion_reasons=shared.switches.retriable_and_non_retriable_failures,
        # Nobody else would take the taint off that every new node has.
        overlook_not_ready=controllers.NODE_LIFECYCLE not in shared.chosen.controllers,
        force_eviction=shared.gates.enabled(gate_names.TAINT_FORCE_EVICTION),
    )
    made = Scheduler(
        client,
        shared.pods,
        shared.nodes,
        shared.budgets,
        clock=shared.clock,
        rand=shared.rand,
        sink=shared.recorder(client, settings.name),
        instruments=shared.instruments,
        settings=settings,
    )
    return [made.controller]


def _ttl(shared: Equipment) -> Sequence[Worker]:
    return TtlController(
        shared.client("ttl-after-finished-controller"),
        shared.jobs,
        clock=shared.clock,
        instruments=shared.instruments,
        metrics=TtlMetrics(shared.registry),
    ).controllers


def _pod_gc(shared: Equipment) -> Sequence[Worker]:
    made = PodGarbageCollector(
        shared.client("pod-garbage-collector"),
        shared.pods,
        shared.nodes,
        clock=shared.clock,
        instruments=shared.instruments,
        metrics=PodGcMetrics(shared.registry),
        settings=shared.timings.pod_gc,
        switches=shared.switches,
    )
    return [made.controller]


def _disruption(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("disruption-controller")
    return disruption.DisruptionController(
        client,
        shared.pods,
        shared.budgets,
        clock=shared.clock,
        sink=shared.recorder(client, disruption.COMPONENT),
        instruments=shared.instruments,
        settings=shared.timings.disruption,
    ).controllers


def _force_eviction(shared: Equipment) -> Sequence[Worker]:
    """Only with its gate."""
    if not shared.gates.enabled(gate_names.TAINT_FORCE_EVICTION):
        return []
    client = shared.client("force-eviction-controller")
    election = shared.election(controllers.FORCE_EVICTION)
    eviction = ForceEviction(
        election.guard(client),
        shared.nodes,
        shared.leases,
        clock=shared.clock,
        sink=shared.recorder(client, force_eviction_events.COMPONENT),
        instruments=shared.instruments,
        metrics=ForceEvictionMetrics(shared.registry),
        settings=ForceEvictionSettings(node_grace=shared.recovery.node_grace_period),
        switches=shared.switches,
        is_on=False,
    )
    election.use(is_on=True, forces=True)
    election.join(lambda acts: eviction.take_up(is_on=acts, switches=shared.switches))
    return [eviction.controller]


def _garbage(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("generic-garbage-collector")
    return collector.GarbageCollector(
        client,
        {each: shared.metadata(each) for each in known.RESOURCES},
        clock=shared.clock,
        sink=shared.recorder(client, collector.COMPONENT),
        instruments=shared.instruments,
    ).controllers


def _namespaces(shared: Equipment) -> Sequence[Worker]:
    made = NamespaceController(
        shared.client("namespace-controller"),
        shared.namespaces,
        clock=shared.clock,
        instruments=shared.instruments,
    )
    return [made.controller]


def _node_lifecycle(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("node-controller")
    beside = controllers.TAINT_EVICTION in shared.chosen.controllers
    made = NodeLifecycle(
        client,
        shared.nodes,
        shared.pods,
        shared.leases,
        clock=shared.clock,
        sink=shared.recorder(client, node_events.COMPONENT),
        instruments=shared.instruments,
        metrics=NodeLifecycleMetrics(shared.registry),
        settings=replace(shared.timings.node_lifecycle, taint_eviction=beside),
    )
    return [made]


def _taint_eviction(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("taint-eviction-controller")
    made = taint_eviction.TaintEviction(
        client,
        shared.pods,
        shared.nodes,
        clock=shared.clock,
        sink=shared.recorder(client, taint_eviction.NAME),
        instruments=shared.instruments,
        metrics=TaintEvictionMetrics(shared.registry),
        switches=shared.switches,
    )
    return [made]


def _failure_recovery(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("zombie-controller")
    settings = FailureRecoverySettings(
        shared.gates.enabled(gate_names.FAILURE_RECOVERY_POLICY),
        shared.recovery,
        says_why=shared.switches.retriable_and_non_retriable_failures,
    )
    election = shared.election(controllers.FAILURE_RECOVERY)
    recovery = FailureRecovery(
        election.guard(client),
        [shared.pods],
        shared.nodes,
        shared.leases,
        shared.namespaces,
        clock=shared.clock,
        sink=shared.recorder(
            client, recovery_events.COMPONENT, sourced=True, queued=recovery_events.MAX_QUEUED
        ),
        instruments=shared.instruments,
        metrics=FailureRecoveryMetrics(shared.registry),
        settings=settings,
    )
    election.use_recovery(settings)
    election.join(lambda acts: recovery.lead(leads=acts))
    return [recovery]


def _attach_detach(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("attachdetach-controller")
    caches = attach_detach.Caches(
        shared.pods, shared.claims, shared.volumes, shared.nodes, shared.attachments
    )
    made = attach_detach.AttachDetach(
        client,
        caches,
        clock=shared.clock,
        sink=shared.recorder(client, attach_detach.COMPONENT),
        instruments=shared.instruments,
        settings=shared.timings.attach_detach,
    )
    return [made.controller]


def _volume_binding(shared: Equipment) -> Sequence[Worker]:
    client = shared.client("persistent-volume-binder")
    made = volume_binding.VolumeBinding(
        client,
        shared.claims,
        shared.volumes,
        clock=shared.clock,
        sink=shared.recorder(client, volume_binding.COMPONENT),
        instruments=shared.instruments,
    )
    return [made.controller]


MAKERS: dict[str, Callable[[Equipment], Sequence[Worker]]] = {
    controllers.ATTACH_DETACH: _attach_detach,
    controllers.DISRUPTION: _disruption,
    controllers.FAILURE_RECOVERY: _failure_recovery,
    controllers.FORCE_EVICTION: _force_eviction,
    controllers.GARBAGE: _garbage,
    controllers.JOB: _job,
    controllers.NAMESPACE: _namespaces,
    controllers.NODE_LIFECYCLE: _node_lifecycle,
    controllers.POD_GC: _pod_gc,
    controllers.SCHEDULER: _scheduler,
    controllers.TAINT_EVICTION: _taint_eviction,
    controllers.TTL: _ttl,
    controllers.VOLUME_BINDING: _volume_binding,
}


def _fleet(shared: Equipment, count: int) -> Fleet:
    return Fleet(
        shared.admin,
        nodes.simulated(
            "node",
            count,
            shared.clock,
            nodes.fenced(shared.timings.node, shared.chosen.self_fence_seconds),
        ),
        shared.pods,
        clock=shared.clock,
        rand=shared.rand,
        instruments=shared.instruments,
        switches=shared.switches,
        force_eviction=shared.gates.enabled(gate_names.TAINT_FORCE_EVICTION),
    )
