# SPDX-License-Identifier: Apache-2.0
"""Many nodes in one process: one watch of pods, one queue, one heartbeat.

A fleet starts and stops like a controller, after its informer has synced. It
only brings pods to the worker of their node; what is done with them is the
worker's. A node of its own process is a fleet of one.

A node can be made to fail, for a demonstration or a test. In each case it is
silent, and hears nothing of what becomes of its pods in the API:

    crash      the machine is off: its containers are gone
    freeze     its agent does nothing; its containers run on, and end
    partition  it is cut off; its agent goes on with what it knows

`heal` ends all three, as a reboot or a mended wire would.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from refloat.agent import worker as workers
from refloat.agent.admission import Admission, Check, NodeFacts
from refloat.agent.claims import Claims
from refloat.agent.eviction import Evictions
from refloat.agent.mirrors import Mirrors, is_mirror
from refloat.agent.node import (
    Health,
    Heartbeats,
    NodeSettings,
    TellOfNode,
    labels,
    unminded,
    untold,
)
from refloat.agent.runtime import Runtime
from refloat.agent.shutdown import Shutdown
from refloat.agent.starting import ForceEvictionGate, OwnerUnknown, Permit
from refloat.agent.static_pods import LOOK_SECONDS, StaticClient, StaticPods
from refloat.agent.usage import Usage
from refloat.agent.worker import PodWorker
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client import errors
from refloat.client.contract import Client
from refloat.client.kinds import NODES, PODS
from refloat.policy import critical_pods
from refloat.policy.eviction_thresholds import EvictionSettings
from refloat.policy.node_shutdown import ShutdownSettings
from refloat.policy.switches import ALL_ON, Switches
from refloat.runtime import index
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.guard import Guard
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import DONE, Result

Fault: TypeAlias = Literal["crash", "freeze", "partition"]

# What a fleet must find pods by.
POD_INDEXES = (index.NODE,)

Key: TypeAlias = tuple[str, str]
"""A node's name and a pod's uid: another pod of the same name is another key."""

MirrorKey: TypeAlias = tuple[str, str, str]
"""A node's name, and the namespace and name of one of its mirror pods."""

# Pods looked at at once; each look is at most two requests.
POD_WORKERS = 10

# Creation of a lease is tried again after 200 ms, doubling to 7 s (behaviour D1.1).
# 5,000 nodes beat 500 times a second, and when the server is busy a write takes a
# tenth of a second and more: so many are under way then. They share its commits.
_BEAT = ControllerSettings(workers=100, backoff=Backoff(base=0.2, cap=7.0))
# Measuring one node must not wait for another's files.
_LOOK = ControllerSettings(workers=5)
# A status that could not be written is tried again soon: Jobs wait for it.
_POD = ControllerSettings(workers=POD_WORKERS, backoff=Backoff(base=0.2, cap=10.0))
# A mirror is for people, and there are few.
_MIRROR = ControllerSettings(workers=2, backoff=Backoff(base=0.2, cap=10.0))
_FILES = ControllerSettings(workers=1, backoff=Backoff(base=0.2, cap=10.0))


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the fleet, and what runs its containers."""

    settings: NodeSettings
    runtime: Runtime
    usage: Usage | None = None
    """What measures it. Without, it never runs low, and evicts nobody."""

    eviction: EvictionSettings = field(default_factory=EvictionSettings)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    checks: tuple[Check, ...] = ()
    """What it asks of a pod before it takes it, beside what a kubelet asks."""

    static: StaticPods | None = None
    """Pods that come from files of its own."""


@dataclass(frozen=True, slots=True)
class _Agent:
    """What acts on one node."""

    worker: PodWorker
    admission: Admission
    shutdown: Shutdown
    evictions: Evictions | None
    mirrors: Mirrors
    claims: Claims

    def health(self) -> Health:
        return Health(self.pressure(), self.shutdown.is_on, self.claims.in_use())

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
        tell: workers.Tell = workers.untold,
        tell_of_node: TellOfNode = untold,
        switches: Switches = ALL_ON,
        replaced: Callable[[str], object] = unminded,
        force_eviction: bool = False,
    ) -> None:
        """`replaced` hears of a node that another agent runs now; `force_eviction` is the gate
        `TaintForceEviction`, as `starting` has it."""
        listed = list(members)
        self._client = client
        self._clock = clock
        self._tell = tell
        self._tell_of_node = tell_of_node
        self._switches = switches
        self._force_eviction = force_eviction
        self._known = pods.cache
        self._members = {each.settings.name: each for each in listed}
        self._faults: dict[str, Fault] = {}
        self._agents: dict[str, _Agent] = {}
        self._pods: Controller[Key] = Controller(
            "pod-worker", self, clock=clock, instruments=instruments, settings=_POD
        )
        self._looks: Controller[str] = Controller(
            "node-eviction", _Looks(self), clock=clock, instruments=instruments, settings=_LOOK
        )
        self.heartbeats = Heartbeats(
            client,
            [each.settings for each in listed],
            clock=clock,
            rand=rand,
            health=lambda name: self._agents[name].health(),
            tell=tell_of_node,
            renewed=lambda name, *told: self._agents[name].worker.fence.renewed(*told),
            replaced=replaced,
            promises=lambda name: self._agents[name].worker.fence.promises(),
            recall=lambda name, listed: self._agents[name].worker.fence.recall(listed),
        )
        self._beats: Controller[str] = Controller(
            "node-heartbeat", self.heartbeats, clock=clock, instruments=instruments, settings=_BEAT
        )
        self._mirrors: Controller[MirrorKey] = Controller(
            "mirror-pods", _Mirrored(self), clock=clock, instruments=instruments, settings=_MIRROR
        )
        self._files: Controller[str] = Controller(
            "static-pods", _Files(self), clock=clock, instruments=instruments, settings=_FILES
        )
        self._begun = False
        self._acting = asyncio.Event()
        for member in listed:
            self._join(member)
        pods.add_handler(self._saw)

    def _join(self, member: Member) -> None:
        """A new agent on what its machine still has."""
        name = member.settings.name
        client: Client = Guard(self._client, partial(self._check_line, name))
        mirrors = Mirrors(client, name, member.static)
        if member.static is not None:
            member.static.listen(partial(self._static_changed, name, member.static))
            client = StaticClient(self._client, member.static, partial(self._check_line, name))
        tell_node = partial(self._tell_of_node, name)
        worker = self._worker(name, member, client)
        is_critical = partial(self._is_critical, name)
        shutdown = Shutdown(
            worker,
            member.shutdown,
            clock=self._clock,
            tell_node=tell_node,
            announce=lambda: self._beats.queue.add(name),
        )
        evictions = None
        if member.usage is not None:
            evictions = Evictions(
                worker,
                member.usage,
                member.eviction,
                clock=self._clock,
                tell=self._tell,
                tell_node=tell_node,
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
        worker.gate = admission = Admission(facts, worker, self._tell)
        claims = Claims(
            client,
            name,
            active=worker.active,
            is_active=worker.is_active,
            holds=lambda uid: bool(member.runtime.containers(uid)),
            has_strays=worker.has_strays,
            announce=lambda: self._beats.queue.add(name),
        )
        worker.check = self._check(name, client)
        worker.permit = claims.mount
        self._agents[name] = _Agent(worker, admission, shutdown, evictions, mirrors, claims)
        member.runtime.listen(lambda uid: self._pods.queue.add((name, uid)))

    def _worker(self, name: str, member: Member, client: Client) -> PodWorker:
        """With the promises of the agent before it."""
        worker = PodWorker(
            client,
            member.runtime,
            clock=self._clock,
            tell=self._tell,
            wake=lambda uid: self._pods.queue.add((name, uid)),
            switches=self._switches,
            self_fence_seconds=member.settings.self_fence_seconds,
            announce=lambda: self._beats.queue.add(name),
        )
        worker.fence.is_static = partial(self._is_static, name)
        if (before := self._agents.get(name)) is not None:
            worker.fence.recall(before.worker.fence.promises())
        return worker

    def _is_critical(self, name: str, pod: Pod) -> bool:
        return self._is_static(name, pod.metadata.uid) or critical_pods.has_critical_priority(pod)

    def _check(self, name: str, client: Client) -> Permit:
        """What a node asks before it admits a pod of which nothing runs."""
        evicted = ForceEvictionGate(
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
                await evicted(pod)

        return check

    def _check_line(self, name: str) -> None:
        if name in self._faults:
            raise errors.Unreachable(f"node {name} is cut off")

    def _saw(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        agent = self._agents.get(pod.spec.node_name)
        if agent is None or pod.spec.node_name in self._faults:
            return
        if is_mirror(pod):
            self._mirrors.queue.add((pod.spec.node_name, *agent.mirrors.saw(old, new)))
            return
        uid = pod.metadata.uid
        if new is None:
            agent.worker.pods.pop(uid, None)
        else:
            agent.worker.pods[uid] = new
        self._pods.queue.add((pod.spec.node_name, uid))

    def _static_changed(self, name: str, static: StaticPods, uid: str) -> None:
        """A pod of the node's own files came, changed, or is gone."""
        pods, pod = self._agents[name].worker.pods, static.find(uid)
        gone = pods.pop(uid, None)
        if pod is not None:
            pods[uid] = pod
        self._pods.queue.add((name, uid))
        if (shown := pod or gone) is not None:
            self._mirrors.queue.add((name, shown.metadata.namespace, shown.metadata.name))

    async def mirror(self, key: MirrorKey) -> Result:
        """Show a static pod, or no longer."""
        name, *rest = key
        if name in self._faults:
            return DONE  # `heal` looks at all of them again
        return await self._agents[name].mirrors.reconcile((rest[0], rest[1]))

    def look_at_files(self, name: str) -> Result:
        """Begin and end what the files of a node ask for."""
        static = self._members[name].static
        if static is None:
            return DONE
        if self._faults.get(name) not in ("crash", "freeze"):
            static.look()
        return Result(requeue_after=LOOK_SECONDS)

    async def reconcile(self, key: Key) -> Result:
        name, uid = key
        if not self._acting.is_set() and not self._is_static(name, uid):
            return DONE  # `start` looks at all of them, when all are known
        if self._faults.get(name) in ("crash", "freeze"):
            return DONE  # nobody is there; `heal` looks at all pods again
        agent = self._agents[name]
        pod = agent.worker.pods.get(uid)
        result = await agent.worker.reconcile(uid)
        if pod is None:
            agent.claims.forget(uid)
        else:
            await agent.claims.adopt(pod)
        if agent.evictions is not None and agent.evictions.is_due:
            self._looks.queue.add(name)
        return result

    async def look(self, name: str) -> Result:
        """Evict whom the node has to; one that is down looks at nothing."""
        evictions = self._agents[name].evictions
        if evictions is None or self._faults.get(name) in ("crash", "freeze"):
            return DONE
        before = evictions.conditions
        wait = await evictions.look()
        if evictions.conditions != before:
            self._beats.queue.add(name)
        return DONE if wait is None else Result(requeue_after=wait)

    async def end_pods(self, name: str) -> None:
        """End a node's pods with grace, as before the machine goes off."""
        await self._agents[name].shutdown.run()

    async def shut_down(self, name: str) -> None:
        """End a node's pods with grace, then switch it off; `heal` switches it on again."""
        await self.end_pods(name)
        if self._agents[name].shutdown.is_on:
            self.fail(name, "crash")

    def call_off(self, name: str) -> None:
        """The machine stays on after all."""
        self._agents[name].shutdown.cancel()

    def _is_static(self, name: str, uid: str) -> bool:
        static = self._members[name].static
        return static is not None and static.find(uid) is not None

    def begin(self) -> None:
        """Run what comes from files; that needs no API server, and so does not wait for it."""
        if self._begun:
            return
        self._begun = True
        for name, member in self._members.items():
            if member.static is not None:
                # At once: `start` ends all that is not known by then.
                self._files.queue.add_after(name, self.look_at_files(name).requeue_after or 0)
        self._files.start()
        self._pods.start()

    def start(self) -> None:
        """Begin to act. What the runtimes still have is looked at too, known or not."""
        self.begin()
        self._acting.set()
        for name, agent in self._agents.items():
            agent.worker.adopt()
            self._look_at_all(name)
            self._beats.queue.add(name)
            if agent.evictions is not None:
                self._looks.queue.add(name)
        self._beats.start()
        self._looks.start()
        self._mirrors.start()

    async def started(self) -> None:
        """Until all of its pods are known."""
        await self._acting.wait()

    def _look_at_all(self, name: str) -> None:
        worker = self._agents[name].worker
        for uid in (*worker.pods, *worker.runtime.pods(), *worker.fence.promises()):
            self._pods.queue.add((name, uid))

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """Act no more. Containers run on: the next fleet on their runtimes finds them."""
        every = (self._beats, self._looks, self._files, self._mirrors, self._pods)
        return all([await each.stop(drain_seconds) for each in every])

    def names(self) -> list[str]:
        return list(self._members)

    def worker(self, name: str) -> PodWorker:
        """What drives the pods of a node."""
        return self._agents[name].worker

    def fault(self, name: str) -> Fault | None:
        """What is the matter with a node."""
        return self._faults.get(name)

    def fail(self, name: str, fault: Fault) -> None:
        """Make a node fail; a crash takes also what a lesser failure left."""
        self._faults[name] = fault
        self.heartbeats.silence(name)
        if fault == "crash":
            self._members[name].runtime.crash()

    def heal(self, name: str) -> None:
        """Let a node return, and look at all that it has and should have."""
        fault = self._faults.pop(name, None)
        if fault == "crash":
            self._join(self._members[name])
        worker = self._agents[name].worker
        worker.pods = self._pods_of(name)
        worker.adopt()
        self._look_at_all(name)
        self._looks.queue.add(name)
        self.heartbeats.resume(name)
        self._beats.queue.add(name)

    def _pods_of(self, name: str) -> dict[str, Pod]:
        """All that the node should have; of mirrors it is told what became of them."""
        agent, static = self._agents[name], self._members[name].static
        pods = {}
        for pod in self._known.by(index.NODE, name):
            if is_mirror(pod):
                self._mirrors.queue.add((name, *agent.mirrors.saw(None, pod)))
            else:
                pods[pod.metadata.uid] = pod
        for pod in static.pods() if static is not None else ():
            self._mirrors.queue.add((name, pod.metadata.namespace, pod.metadata.name))
            pods[pod.metadata.uid] = pod
        return pods


class _Mirrored:
    """The mirror pods of all nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def reconcile(self, key: MirrorKey) -> Result:
        return await self._fleet.mirror(key)


class _Files:
    """The looks of all nodes at their files; a key is a node's name."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def reconcile(self, name: str) -> Result:
        return self._fleet.look_at_files(name)


class _Looks:
    """The looks of all nodes at what they have left; a key is a node's name."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def reconcile(self, name: str) -> Result:
        return await self._fleet.look(name)
