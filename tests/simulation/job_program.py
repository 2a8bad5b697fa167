# SPDX-License-Identifier: Apache-2.0
"""Some Jobs in virtual time, all of it traced.

As a program of its own, `python -m tests.simulation.job_program SEED`, it
prints the trace's digest.
"""

import sys

from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from tests.simulation import job_world
from tests.simulation.job_world import FAILS, OK


async def program(sim: Sim) -> Trace:
    """Plain and indexed Jobs, failures, deletions and a restart."""
    async with job_world.world(sim, job_world.in_turn(OK, FAILS, OK)) as world:
        await world.submit("plain", completions=4, parallelism=3)
        await world.submit("indexed", completions=4, parallelism=3, completionMode="Indexed")
        await world.sleep(sim.rand.random() * 10)
        for pod in await world.pods():
            if sim.rand.below(3) == 0:
                await world.delete_pod(pod.metadata.name)
        await world.restart()
        for name in ("plain", "indexed"):
            sim.trace.add(str((await world.finished(name)).status))
        for pod, at in zip(world.kubelet.created, world.kubelet.created_at, strict=True):
            sim.trace.add(f"{pod.metadata.name} at {at}")
        for event in world.told.events:
            sim.trace.add(str(event))
    return sim.trace


if __name__ == "__main__":
    print(run(program, seed=int(sys.argv[1])).digest())  # noqa: T201
