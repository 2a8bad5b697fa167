# SPDX-License-Identifier: Apache-2.0
"""Two managers on one cluster in virtual time, with a trace of all steps.

Everything that a controller stands on is real: API server, in-process client,
informer, queue, controller, recorder, leader election, manager. The leader
stops half way, and the other takes over. As a program of its own,
`python -m tests.simulation.manager_program SEED` prints the trace's digest.
"""

import asyncio
import sys
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.api.core import Pod
from refloat.client import errors, kinds
from refloat.client.contract import Client
from refloat.client.local import LocalClient
from refloat.runtime import cache
from refloat.runtime.controller import Controller, Instruments
from refloat.runtime.election import ElectionSettings, Elector
from refloat.runtime.event_series import Reference
from refloat.runtime.guard import Guard
from refloat.runtime.informer import Change, Informer
from refloat.runtime.manager import Manager, Parts
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile import DONE, Result
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.runtime.recorder import EventMetrics, Recorder
from refloat.sim import api_server
from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace

PODS = 12
MARK = "example.com/marked-by"


class Marker:
    """A controller that marks every pod with its own name, once."""

    def __init__(self, name: str, sim: Sim, client: Client, informer: Informer[Pod]) -> None:
        self._name = name
        self._sim = sim
        self._client = client
        self._informer = informer
        self.recorder: Recorder | None = None

    async def reconcile(self, key: str) -> Result:
        pod = self._informer.cache.get(key)
        if pod is None or MARK in (pod.metadata.annotations or {}):
            return DONE
        namespace, name = cache.split_key(key)
        patch = {
            "metadata": {
                "resourceVersion": pod.metadata.resource_version,
                "annotations": {MARK: self._name},
            }
        }
        try:
            await self._client.patch(kinds.PODS, name, patch, namespace=namespace)
        except errors.Conflict:
            return Result(requeue_after=0.5)
        self._sim.trace.add(f"{self._name} marked {key}")
        assert self.recorder is not None
        reference = Reference.of(kinds.PODS, pod)
        self.recorder.event(reference, "Normal", "Marked", "Marking", f"by {self._name}")
        return DONE


def manager(name: str, sim: Sim, client: Client) -> Manager:
    """One process of controllers."""
    registry = CollectorRegistry()
    elector = Elector(
        client, clock=sim.clock, rand=sim.rand, settings=ElectionSettings("default", "marker", name)
    )
    guarded = Guard(client, elector.check)
    informer = Informer(client, kinds.PODS, clock=sim.clock, rand=sim.rand)
    marker = Marker(name, sim, guarded, informer)
    instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
    controller: Controller[str] = Controller(
        "marker", marker, clock=sim.clock, instruments=instruments
    )
    marker.recorder = Recorder(
        guarded,
        controller="example.com/marker",
        instance=name,
        clock=sim.clock,
        rand=sim.rand,
        metrics=EventMetrics(registry),
    )

    def note(change: Change[Pod]) -> None:
        pod = change.current
        sim.trace.add(f"{name} saw {pod.metadata.name} at {pod.metadata.resource_version}")
        controller.queue.add(cache.key_of(pod))

    informer.add_handler(note)
    parts = Parts(
        informers=[informer],
        controllers=[controller],
        recorders=[marker.recorder],
        leadership=elector,
    )
    return Manager(parts, clock=sim.clock)


async def program(sim: Sim) -> Trace:
    """Pods appear while managers come and go; all are marked, each once."""
    async with api_server.serve(sim) as api:
        client = LocalClient(api, field_manager="simulation")
        managers = {name: manager(name, sim, client) for name in ("first", "second")}
        running = [asyncio.ensure_future(each.run()) for each in managers.values()]
        for number in range(PODS):
            await _create(client, f"pod-{number}")
            await sim.clock.sleep(sim.rand.random() * 2)
            if number == PODS // 2:
                lease = await client.get(kinds.LEASES, "marker", namespace="default")
                managers[lease.spec.holder_identity or ""].stop()
        await sim.clock.sleep(60)
        for each in managers.values():
            each.stop()
        await asyncio.gather(*running)
        async for page in client.list(kinds.PODS):
            for pod in page.items:
                marked = (pod.metadata.annotations or {})[MARK]
                sim.trace.add(f"{pod.metadata.name} was marked by {marked}")
        async for events in client.list(kinds.EVENTS):
            sim.trace.add(f"{len(events.items)} events")
    return sim.trace


async def _create(client: Client, name: str) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "busybox:1"}]}
    obj = {"metadata": {"name": name}, "spec": spec}
    await client.create(kinds.PODS, obj, namespace="default")


if __name__ == "__main__":
    print(run(program, seed=int(sys.argv[1])).digest())  # noqa: T201
