# SPDX-License-Identifier: Apache-2.0
"""Many nodes in one process: one watch of pods, one queue, one heartbeat.

A fleet starts and stops like a controller, after its informer has synced. It
only brings pods to the worker of their node; what is done with them is the
worker's. A node of its own process is a fleet of one.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from refloat.agent import worker as workers
from refloat.agent.node import Heartbeats, NodeSettings
from refloat.agent.runtime import Runtime
from refloat.agent.status import Ending
from refloat.agent.worker import PodWorker
from refloat.api.core import Pod
from refloat.base.clock import Clock
from refloat.base.rand import Rand
from refloat.client.contract import Client
from refloat.runtime.controller import Controller, ControllerSettings, Instruments
from refloat.runtime.informer import Informer
from refloat.runtime.queue import Backoff
from refloat.runtime.reconcile import Result

Key: TypeAlias = tuple[str, str]
"""A node's name and a pod's uid: another pod of the same name is another key."""

# Pods looked at at once; each look is at most two requests.
POD_WORKERS = 10

# Creation of a lease is tried again after 200 ms, doubling to 7 s (behaviour D1.1).
_BEAT = ControllerSettings(workers=5, backoff=Backoff(base=0.2, cap=7.0))
# A status that could not be written is tried again soon: Jobs wait for it.
_POD = ControllerSettings(workers=POD_WORKERS, backoff=Backoff(base=0.2, cap=10.0))


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the fleet, and what runs its containers."""

    settings: NodeSettings
    runtime: Runtime


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
        tell: workers.Tell | None = None,
    ) -> None:
        listed = list(members)
        self._workers: dict[str, PodWorker] = {}
        self._pods: Controller[Key] = Controller(
            "pod-worker", self, clock=clock, instruments=instruments, settings=_POD
        )
        for member in listed:
            self._join(client, member, clock, tell)
        self.heartbeats = Heartbeats(
            client, [each.settings for each in listed], clock=clock, rand=rand
        )
        self._beats: Controller[str] = Controller(
            "node-heartbeat", self.heartbeats, clock=clock, instruments=instruments, settings=_BEAT
        )
        pods.add_handler(self._saw)

    def _join(
        self, client: Client, member: Member, clock: Clock, tell: workers.Tell | None
    ) -> None:
        name = member.settings.name
        made = PodWorker(
            client,
            member.runtime,
            clock=clock,
            admit=partial(self._admit, member.settings),
            **({} if tell is None else {"tell": tell}),
        )
        self._workers[name] = made
        member.runtime.listen(lambda uid: self._pods.queue.add((name, uid)))

    def _admit(self, settings: NodeSettings, pod: Pod) -> Ending | None:
        """A node takes as many pods as it said (behaviour D6)."""
        used, capacity = self._workers[settings.name].active(), settings.max_pods()
        if used < capacity:
            return None
        text = (
            "Pod was rejected: Node didn't have enough resource: pods, "
            f"requested: 1, used: {used}, capacity: {capacity}"
        )
        return Ending("OutOfpods", text, rejected=True)

    def _saw(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        assert pod is not None
        member = self._workers.get(pod.spec.node_name)
        if member is None:
            return
        uid = pod.metadata.uid
        if new is None:
            member.pods.pop(uid, None)
        else:
            member.pods[uid] = new
        self._pods.queue.add((pod.spec.node_name, uid))

    async def reconcile(self, key: Key) -> Result:
        name, uid = key
        return await self._workers[name].reconcile(uid)

    def start(self) -> None:
        """Begin to act. What the runtimes still have is looked at too, known or not."""
        for name, member in self._workers.items():
            for uid in member.runtime.pods():
                self._pods.queue.add((name, uid))
            self._beats.queue.add(name)
        self._beats.start()
        self._pods.start()

    async def stop(self, drain_seconds: float = 0.0) -> bool:
        """Act no more. Containers run on: the next fleet on their runtimes finds them."""
        beats = await self._beats.stop(drain_seconds)
        return await self._pods.stop(drain_seconds) and beats

    def silence(self, name: str) -> None:
        """A node falls silent: no lease, no status of its own."""
        self.heartbeats.silence(name)

    def resume(self, name: str) -> None:
        self.heartbeats.resume(name)
        self._beats.queue.add(name)
