# SPDX-License-Identifier: Apache-2.0
"""Twenty simulated nodes, a scheduler and two hundred pods, to the end of all.

As a program of its own, `python -m tests.simulation.fleet_program SEED` prints the
digest of the trace.
"""

import json
import sys
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from refloat.agent.fleet import POD_INDEXES, Fleet, Member
from refloat.agent.node import NodeSettings
from refloat.agent.simulated import ANNOTATION, SimulatedRuntime
from refloat.api.core import Pod
from refloat.client import kinds
from refloat.client.local import LocalClient
from refloat.controllers.scheduler.scheduler import Scheduler
from refloat.controllers.scheduler.settings import SchedulerSettings
from refloat.runtime.controller import Instruments
from refloat.runtime.informer import Change, Informer
from refloat.runtime.queue_metrics import QueueMetrics
from refloat.runtime.reconcile_metrics import ReconcileMetrics
from refloat.sim import api_server
from refloat.sim.event_log import EventLog
from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from tests import builders

NODES = 20
PODS = 200

# Fewer places than pods, so that some have to wait.
PODS_PER_NODE = "4"

# One in so many pods fails, and one in so many is deleted while running.
FAILS, DELETED = 5, 20


async def program(sim: Sim) -> Trace:
    async with api_server.serve(sim) as api:
        client = LocalClient(api, field_manager="simulation")
        registry = CollectorRegistry()
        instruments = Instruments(ReconcileMetrics(registry), QueueMetrics(registry))
        pods = Informer(client, kinds.PODS, clock=sim.clock, rand=sim.rand, indexes=POD_INDEXES)
        nodes = Informer(client, kinds.NODES, clock=sim.clock, rand=sim.rand)
        budgets = Informer(client, kinds.POD_DISRUPTION_BUDGETS, clock=sim.clock, rand=sim.rand)
        capacity = {"cpu": "8", "memory": "32Gi", "pods": PODS_PER_NODE}
        members = [
            Member(NodeSettings(f"node-{n}", capacity), SimulatedRuntime(sim.clock))
            for n in range(NODES)
        ]
        fleet = Fleet(
            client, members, pods, clock=sim.clock, rand=sim.rand, instruments=instruments
        )
        scheduler = Scheduler(
            client,
            pods,
            nodes,
            budgets,
            clock=sim.clock,
            rand=sim.rand,
            sink=EventLog(),
            instruments=instruments,
            settings=SchedulerSettings(overlook_not_ready=True),
        ).controller
        pods.add_handler(partial(_note, sim))
        informers: list[Informer[Any]] = [nodes, budgets, pods]
        for informer in informers:
            informer.start()
            await informer.wait_synced()
        fleet.start()
        scheduler.start()
        try:
            await _live(sim, client, pods)
        finally:
            await scheduler.stop()
            await fleet.stop()
            for informer in informers:
                await informer.close()
        sim.trace.add(f"left: {sum(len(each.runtime.pods()) for each in members)}")
    return sim.trace


async def _live(sim: Sim, client: LocalClient, pods: Informer[Pod]) -> None:
    for number in range(PODS):
        await client.create(kinds.PODS, _pod(sim, number), namespace="default")
    await sim.clock.sleep(10)
    for number in range(0, PODS, DELETED):
        await client.delete(kinds.PODS, f"pod-{number}", namespace="default")
    while any(not each.is_terminal for each in pods.cache):
        await sim.clock.sleep(1)
    await sim.clock.sleep(1)


def _pod(sim: Sim, number: int) -> dict[str, Any]:
    # Those to be deleted run until they are.
    seconds = None if number % DELETED == 0 else 5 + sim.rand.below(20)
    script = {"main": {"seconds": seconds, "exitCode": int(number % FAILS == 1)}}
    return builders.pod(
        f"pod-{number}",
        spec={"restartPolicy": "Never"},
        annotations={ANNOTATION: json.dumps(script)},
    )


def _note(sim: Sim, change: Change[Pod]) -> None:
    pod = change.current
    state = "gone" if change.new is None else pod.status.phase
    sim.trace.add(f"{pod.metadata.name} {state} on {pod.spec.node_name or '-'}")


if __name__ == "__main__":
    print(run(program, seed=int(sys.argv[1])).digest())  # noqa: T201
