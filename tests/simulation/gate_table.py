# SPDX-License-Identifier: Apache-2.0
"""What a Job does under given gates, observed, and documented in docs/gates.md.

`python -m tests.simulation.gate_table` prints the table as observed.
"""

import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

from refloat.api import structs
from refloat.api.core import Pod
from refloat.base import gates
from refloat.base.gates import Gates
from refloat.sim.run import Sim, run
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FOREVER, OK, JobCluster, Run

DOCUMENT = Path(__file__).parents[2] / "docs" / "gates.md"

FAILURE = gates.JOB_POD_FAILURE_POLICY
CONDITIONS = gates.POD_DISRUPTION_CONDITIONS
REPLACEMENT = gates.JOB_POD_REPLACEMENT_POLICY

POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
}

HEADER = f"| `{FAILURE}` | `{CONDITIONS}` | `{REPLACEMENT}` |"

JOBS: dict[str, dict[str, Any]] = {
    "neither": {},
    "`podFailurePolicy`": {"podFailurePolicy": POLICY},
    "`podReplacementPolicy: Failed`": {"podReplacementPolicy": "Failed"},
}

# A pod that is stopped takes this long.
STOP_SECONDS = 100.0

AT_ONCE, AT_THE_END, NEVER = "when deleted", "when ended", "never"
SWITCH = {True: "on", False: "off"}


class GateRow(NamedTuple):
    failure: str
    conditions: str
    replacement: str
    job: str
    marked: str
    counted: str
    replaced: str
    terminating: str
    exit_42: str

    @property
    def on(self) -> tuple[bool, bool, bool]:
        """Which of the three gates are."""
        return self.failure == "on", self.conditions == "on", self.replacement == "on"

    def __str__(self) -> str:
        return f"| {' | '.join(self)} |"


def of(failure: bool, conditions: bool, replacement: bool) -> Gates:
    return Gates({FAILURE: failure, CONDITIONS: conditions, REPLACEMENT: replacement})


def cases() -> list[tuple[bool, bool, bool, str]]:
    """All eight combinations, with each kind of Job."""
    each = [True, False]
    return list(itertools.product(each, each, each, JOBS))


def documented() -> list[GateRow]:
    lines = DOCUMENT.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(HEADER))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [GateRow(*(cell.strip() for cell in line.strip("|").split("|"))) for line in rows]


def script(pod: Pod, number: int) -> Run:
    if pod.metadata.name.startswith("exits"):
        return OK if number else Run(seconds=60, exit_code=42)
    return Run(seconds=FOREVER.seconds, stop_seconds=STOP_SECONDS)


async def observe(sim: Sim, on: tuple[bool, bool, bool], job: str) -> GateRow:
    """A Job that was created with all gates on, and its end under these gates."""
    async with JobCluster(sim, script) as cluster:
        await cluster.submit("evicted", **JOBS[job])
        await cluster.submit("exits", **JOBS[job])
        await cluster.sleep(5)
        await cluster.switch(of(*on))
        [evicted] = _made(cluster, "evicted")
        await cluster.client.evict(evicted.metadata.name, namespace=NAMESPACE)
        await cluster.sleep(40)
        marked = await _is_marked(cluster, evicted)
        early = (await cluster.job("evicted")).status, len(_made(cluster, "evicted"))
        await cluster.sleep(STOP_SECONDS)
        late = (await cluster.job("evicted")).status, len(_made(cluster, "evicted"))
        failure, conditions, replacement = (SWITCH[each] for each in on)
        return GateRow(
            failure,
            conditions,
            replacement,
            job,
            marked="yes" if marked else "no",
            counted=_when(early[0].failed == 1, late[0].failed == 1),
            replaced=_when(early[1] == 2, late[1] == 2),
            terminating={1: "shown", None: "absent"}[early[0].terminating],
            exit_42=await _end_of(cluster, "exits"),
        )


def _made(cluster: JobCluster, job: str) -> list[Pod]:
    """The pods that a Job ever had."""
    return [pod for pod in cluster.kubelet.created if pod.metadata.name.startswith(job)]


async def _is_marked(cluster: JobCluster, target: Pod) -> bool:
    for pod in await cluster.pods():
        if pod.metadata.uid == target.metadata.uid:
            return structs.is_true(pod.status.conditions, "DisruptionTarget")
    # The finalizer is gone, and the kubelet still needs the pod: the pod must be there.
    raise AssertionError(f"{target.metadata.name} is gone")


def _when(early: bool, late: bool) -> str:
    if early:
        return AT_ONCE
    return AT_THE_END if late else NEVER


async def _end_of(cluster: JobCluster, job: str) -> str:
    finished_job = await cluster.finished(job)
    if finished_job.status.succeeded:
        return "is retried"
    [reason] = {each.reason for each in finished_job.status.conditions or ()}
    assert reason == "PodFailurePolicy"
    return "fails the Job"


def main() -> None:
    for *on, job in cases():
        failure, conditions, replacement = on

        async def program(
            sim: Sim,
            on: tuple[bool, bool, bool] = (failure, conditions, replacement),
            job: str = job,
        ) -> GateRow:
            return await observe(sim, on, job)

        sys.stdout.write(f"{run(program, seed=0)}\n")


if __name__ == "__main__":
    main()
