# SPDX-License-Identifier: Apache-2.0
"""A kubelet returns just after Refloat marked its pod Failed, and overwrites the phase.

A real kubelet does so (docs/zombie-recovery.md): the pod is Running for a while, and
then shows how the container really ended. The Job counts each pod once all the same.
"""

import pytest

from refloat.api import structs
from refloat.api.core import Pod
from refloat.base.gates import FAILURE_RECOVERY_POLICY, Gates
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.policy.recovery import zombie
from refloat.sim.cluster import NAMESPACE, Cluster
from refloat.sim.run import Sim, run

ON = Gates({FAILURE_RECOVERY_POLICY: True})

STEP_SECONDS = 0.005

# From Refloat's write to that of the kubelet: before and after the Job counted the failure.
DELAYS = (0.0, 0.005, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.9, 1.0, 1.1, 3.0)


async def submit(cluster: Cluster, mode: str) -> Pod:
    await cluster.submit(
        completions=1,
        completionMode=mode,
        podReplacementPolicy="Failed",
        annotations={zombie.ANNOTATIONS[0]: "true"},
        script={"main": {"seconds": 60}},
    )
    await cluster.until(20)
    (pod,) = cluster.pods()
    cluster.fleet.fail(cluster.node_of(pod), "freeze")
    return pod


async def newest(cluster: Cluster, name: str) -> Pod:
    pod = await cluster.find_pod(name)
    assert pod is not None
    return pod


async def write_phase(cluster: Cluster, name: str, phase: str) -> None:
    await cluster.client.patch(
        kinds.PODS, name, {"status": {"phase": phase}}, namespace=NAMESPACE, subresource="status"
    )


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("end", ["Failed", "Succeeded"])
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_each_pod_is_counted_once(mode: str, end: str, delay: float) -> None:
    async def program(sim: Sim) -> None:
        async with Cluster(sim, gates=ON) as cluster:
            pod = await submit(cluster, mode)
            name = pod.metadata.name
            await cluster.until(400)
            while (await newest(cluster, name)).status.phase != "Failed":
                await cluster.sleep(STEP_SECONDS)
            await cluster.sleep(delay)
            await write_phase(cluster, name, "Running")
            await cluster.sleep(0.7)
            await write_phase(cluster, name, end)
            now = DeleteOptions(grace_seconds=0)
            await cluster.client.delete(kinds.PODS, name, namespace=NAMESPACE, options=now)
            await cluster.until(1200)
            job = cluster.job()
            assert structs.is_true(job.status.conditions, "Complete")
            assert job.status.succeeded == 1
            assert job.status.failed == len(cluster.pods()) - 1
            assert await cluster.find_pod(name) is None

    run(program, seed=int(delay * 1000))
