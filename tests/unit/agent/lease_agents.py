# SPDX-License-Identifier: Apache-2.0
"""Agents that own a node, behind a wire that holds requests and loses answers, in virtual time."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

from refloat.agent import node_ownership
from refloat.agent.node import Heartbeats, NodeSettings
from refloat.agent.node_ownership import OwnedByAnother
from refloat.apiserver.local_server import LocalConnection
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.client.forwarding import ForwardingClient
from refloat.client.local import LocalClient
from refloat.sim import api_server
from refloat.sim.run import Sim
from tests.virtual import Test, virtual

LEASE_SECONDS = 40.0

# As long as the client over the wire waits for an answer.
TIMEOUT_SECONDS = 30.0

# As the heartbeats of a fleet are tried again.
RETRY_SECONDS = 5.0


class LeaseConnection(ForwardingClient):
    """One process' way to the API server. What was sent arrives, also after the sender died."""

    def __init__(self, client: Client, sim: Sim) -> None:
        super().__init__(client)
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

    async def _read(self, verb: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        is_lost = self.lose_answers
        task = asyncio.ensure_future(self._arrive(functools.partial(verb, *args, **options)))
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

    _write = _read

    async def _arrive(self, send: Callable[[], Awaitable[Any]]) -> Any:
        await self._open.wait()
        return await send()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the sender may be gone


class Agent:
    """The part of an agent that owns the node n1: one process on one folder."""

    count = 0

    def __init__(self, sim: Sim, api: LocalConnection, instance: str) -> None:
        Agent.count += 1
        self.sim = sim
        self.wire = LeaseConnection(LocalClient(api, field_manager="kubelet"), sim)
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
        """Run as a process until `kill`, or until another agent owns the node."""
        self.started_at = self.sim.clock.monotonic()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await node_ownership.persist(self.settle, self.sim.clock, 2.0)
        except OwnedByAnother:
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
        """End like kill -9: requests that were sent still arrive."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def owner(api: LocalConnection) -> str:
    """The identity in the lease."""
    client = LocalClient(api, field_manager="test")
    lease = await client.get(kinds.LEASES, "n1", namespace="kube-node-lease")
    return (lease.metadata.annotations or {}).get(node_ownership.ANNOTATION, "")


def on_api_server(*, seeds: int = 1) -> Callable[[Test], Callable[..., None]]:
    """Run a test in virtual time, with the `Sim` and an API server."""

    def decorate(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        async def run(sim: Sim) -> None:
            async with api_server.serve(sim) as api:
                await test(sim, api)

        del run.__wrapped__  # pytest must not look for fixtures of these names
        return virtual(seeds=seeds)(run)

    return decorate
