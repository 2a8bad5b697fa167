# SPDX-License-Identifier: Apache-2.0
"""Jobs under all faults at once, for as long as one likes.

`python -m tests.simulation.job_soak FIRST LAST` plays the seeds from FIRST to
LAST and stops at the first that breaks a rule of `job_history`; the seed is
all that is needed to run the case again.
"""

import asyncio
import contextlib
import sys
from typing import Any

from refloat.api.meta import Object
from refloat.base.rand import Rand
from refloat.base.tasks import Tasks
from refloat.client import errors
from refloat.client.requests import Request
from refloat.policy.job import pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_cluster
from tests.simulation.job_cluster import JobCluster, Run
from tests.simulation.job_history import Checker, History
from tests.simulation.job_scenarios import JobScenario, indexed, policy, rule

SECONDS = 90.0
"""How long there are faults; then all that is left must come to its end."""

IGNORED_CODE = 3

MODES: tuple[Object, ...] = (
    {"completions": 4, "parallelism": 2},
    {"parallelism": 2},
    indexed(4, parallelism=2),
    indexed(4, backoffLimitPerIndex=1),
    indexed(4, successPolicy={"rules": [{"succeededCount": 3}]}),
)

EXTRAS: tuple[Object, ...] = (
    {"podReplacementPolicy": "Failed"},
    {"podReplacementPolicy": "TerminatingOrFailed"},
    policy(rule("Ignore", IGNORED_CODE)),
    policy(rule("FailJob", 42), rule("Ignore", IGNORED_CODE)),
)


class Soak:
    def __init__(self, cluster: JobCluster, rand: Rand) -> None:
        self._cluster = cluster
        self._rand = rand
        self._restarting = asyncio.Lock()

    async def play(self) -> None:
        """Users act every few seconds, while the controller hardly gets through."""
        tasks, cluster = Tasks(), self._cluster
        cluster.watch_faults.lag, cluster.watch_faults.gaps = 2 * self._rand.random(), 0.1
        self._plague()
        tasks.spawn(self._kill(), name="who kills")
        until = cluster.seconds + SECONDS
        while cluster.seconds < until:
            await cluster.sleep(8 * self._rand.random())
            act = self._rand.choice((self._delete, self._suspend, self._resume, self._scale))
            with contextlib.suppress(errors.ClientError):  # gone, or not allowed now
                await act()
        await tasks.close()
        cluster.watch_faults.lag = cluster.watch_faults.gaps = 0.0
        await self._restart()
        await self._cluster.change(suspend=False, parallelism=4)
        await self._cluster.finished()
        await self._cluster.sleep(60)
        assert not any(map(pod_state.is_tracked, await self._cluster.pods()))

    def _plague(self) -> None:
        client = self._cluster.faulty

        def refuse(_: Request, __: int) -> errors.ClientError | None:
            return errors.Conflict("somebody was faster") if self._rand.below(5) == 0 else None

        client.refuses = refuse
        client.loses = frozenset(number for number in range(1, 500) if self._rand.below(5) == 0)
        client.dies_at = client.writes + 1 + self._rand.below(25)
        client.dies_after = self._rand.below(2) == 0

    async def _kill(self) -> None:
        while True:
            await self._cluster.faulty.died.wait()
            await self._cluster.sleep(10 * self._rand.random())
            await self._restart()
            self._plague()

    async def _restart(self) -> None:
        async with self._restarting:
            await self._cluster.restart()

    async def _delete(self) -> None:
        pods = await self._cluster.pods()
        if pods:
            await self._cluster.delete(self._rand.choice(pods).metadata.name)

    async def _suspend(self) -> None:
        await self._cluster.change(suspend=True)

    async def _resume(self) -> None:
        await self._cluster.change(suspend=False)

    async def _scale(self) -> None:
        await self._cluster.change(parallelism=self._rand.below(4))


def script(rand: Rand) -> job_cluster.Script:
    codes = (0, 0, 0, 1, IGNORED_CODE, 42)
    return lambda _, __: Run(
        seconds=1 + 20 * rand.random(),
        exit_code=rand.choice(codes),
        stop_seconds=5 * rand.random(),
        stop_code=rand.choice((0, 143)),
    )


async def program(sim: Sim) -> None:
    rand = sim.rand
    spec: dict[str, Any] = {**rand.choice(MODES), **rand.choice(EXTRAS), "backoffLimit": 50}
    scenario = JobScenario(spec)
    async with JobCluster(sim, script(rand)) as cluster:
        history = History(cluster.client)
        history.start()
        try:
            await cluster.submit(**spec)
            await Soak(cluster, rand).play()
        finally:
            await history.close()
        Checker(scenario.ignores).walk(history)


def main(first: str, last: str) -> None:
    for seed in range(int(first), int(last) + 1):
        try:
            run(program, seed=seed)
        except BaseException as error:
            error.add_note(f"again: python -m tests.simulation.job_soak {seed} {seed}")
            raise
        sys.stdout.write(f"\r{seed}")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
