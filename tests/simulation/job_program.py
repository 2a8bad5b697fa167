# SPDX-License-Identifier: Apache-2.0
"""Some Jobs in virtual time, with a trace of all steps.

As a program of its own, `python -m tests.simulation.job_program SEED`
prints the trace's digest.
"""

import sys

from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from tests.simulation import job_cluster
from tests.simulation.job_cluster import FAILS, OK, JobCluster


async def program(sim: Sim) -> Trace:
    """Plain and indexed Jobs, failures, deletions and a restart."""
    async with JobCluster(sim, job_cluster.in_turn(OK, FAILS, OK)) as cluster:
        await cluster.submit("plain", completions=4, parallelism=3)
        await cluster.submit("indexed", completions=4, parallelism=3, completionMode="Indexed")
        await cluster.sleep(sim.rand.random() * 10)
        for pod in await cluster.pods():
            if sim.rand.below(3) == 0:
                await cluster.delete(pod.metadata.name)
        await cluster.restart()
        for name in ("plain", "indexed"):
            sim.trace.add(str((await cluster.finished(name)).status))
        for pod, at in zip(cluster.kubelet.created, cluster.kubelet.created_at, strict=True):
            sim.trace.add(f"{pod.metadata.name} at {at}")
        for event in cluster.event_log.events:
            sim.trace.add(str(event))
    return sim.trace


if __name__ == "__main__":
    print(run(program, seed=int(sys.argv[1])).digest())  # noqa: T201
