# SPDX-License-Identifier: Apache-2.0
"""A pod that is deleted before it ran must not hang its Job, whatever gates are on.

Some Jobs replace a pod only when it has ended. A pod that never ran does not
end alone: its node ends the pod, or the Job waits for ever.
"""

import itertools
from typing import Any

import pytest

from refloat.base import gates
from refloat.base.gates import Gates
from refloat.client import kinds
from refloat.policy.job import job_conditions
from refloat.sim.cluster import Cluster
from refloat.sim.run import Sim, run

SWITCHED = (
    gates.JOB_POD_FAILURE_POLICY,
    gates.JOB_POD_REPLACEMENT_POLICY,
    gates.POD_DISRUPTION_CONDITIONS,
    gates.RETRIABLE_AND_NON_RETRIABLE_FAILURES,
)
ALL_ON = Gates(dict.fromkeys(SWITCHED, True))

RULE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
TERMINATE = {"action": "Terminate", "containerExitCodeIn": "42"}

JOBS: dict[str, dict[str, Any]] = {
    "neither": {},
    "podFailurePolicy": {"podFailurePolicy": {"rules": [RULE]}},
    "podReplacementPolicy": {"podReplacementPolicy": "Failed"},
    "backoffPolicy": {"backoffPolicy": {"rules": [TERMINATE]}},
}

UNSTARTED_THEN_WELL = {"main": [{"startSeconds": 100_000}, {"seconds": 1}]}


def combinations() -> list[dict[str, bool]]:
    values = itertools.product([True, False], repeat=len(SWITCHED))
    return [dict(zip(SWITCHED, on, strict=True)) for on in values]


def told(combination: dict[str, bool]) -> str:
    return ", ".join(name for name, on in combination.items() if on) or "none"


@pytest.mark.parametrize("combination", combinations(), ids=told)
@pytest.mark.parametrize("job", JOBS)
def test_a_pending_pod_that_is_deleted_is_replaced(job: str, combination: dict[str, bool]) -> None:
    """The Job was created while all gates were on, and has all fields."""

    async def program(sim: Sim) -> None:
        simulated = Cluster(sim, gates=Gates(combination), server_gates=ALL_ON)
        async with simulated as cluster:
            await cluster.submit(script=UNSTARTED_THEN_WELL, **JOBS[job])
            await cluster.until(10)
            [pod] = cluster.pods()
            await cluster.client.delete(kinds.PODS, pod.metadata.name, namespace="default")
            await cluster.until(120)
            assert job_conditions.is_finished(cluster.job().status.conditions)
            assert cluster.job().status.succeeded == 1
            assert len(cluster.pods()) == 2

    run(program, seed=1)
