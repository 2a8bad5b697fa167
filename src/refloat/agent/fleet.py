# SPDX-License-Identifier: Apache-2.0
"""Many nodes in one process: one watch of pods, one queue, one heartbeat.

A fleet starts and stops like a controller, after its informer has synced. The
fleet only passes pods to the worker of their node. An agent with one node is a
fleet of one.

Demos and tests can make a node fail. A node that failed sends no heartbeat and
gets no updates of its pods:

    crash      the machine is off: its containers are gone
    freeze     its agent does nothing; its containers run on, and end
    partition  the network is cut; its agent continues with what it has

`heal` ends all three.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from refloat.agent.admission import Check, NodeAdmission, NodeFacts
from refloat.agent.eviction import EvictionManager
from refloat.agent.mirror_pods import MirrorPods, is_mirror
from refloat.agent.node import (
    Heartbeats,
    NodeHealth,
    NodeSettings,
    RecordNamedNodeEvent,
    ignore_node_event,
    labels,
)
from refloat.agent.pod_worker import PodWorker, RecordPodEvent, ignore_event
from refloat.agent.runtime import Runtime
from refloat.agent.shutdown import Shutdown
from refloat.agent.start_checks import ForceEvictionGate, OwnerUnknown, Permit
from refloat.agent.static_pods import LOOK_SECONDS, StaticClient, StaticPods
from refloat.agent.usage import UsageMeter
from refloat.agent.volume_claims import VolumeClaims
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import NODES, PODS
from refloat.policy.job.job_gates import ALL_ON, JobGates
from refloat.policy.node.eviction_thresholds import EvictionSettings
from refloat.policy.node.node_shutdown import ShutdownSettings
from refloat.policy.scheduling import critical_pods
from refloat.runtime import index
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.guard import Guard
from refloat.runtime.informer import Change, Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Reconciler, Result

K = TypeVar("K")

Fault: TypeAlias = Literal["crash", "freeze", "partition"]

# The indexes that the informer of a fleet needs.
POD_INDEXES = (index.NODE,)

Key: TypeAlias = tuple[str, str]
"""A node's name and a pod's uid: another pod of the same name is another key."""

MirrorKey: TypeAlias = tuple[str, str, str]
"""A node's name, and the namespace and name of one of its mirror pods."""

# Pods synced at once; each sync sends at most two requests.
POD_WORKERS = 10

# A failed creation of a lease is retried after 200 ms, doubling to 7 s (behaviour D1.1).
# 5,000 nodes renew 500 times a second, and a write on a busy server takes 0.1 s or more:
# so about 100 are under way at once. They share the server's commits.
_HEARTBEAT = ControllerSettings(workers=100, backoff=Backoff(base=0.2, cap=7.0))
# Measuring one node must not wait for the files of another.
_EVICTION = ControllerSettings(workers=5)
# A failed write of a status is retried soon, because Jobs wait for the status.
_POD = ControllerSettings(workers=POD_WORKERS, backoff=Backoff(base=0.2, cap=10.0))
# Mirror pods are few, and only for display.
_MIRROR = ControllerSettings(workers=2, backoff=Backoff(base=0.2, cap=10.0))
_FILES = ControllerSettings(workers=1, backoff=Backoff(base=0.2, cap=10.0))


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the fleet and its runtime."""

    settings: NodeSettings
    runtime: Runtime
    usage: UsageMeter | None = None
    """Measures the node. Without a meter the node evicts no pods."""

    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    checks: tuple[Check, ...] = ()
    """Admission checks besides those of a kubelet."""

    static: StaticPods | None = None
    """Pods from the node's own files."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """The parts that act on one node."""

    worker: PodWorker
    admission: NodeAdmission
    shutdown: Shutdown
    evictions: EvictionManager | None
    mirrors: MirrorPods
    claims: VolumeClaims

    def health(self) -> NodeHealth:
        return NodeHealth(self.pressure(), self.shutdown.is_on, self.claims.in_use())

    def pressure(self) -> tuple[str, ...]:
        return () if self.evictions is None else self.evictions.conditions


class Fleet:
    """All nodes of a process."""

    name = "fleet"

    def __init__(
        self,
        client: Client,
        members: Iterable[Member],
        pods: Informer[Pod],
        *,
        clock: Clock,
        rand: Rand,
        instruments: Instruments,
        record_event: RecordPodEvent = ignore_event,
        record_node_event: RecordNamedNodeEvent = ignore_node_event,
        job_gates: JobGates = ALL_ON,
        replaced: Callable[[str], object] = str,
        force_eviction: bool = False,
    ) -> None:
        """`replaced` is called with the name of a node that another agent owns now;
        `force_eviction` is the gate `TaintForceEviction`."""
        self._members = {each.settings.name: each for each in members}
        self._client = client
        self._clock = clock
        self._record_event = record_event
        self._record_node_event = record_node_event
        self._job_gates = job_gates
        self._force_eviction = force_eviction
        self._cache = pods.cache
        self._faults: dict[str, Fault] = {}
        self._agents: dict[str, _Agent] = {}

        def controller(
            name: str, reconciler: Reconciler[Any], settings: ControllerSettings
        ) -> Controller[Any]:
            return Controller(
                name, reconciler, clock=clock, instruments=instruments, settings=settings
            )

        self._pods = controller("pod-worker", self, _POD)
        self._evictions = controller("node-eviction", _Reconciler(self._evict), _EVICTION)
        self.heartbeats = Heartbeats(
            client,
            [each.settings for each in self._members.values()],
            clock=clock,
            rand=rand,
            health=lambda name: self._agents[name].health(),
            record_event=record_node_event,
            renewed=lambda name, *renewal: self._agents[name].worker.fence.renewed(*renewal),
            replaced=replaced,
            promises=lambda name: self._agents[name].worker.fence.promises(),
            recall=lambda name, promises: self._agents[name].worker.fence.recall(promises),
        )
        self._renewals = controller("node-heartbeat", self.heartbeats, _HEARTBEAT)
        self._mirrors = controller("mirror-pods", _Reconciler(self._mirror), _MIRROR)
        self._files = controller("static-pods", _Reconciler(self._sync_files), _FILES)
        self._is_running = False
        self._active = asyncio.Event()
        for member in self._members.values():
            self._join(member)
        pods.add_handler(self._observe)

    def _join(self, member: Member) -> None:
        """Create the agent of a node; its runtime may have containers already."""
        name = member.settings.name
        client: Client = Guard(self._client, partial(self._check_line, name))
        mirrors = MirrorPods(client, name, member.static)
        if member.static is not None:
            member.static.listen(partial(self._static_changed, name, member.static))
            client = StaticClient(self._client, member.static, partial(self._check_line, name))
        record_node_event = partial(self._record_node_event, name)
        worker = self._worker(name, member, client)
        is_critical = partial(self._is_critical, name)
        shutdown = Shutdown(
            worker,
            member.shutdown,
            clock=self._clock,
            record_node_event=record_node_event,
            announce=lambda: self._renewals.queue.add(name),
        )
        evictions = None
        if member.usage is not None:
            evictions = EvictionManager(
                worker,
                member.usage,
                member.eviction,
                clock=self._clock,
                record_event=self._record_event,
                record_node_event=record_node_event,
                is_critical=is_critical,
            )
        facts = NodeFacts(
            name,
            labels(member.settings),
            member.settings.capacity,
            fetch=partial(client.get, NODES, name),
            pressure=tuple if evictions is None else lambda: evictions.conditions,
            is_shutting_down=lambda: shutdown.is_on,
            is_critical=is_critical,
            checks=member.checks,
        )
        worker.gate = admission = NodeAdmission(facts, worker, self._record_event)
        claims = VolumeClaims(
            client,
            name,
            active=worker.active,
            is_active=worker.is_active,
            holds=lambda uid: bool(member.runtime.containers(uid)),
            has_strays=worker.has_strays,
            announce=lambda: self._renewals.queue.add(name),
        )
        worker.check = self._check(name, client)
        worker.permit = claims.mount
        self._agents[name] = _Agent(worker, admission, shutdown, evictions, mirrors, claims)
        member.runtime.listen(lambda uid: self._pods.queue.add((name, uid)))

    def _worker(self, name: str, member: Member, client: Client) -> PodWorker:
        """The pod worker of a node, with the promises of the node's previous agent."""
        worker = PodWorker(
            client,
            member.runtime,
            clock=self._clock,
            record_event=self._record_event,
            wake=lambda uid: self._pods.queue.add((name, uid)),
            job_gates=self._job_gates,
            self_fence_seconds=member.settings.self_fence_seconds,
            announce=lambda: self._renewals.queue.add(name),
        )
        worker.fence.is_static = partial(self._is_static, name)
        if (before := self._agents.get(name)) is not None:
            worker.fence.recall(before.worker.fence.promises())
        return worker

    def _is_critical(self, name: str, pod: Pod) -> bool:
        return self._is_static(name, pod.metadata.uid) or critical_pods.has_critical_priority(pod)

    def _check(self, name: str, client: Client) -> Permit:
        """The check before the admission of a pod without running containers."""
        check_eviction = ForceEvictionGate(
            name,
            clock=self._clock,
            fetch=partial(client.get, NODES, name),
            fetch_pod=lambda pod: client.get(
                PODS, pod.metadata.name, namespace=pod.metadata.namespace
            ),
            has_posted=lambda: self.heartbeats.has_posted(name),
            is_static=partial(self._is_static, name),
        )

        async def check(pod: Pod) -> None:
            if not self._is_static(name, pod.metadata.uid) and not self.heartbeats.is_sure(name):
                raise OwnerUnknown(f"another agent may own node {name}")
            if self._force_eviction:
                await check_eviction(pod)

        return check

    def _check_line(self, name: str) -> None:
        if name in self._faults:
            raise errors.Unreachable(f"node {name} is cut off")

    def _observe(self, change: Change[Pod]) -> None:
        pod, new = change.current, change.new
        agent = self._agents.get(pod.spec.node_name)
        if agent is None or pod.spec.node_name in self._faults:
            return
        if is_mirror(pod):
            self._mirrors.queue.add((pod.spec.node_name, *agent.mirrors.observe(change.old, new)))
            return
        uid = pod.metadata.uid
        if new is None:
            agent.worker.pods.pop(uid, None)
        else:
            agent.worker.pods[uid] = new
        self._pods.queue.add((pod.spec.node_name, uid))

    def _static_changed(self, name: str, static: StaticPods, uid: str) -> None:
        """Take over a static pod that is new, has changed, or is gone."""
        pods, pod = self._agents[name].worker.pods, static.find(uid)
        before = pods.pop(uid, None)
        if pod is not None:
            pods[uid] = pod
        self._pods.queue.add((name, uid))
        if (either := pod or before) is not None:
            self._mirrors.queue.add((name, either.metadata.namespace, either.metadata.name))

    async def _mirror(self, key: MirrorKey) -> Result:
        """Write or delete the mirror pod of a static pod."""
        name, *rest = key
        if name in self._faults:
            return DONE  # `heal` queues all of them again
        return await self._agents[name].mirrors.reconcile((rest[0], rest[1]))

    async def _sync_files(self, name: str) -> Result:
        """Start and end static pods by the manifests of a node."""
        static = self._members[name].static
        if static is None:
            return DONE
        if self._faults.get(name) not in ("crash", "freeze"):
            static.sync()
        return Result(requeue_after=LOOK_SECONDS)

    async def reconcile(self, key: Key) -> Result:
        name, uid = key
        if not self._active.is_set() and not self._is_static(name, uid):
            return DONE  # `start` queues all pods, once the cache has all of them
        if self._faults.get(name) in ("crash", "freeze"):
            return DONE  # `heal` queues all pods again
        agent = self._agents[name]
        pod = agent.worker.pods.get(uid)
        result = await agent.worker.reconcile(uid)
        if pod is None:
            agent.claims.forget(uid)
        else:
            await agent.claims.adopt(pod)
        if agent.evictions is not None and agent.evictions.is_due:
            self._evictions.queue.add(name)
        return result

    async def _evict(self, name: str) -> Result:
        """Evict pods if the node is low on a resource; a node that is down does nothing."""
        evictions = self._agents[name].evictions
        if evictions is None or self._faults.get(name) in ("crash", "freeze"):
            return DONE
        before = evictions.conditions
        wait = await evictions.look()
        if evictions.conditions != before:
            self._renewals.queue.add(name)
        return DONE if wait is None else Result(requeue_after=wait)

    async def end_pods(self, name: str) -> None:
        """End a node's pods with grace, as in a shutdown of the machine."""
        await self._agents[name].shutdown.run()

    async def shut_down(self, name: str) -> None:
        """End a node's pods with grace, then crash the node; `heal` starts it again."""
        await self.end_pods(name)
        if self._agents[name].shutdown.is_on:
            self.fail(name, "crash")

    def cancel_shutdown(self, name: str) -> None:
        """Cancel a shutdown."""
        self._agents[name].shutdown.cancel()

    def _is_static(self, name: str, uid: str) -> bool:
        static = self._members[name].static
        return static is not None and static.find(uid) is not None

    def begin(self) -> None:
        """Run static pods, which need no API server."""
        if self._is_running:
            return
        self._is_running = True
        for name, member in self._members.items():
            if member.static is not None:
                # Now, because `start` ends all pods that are not known by then.
                if self._faults.get(name) not in ("crash", "freeze"):
                    member.static.sync()
                self._files.queue.add_after(name, LOOK_SECONDS)
        self._files.start()
        self._pods.start()

    def start(self) -> None:
        """Begin to act on pods of the API, and on all that the runtimes still have."""
        self.begin()
        self._active.set()
        for name, agent in self._agents.items():
            agent.worker.adopt()
            self._queue_all(name)
            self._renewals.queue.add(name)
            if agent.evictions is not None:
                self._evictions.queue.add(name)
        self._renewals.start()
        self._evictions.start()
        self._mirrors.start()

    async def started(self) -> None:
        """Wait until `start` was called, when all pods are known."""
        await self._active.wait()

    def _queue_all(self, name: str) -> None:
        worker = self._agents[name].worker
        for uid in (*worker.pods, *worker.runtime.pods(), *worker.fence.promises()):
            self._pods.queue.add((name, uid))

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """Stop acting. Containers run on, and the next fleet on their runtimes adopts them."""
        every = (self._renewals, self._evictions, self._files, self._mirrors, self._pods)
        return all([await each.stop(drain_seconds) for each in every])

    def names(self) -> list[str]:
        return list(self._members)

    def worker(self, name: str) -> PodWorker:
        return self._agents[name].worker

    def fault(self, name: str) -> Fault | None:
        """The fault that `fail` set, until `heal`."""
        return self._faults.get(name)

    def fail(self, name: str, fault: Fault) -> None:
        """Make a node fail; a crash also loses its containers."""
        self._faults[name] = fault
        self.heartbeats.silence(name)
        if fault == "crash":
            self._members[name].runtime.crash()

    def heal(self, name: str) -> None:
        """Let a node return, and sync all its pods."""
        fault = self._faults.pop(name, None)
        if fault == "crash":
            self._join(self._members[name])
        worker = self._agents[name].worker
        worker.pods = {}
        for pod in self._cache.by(index.NODE, name):
            if is_mirror(pod):
                mirrors = self._agents[name].mirrors
                self._mirrors.queue.add((name, *mirrors.observe(None, pod)))
            else:
                worker.pods[pod.metadata.uid] = pod
        static = self._members[name].static
        for pod in static.pods() if static is not None else ():
            self._mirrors.queue.add((name, pod.metadata.namespace, pod.metadata.name))
            worker.pods[pod.metadata.uid] = pod
        worker.adopt()
        self._queue_all(name)
        self._evictions.queue.add(name)
        self.heartbeats.resume(name)
        self._renewals.queue.add(name)


class _Reconciler(Generic[K]):
    """Makes a reconciler of one method."""

    def __init__(self, reconcile: Callable[[K], Awaitable[Result]]) -> None:
        self._reconcile = reconcile

    async def reconcile(self, key: K) -> Result:
        return await self._reconcile(key)
