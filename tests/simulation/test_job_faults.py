# SPDX-License-Identifier: Apache-2.0
"""Caches that are behind, and an API that refuses: no pod twice, none uncounted."""

from refloat.client import errors
from refloat.client.requests import Request
from refloat.policy import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_world import FAILS, FOREVER, OK, Run
from tests.virtual import virtual


def creates_a_pod(request: Request) -> bool:
    return request.method == "POST" and "/pods" in request.path


@virtual(seeds=40)
async def test_caches_that_are_behind_make_no_pod_twice(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FAILS, OK)) as world:
        world.lag = 4.0
        await world.submit(completions=4, parallelism=2)
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (4, 1)
        assert len(world.kubelet.created) == 5


@virtual(seeds=40)
async def test_caches_that_are_behind_make_no_index_twice(sim: Sim) -> None:
    script = job_world.by_index(i0=Run(seconds=1, exit_code=1))
    async with job_world.world(sim, script) as world:
        world.lag = 4.0
        await world.submit(
            completions=3, parallelism=3, completionMode="Indexed", backoffLimitPerIndex=1
        )
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (2, 2)
        assert (job.status.completed_indexes, job.status.failed_indexes) == ("1,2", "0")
        assert len(world.kubelet.created) == 4


@virtual(seeds=20)
async def test_a_job_gets_through_a_third_of_its_writes_conflicting(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FAILS, OK)) as world:

        def refuse(_: Request, number: int) -> errors.ClientError | None:
            return errors.Conflict("somebody was faster") if number % 3 == 0 else None

        world.process.client.refuses = refuse
        await world.submit(completions=4, parallelism=2)
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (4, 1)
        assert len(world.kubelet.created) == 5
        await world.sleep(5)
        assert not any(pod_state.is_tracked(pod) for pod in await world.pods())


@virtual(seeds=5)
async def test_one_refused_create_is_enough_to_stop(sim: Sim) -> None:
    """Behaviour A1.7, A8.10, A8.11."""
    async with job_world.world(sim) as world:
        refused: list[float] = []

        def refuse(request: Request, _: int) -> errors.ClientError | None:
            if not creates_a_pod(request) or world.seconds > 20:
                return None
            refused.append(world.seconds)
            return errors.Forbidden("exceeded quota: q")

        world.process.client.refuses = refuse
        await world.submit(completions=50, parallelism=50)
        await world.sleep(2)
        status = (await world.job()).status
        assert (status.active, status.start_time) == (0, "2026-01-01T00:00:00Z")
        job = await world.finished()
        # One request each time, at the pace of the queue: 1, 2, 4, 8 s.
        assert refused == [0, 1, 3, 7, 15]
        assert job.status.succeeded == 50
        assert world.told.events[0] == (
            "Warning",
            "FailedCreate",
            "Error creating: exceeded quota: q",
        )


@virtual(seeds=5)
async def test_a_namespace_that_goes_is_no_error(sim: Sim) -> None:
    """Behaviour A8.11: nothing is told, and nothing is tried again."""
    async with job_world.world(sim) as world:
        cause = (("NamespaceTerminating", "metadata.namespace", "being terminated"),)
        tries: list[float] = []

        def refuse(request: Request, _: int) -> errors.ClientError | None:
            if not creates_a_pod(request):
                return None
            tries.append(world.seconds)
            return errors.Forbidden("no", code=403, causes=cause)

        world.process.client.refuses = refuse
        await world.submit()
        await world.sleep(100)
        assert len(tries) == 1
        assert world.told.events == []


@virtual(seeds=10)
async def test_a_decision_waits_until_all_pods_could_be_deleted(sim: Sim) -> None:
    """Behaviour A4.12: no condition before that."""
    async with job_world.world(sim, job_world.in_turn(FAILS, FOREVER)) as world:

        def refuse(request: Request, _: int) -> errors.ClientError | None:
            deletes = request.method == "DELETE" and world.seconds < 30
            return errors.Unavailable("not now") if deletes else None

        world.process.client.refuses = refuse
        await world.submit(completions=2, parallelism=2, backoffLimit=0)
        await world.sleep(25)
        assert (await world.job()).status.conditions is None
        assert "FailedDelete" in world.told.reasons()
        job = await world.finished()
        assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
        assert job.status.failed == 2


@virtual(seeds=40)
async def test_a_success_that_the_cache_has_not_seen_survives_a_suspension(sim: Sim) -> None:
    """Kubernetes takes the finalizer from such a pod, and its work is done again."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=8))) as world:
        await world.submit(completions=3, parallelism=3)
        await world.sleep(6)
        world.lag = 3.0
        await world.sleep(2 + sim.rand.random())
        await world.change(suspend=True)
        await world.sleep(30)
        world.lag = 0.0
        await world.change(suspend=False)
        job = await world.finished()
        ended = [pod for pod in world.kubelet.created if pod.metadata.uid in world.kubelet.done]
        assert job.status.succeeded == len(ended) == 3
