# SPDX-License-Identifier: Apache-2.0
"""Some controllers of the embedded cluster on a real API server in virtual time.

They are made as `app.inside` makes them, but stand on clients that can be
killed, lose answers or be refused, and what they tell is taken down.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.apiserver import identity
from refloat.apiserver.identity import Identity
from refloat.apiserver.inprocess import InProcess
from refloat.app.controllers import Chosen
from refloat.app.elections import ElectedController
from refloat.app.equipment import Equipment
from refloat.base.gates import Gates
from refloat.client import errors, kinds
from refloat.client.contract import Client, DeleteOptions
from refloat.client.local import LocalClient
from refloat.client.requests import Request
from refloat.runtime.manager import Worker
from refloat.runtime.recorder import Sink
from refloat.sim.run import Sim
from tests import builders
from tests.simulation import api_program
from tests.simulation.job_world import MortalClient, Told

NAMESPACE = "default"
AT_ONCE = DeleteOptions(grace_seconds=0)

Make: TypeAlias = Callable[[Equipment], Sequence[Worker]]


class Faulty(MortalClient):
    """Its first reads may fail, too."""

    fails_to_read = 0

    async def _call(self, request: Request) -> bytes:
        if request.method == "GET" and self.fails_to_read:
            self.fails_to_read -= 1
            raise errors.Unavailable("not now")
        return await super()._call(request)


class SoleActor(ElectedController):
    """Of a cluster without another process: it acts at once. Elections are in `test_actors`."""

    def guard(self, client: Client) -> Client:
        return client

    def join(self, apply: Callable[[bool], None]) -> None:
        apply(True)


class Fitted(Equipment):
    """Tells a test instead of the API server."""

    told: Told

    def election(self, controller: str) -> ElectedController:
        return SoleActor(self._elections, controller)

    def recorder(
        self, client: Client, component: str, *, sourced: bool = False, queued: int = 0
    ) -> Sink:
        return self.told


class World:
    """An API server, and controllers that can be killed and started anew."""

    def __init__(self, sim: Sim, api: InProcess, make: Make, gates: Gates) -> None:
        self.sim = sim
        self.client = LocalClient(api, field_manager="test")
        self.metrics = CollectorRegistry()
        self.mortal = Faulty(api)
        self.told = Told()
        self.api = api
        self._make = make
        self._gates = gates
        self._equipment: Fitted | None = None
        self._workers: Sequence[Worker] = ()

    async def start(self, **faults: Any) -> None:
        """With what `Faulty` can do wrong."""
        self.metrics = CollectorRegistry()
        self.mortal = Faulty(self.api)
        for name, value in faults.items():
            setattr(self.mortal, name, value)
        equipment = Fitted(
            self._connect,
            Chosen(),
            gates=self._gates,
            clock=self.sim.clock,
            rand=self.sim.rand,
            registry=self.metrics,
        )
        equipment.told = self.told
        self._equipment = equipment
        self._workers = self._make(equipment)
        for informer in equipment.informers:
            informer.start()
            await informer.wait_synced()
        for worker in self._workers:
            worker.start()

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    def _connect(self, user: Identity) -> Client:
        return self.client if user == identity.ADMIN else self.mortal

    async def stop(self) -> None:
        for worker in self._workers:
            await worker.stop()
        for informer in self._equipment.informers if self._equipment is not None else ():
            await informer.close()
        self._workers = ()

    async def pod(
        self, name: str, *, phase: str = "Running", ready: bool = False, **how: Any
    ) -> None:
        await self.client.create(kinds.PODS, builders.pod(name, **how), namespace=NAMESPACE)
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        await self.status(name, phase=phase, conditions=[condition])

    async def status(self, pod: str, **status: Any) -> None:
        patch = {"status": status}
        await self.client.patch(
            kinds.PODS,
            pod,
            patch,
            patch_type="strategic",
            namespace=NAMESPACE,
            subresource="status",
        )

    async def node(self, name: str, **how: Any) -> None:
        await self.client.create(kinds.NODES, builders.node(name, **how))

    async def found(self, pod: str) -> Pod | None:
        with contextlib.suppress(errors.NotFound):
            return await self.client.get(kinds.PODS, pod, namespace=NAMESPACE)
        return None

    async def delete(self, pod: str) -> None:
        await self.client.delete(kinds.PODS, pod, namespace=NAMESPACE)

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def world(sim: Sim, make: Make, gates: Gates | None = None) -> AsyncIterator[World]:
    async with api_program.serving(sim) as api:
        api.use(gates or Gates())
        made = World(sim, api, make, gates or Gates())
        try:
            yield made
        finally:
            await made.stop()


Fault: TypeAlias = Callable[[World, int, float], Awaitable[None]]
"""Starts the controllers so that something goes wrong at a write, and lets it pass."""


async def _dies(w: World, number: int, seconds: float, *, after: bool) -> None:
    await w.start(dies_at=number, dies_after=after)
    await w.sim.clock.sleep(seconds)
    await w.stop()
    await w.start()


async def _loses_the_answer(w: World, number: int, _: float) -> None:
    await w.start(loses=(number,))


async def _meets_a_conflict(w: World, number: int, _: float) -> None:
    def refuse(__: Request, at: int) -> errors.ClientError | None:
        return errors.Conflict("changed", code=409, reason="Conflict") if at == number else None

    await w.start(refuses=refuse)


FAULTS: dict[str, Fault] = {
    "dies before": lambda w, number, seconds: _dies(w, number, seconds, after=False),
    "dies after": lambda w, number, seconds: _dies(w, number, seconds, after=True),
    "loses the answer": _loses_the_answer,
    "meets a conflict": _meets_a_conflict,
}


def condition(pod: Pod, kind: str) -> Object | None:
    """A condition's status, reason and message."""
    for each in pod.status.conditions or ():
        if each.type == kind:
            return {"status": each.status, "reason": each.reason, "message": each.message}
    return None
