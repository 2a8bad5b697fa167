# SPDX-License-Identifier: Apache-2.0
"""What a Job does under given gates, observed, and as docs/gates.md says it.

`python -m tests.simulation.gate_table` prints the table as it is observed.
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
from tests.simulation import job_world
from tests.simulation.job_world import FOREVER, NAMESPACE, OK, Run, World

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

# A pod that is told to stop takes this long.
STOP_SECONDS = 100.0

AT_ONCE, AT_THE_END, NEVER = "when deleted", "when ended", "never"
SWITCH = {True: "on", False: "off"}


class Row(NamedTuple):
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


def documented() -> list[Row]:
    lines = DOCUMENT.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(HEADER))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in rows]


def script(pod: Pod, number: int) -> Run:
    if pod.metadata.name.startswith("exits"):
        return OK if number else Run(seconds=60, exit_code=42)
    return Run(seconds=FOREVER.seconds, stop_seconds=STOP_SECONDS)


async def observe(sim: Sim, on: tuple[bool, bool, bool], job: str) -> Row:
    """A Job that was made with all gates on, and what becomes of it under these."""
    async with job_world.world(sim, script) as world:
        await world.submit("evicted", **JOBS[job])
        await world.submit("exits", **JOBS[job])
        await world.sleep(5)
        await world.switch(of(*on))
        [evicted] = _made(world, "evicted")
        await world.client.evict(evicted.metadata.name, namespace=NAMESPACE)
        await world.sleep(40)
        marked = await _is_marked(world, evicted)
        early = (await world.job("evicted")).status, len(_made(world, "evicted"))
        await world.sleep(STOP_SECONDS)
        late = (await world.job("evicted")).status, len(_made(world, "evicted"))
        failure, conditions, replacement = (SWITCH[each] for each in on)
        return Row(
            failure,
            conditions,
            replacement,
            job,
            marked="yes" if marked else "no",
            counted=_when(early[0].failed == 1, late[0].failed == 1),
            replaced=_when(early[1] == 2, late[1] == 2),
            terminating={1: "shown", None: "absent"}[early[0].terminating],
            exit_42=await _end_of(world, "exits"),
        )


def _made(world: World, job: str) -> list[Pod]:
    """The pods that a Job ever had."""
    return [pod for pod in world.kubelet.created if pod.metadata.name.startswith(job)]


async def _is_marked(world: World, wanted: Pod) -> bool:
    for pod in await world.pods():
        if pod.metadata.uid == wanted.metadata.uid:
            return structs.is_true(pod.status.conditions, "DisruptionTarget")
    # Its finalizer is gone, and the kubelet is not done with it: it must be there.
    raise AssertionError(f"{wanted.metadata.name} is gone")


def _when(early: bool, late: bool) -> str:
    if early:
        return AT_ONCE
    return AT_THE_END if late else NEVER


async def _end_of(world: World, job: str) -> str:
    ended = await world.finished(job)
    if ended.status.succeeded:
        return "is retried"
    [reason] = {each.reason for each in ended.status.conditions or ()}
    assert reason == "PodFailurePolicy"
    return "fails the Job"


def main() -> None:
    for *on, job in cases():
        failure, conditions, replacement = on

        async def program(
            sim: Sim,
            on: tuple[bool, bool, bool] = (failure, conditions, replacement),
            job: str = job,
        ) -> Row:
            return await observe(sim, on, job)

        sys.stdout.write(f"{run(program, seed=0)}\n")


if __name__ == "__main__":
    main()
