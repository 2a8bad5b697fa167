# SPDX-License-Identifier: Apache-2.0
"""Agents that own a node, behind a wire that holds requests and loses answers, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from refloat.agent import node_ownership
from refloat.agent.node import Heartbeats, NodeSettings
from refloat.agent.node_ownership import Taken
from refloat.apiserver.inprocess import InProcess
from refloat.client import errors, kinds
from refloat.client.contract import Client, Kind
from refloat.client.local import LocalClient
from refloat.runtime.guard import Guard
from refloat.sim.run import Sim

LEASE_SECONDS = 40.0

# As long as the client over the wire waits for an answer.
TIMEOUT_SECONDS = 30.0

# As the heartbeats of a fleet are tried again.
RETRY_SECONDS = 5.0


class Wire(Guard):
    """One process' way to the API server. What was sent arrives, also after the sender died."""

    def __init__(self, client: Client, sim: Sim) -> None:
        super().__init__(client, lambda: None)
        self._sim = sim
        self._open = asyncio.Event()
        self._open.set()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.lose_answers = False
        self.error: errors.ClientError | None = None
        self.answer: Any = None

    def hold(self) -> None:
        """Deliver nothing until `deliver`."""
        self._open.clear()

    def deliver(self) -> None:
        self._open.set()

    async def _send(self, send: Callable[[], Awaitable[Any]]) -> Any:
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        is_lost = self.lose_answers
        task = asyncio.ensure_future(self._arrive(send))
        self._under_way.add(task)
        task.add_done_callback(self._done)
        try:
            async with self._sim.clock.timeout(TIMEOUT_SECONDS):
                answer = await asyncio.shield(task)
        except TimeoutError:
            raise errors.Timeout("no answer in time") from None
        if is_lost:
            raise errors.Unavailable("the answer was lost")
        return answer

    async def _arrive(self, send: Callable[[], Awaitable[Any]]) -> Any:
        await self._open.wait()
        return await send()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the sender may be gone

    async def get(self, kind: Kind[Any], name: str, **more: Any) -> Any:
        return await self._send(lambda: super(Wire, self).get(kind, name, **more))

    async def create(self, kind: Kind[Any], obj: Any, **more: Any) -> Any:
        return await self._send(lambda: super(Wire, self).create(kind, obj, **more))

    async def patch(self, kind: Kind[Any], name: str, patch: Any, **more: Any) -> Any:
        return await self._send(lambda: super(Wire, self).patch(kind, name, patch, **more))


class Agent:
    """The part of an agent that owns the node n1: one process on one folder."""

    count = 0

    def __init__(self, sim: Sim, api: InProcess, instance: str) -> None:
        Agent.count += 1
        self.sim = sim
        self.wire = Wire(LocalClient(api, field_manager="kubelet"), sim)
        self.instance, self.incarnation = instance, f"process-{Agent.count}"
        self.replaced: list[str] = []
        self.waited: list[float] = []
        self.renewed: list[float] = []
        self.beats = Heartbeats(
            self.wire,
            [NodeSettings("n1", instance=instance, incarnation=self.incarnation)],
            clock=sim.clock,
            rand=sim.rand,
            replaced=self.replaced.append,
            renewed=lambda name, sent_at, listed: self.renewed.append(sent_at),
        )
        self._task: asyncio.Task[None] | None = None
        self.has_begun = False
        self.started_at = 0.0

    @property
    def is_sure(self) -> bool:
        return self.beats.is_sure("n1")

    @property
    def is_alive(self) -> bool:
        return self._task is not None and not self._task.done()

    async def settle(self) -> None:
        await self.beats.settle("n1", self.waited.append)

    async def beat(self) -> None:
        await self.beats.reconcile("n1")

    def start(self) -> None:
        """As a process: until it is killed or gives up."""
        self.started_at = self.sim.clock.monotonic()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await node_ownership.persist(self.settle, self.sim.clock, 2.0)
        except Taken:
            self.replaced.append("n1")
            return
        self.has_begun = True
        while not self.replaced:
            try:
                wait = (await self.beats.reconcile("n1")).requeue_after or 0.0
            except Exception as error:
                wait = getattr(error, "after", None) or RETRY_SECONDS
            await self.sim.clock.sleep(wait)

    async def kill(self) -> None:
        """As kill -9: what it has sent arrives nonetheless."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def owner(api: InProcess) -> str:
    """The identity in the lease."""
    client = LocalClient(api, field_manager="test")
    lease = await client.get(kinds.LEASES, "n1", namespace="kube-node-lease")
    return (lease.metadata.annotations or {}).get(node_ownership.ANNOTATION, "")
