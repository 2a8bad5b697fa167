# SPDX-License-Identifier: Apache-2.0
"""Caches that are behind, and an API that refuses: no pod twice, none uncounted."""

import functools
import itertools
from collections.abc import Callable

import pytest

from refloat.client import errors, kinds
from refloat.client.requests import Request
from refloat.controllers.job import attempts
from refloat.policy import pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_world
from tests.simulation.job_scenarios import SCENARIOS, Ending, checked, relabel_a_pod
from tests.simulation.job_world import FAILS, FOREVER, OK, Run, World
from tests.unit.controllers.job.test_attempts import STRANGE
from tests.virtual import virtual


def creates_a_pod(request: Request) -> bool:
    return request.method == "POST" and "/pods" in request.path


def disturbed(name: str, disturb: Callable[[World], None], *, seed: int) -> Ending:
    async def program(sim: Sim) -> Ending:
        scenario = SCENARIOS[name]
        async with job_world.world(sim, scenario.script) as world:
            disturb(world)
            return await checked(world, scenario)

    return run(program, seed=seed)


@functools.cache
def undisturbed(name: str) -> Ending:
    return disturbed(name, lambda _: None, seed=0)


def lagging(world: World) -> None:
    world.lag = 1.5


def with_gaps(world: World) -> None:
    world.gaps = 0.3


def conflicting(world: World) -> None:
    """Each write conflicts, and is let through when it is tried again."""
    tried: set[tuple[str, str]] = set()

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        write = (request.method, request.path)
        if write in tried:
            tried.discard(write)
            return None
        tried.add(write)
        return errors.Conflict("somebody was faster")

    world.process.client.refuses = refuse


def overloaded(world: World) -> None:
    """Every fifth write is not done, and the answers say so in turn."""
    refusals = itertools.cycle(
        [
            errors.TooManyRequests("try again later", code=429, retry_after=1),
            errors.Unavailable("internal error", code=500),
            errors.Timeout("no answer in time"),
        ]
    )
    world.process.client.refuses = lambda _, number: None if number % 5 else next(refusals)


def hardly_answering(world: World) -> None:
    """Every second answer is lost."""
    world.process.client.loses = range(1, 10_000, 2)


FAULTS: dict[str, Callable[[World], None]] = {
    "caches that are behind": lagging,
    "watches that end in a gap": with_gaps,
    "a conflict on every write": conflicting,
    "a server that has too much to do": overloaded,
    "every second answer lost": hardly_answering,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_no_fault_changes_how_a_job_ends(name: str, fault: str) -> None:
    assert disturbed(name, FAULTS[fault], seed=0) == undisturbed(name)


@virtual(seeds=15)
async def test_caches_that_are_behind_make_no_pod_twice(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FAILS, OK)) as world:
        world.lag = 4.0
        await world.submit(completions=4, parallelism=2)
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (4, 1)
        assert len(world.kubelet.created) == 5


@virtual(seeds=15)
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
async def test_a_job_does_not_end_before_all_pods_could_be_deleted(sim: Sim) -> None:
    """The decision is in the status before the first deletion, the end comes after the last."""
    async with job_world.world(sim, job_world.in_turn(FAILS, FOREVER)) as world:

        def refuse(request: Request, _: int) -> errors.ClientError | None:
            deletes = request.method == "DELETE" and world.seconds < 30
            return errors.Unavailable("not now") if deletes else None

        world.process.client.refuses = refuse
        await world.submit(completions=2, parallelism=2, backoffLimit=0)
        await world.sleep(25)
        status = (await world.job()).status
        assert [each.type for each in status.conditions or ()] == ["FailureTarget"]
        assert (status.active, status.failed) == (1, 1)
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


# -- a sync that hangs is cancelled, and tried again with the same memory -----------


def delaying(world: World, *delays: tuple[str, bytes, float]) -> None:
    """The next write of this method with this in its body waits for so long, in this order."""
    waiting = list(delays)

    async def before(request: Request) -> None:
        if not waiting:
            return
        method, part, seconds = waiting[0]
        if request.method == method and part in (request.body or b""):
            waiting.pop(0)
            await world.sleep(seconds)

    world.process.client.before = before


HANGS = 400.0


@virtual(seeds=3)
async def test_a_removal_that_is_cancelled_counts_nobody_twice(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FAILS, FOREVER)) as world:
        delaying(world, ("PATCH", b"deleteFromPrimitiveList", HANGS))
        await world.submit(backoffLimit=6)
        await world.sleep(900)
        assert (await world.job()).status.failed == 1
        assert [pod_state.is_tracked(pod) for pod in await world.pods()].count(True) == 1
        await world.restart()
        await world.sleep(10)
        assert (await world.job()).status.failed == 1


@virtual(seeds=3)
async def test_removals_that_are_cancelled_in_part_count_all_once(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FAILS, FAILS, FAILS, FOREVER)) as world:
        delaying(world, ("PATCH", b"deleteFromPrimitiveList", HANGS))
        await world.submit(completions=3, parallelism=3, backoffLimit=6)
        for seconds in (20, 900):
            await world.sleep(seconds)
        await world.restart()
        await world.sleep(10)
        assert (await world.job()).status.failed == 3


# Before anything is expected: so the bound on a sync is over before what it expects expires.
SLOW_CLAIM = ("PATCH", b"ownerReferences", 10.0)


@virtual(seeds=3)
async def test_creations_that_are_cancelled_are_tried_again(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER, OK)) as world:
        await world.submit()
        await world.sleep(1)
        delaying(world, SLOW_CLAIM, ("POST", b"", HANGS))
        await relabel_a_pod(world)
        await world.finished(within=1000)
        assert len(world.kubelet.created) == 2


@virtual(seeds=3)
async def test_deletions_that_are_cancelled_are_tried_again(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit(completions=2, parallelism=2)
        await world.sleep(1)
        delaying(world, SLOW_CLAIM, ("DELETE", b"", HANGS))
        await relabel_a_pod(world)
        await world.change(suspend=True)
        await world.sleep(1000)
        stray = world.kubelet.created[0].metadata.uid
        assert [pod.metadata.uid for pod in await world.pods()] == [stray]
        status = (await world.job()).status
        assert (status.active, status.failed) == (0, 0)


# -- what somebody else wrote -------------------------------------------------------


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
@virtual(seeds=2)
async def test_no_record_of_failures_keeps_a_job_from_its_end(sim: Sim, text: str) -> None:
    async with job_world.world(sim, job_world.in_turn(FAILS, OK)) as world:
        await world.submit(suspend=True)
        patch = {"metadata": {"annotations": {attempts.ANNOTATION: text}}}
        await world.client.patch(kinds.JOBS, "job", patch, namespace=job_world.NAMESPACE)
        await world.change(suspend=False)
        job = await world.finished(within=60)
        assert (job.status.succeeded, job.status.failed) == (1, 1)


@virtual(seeds=2)
async def test_an_index_that_no_number_can_hold_is_none(sim: Sim) -> None:
    """Behaviour A3.6: such a pod is one too many, and another runs for its index."""
    async with job_world.world(sim, job_world.in_turn(FOREVER, OK)) as world:
        await world.submit(completionMode="Indexed", completions=1)
        await world.sleep(2)
        [pod] = await world.pods()
        patch = {"metadata": {"annotations": {pod_state.COMPLETION_INDEX: "9" * 5000}}}
        name = pod.metadata.name
        await world.client.patch(kinds.PODS, name, patch, namespace=job_world.NAMESPACE)
        job = await world.finished(within=60)
        assert (job.status.completed_indexes, job.status.failed) == ("0", 0)


@virtual(seeds=2)
async def test_a_pod_that_ended_in_the_year_0_is_counted(sim: Sim) -> None:
    """Go knows such a year, and Python does not."""
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit(backoffLimit=0)
        await world.sleep(2)
        [pod] = await world.pods()
        ended = {"terminated": {"exitCode": 1, "finishedAt": "0000-01-01T00:00:00Z"}}
        container = {"name": "main", "image": "i", "imageID": "", "state": ended}
        await world.client.patch(
            kinds.PODS,
            pod.metadata.name,
            {"status": {"phase": "Failed", "containerStatuses": [container]}},
            patch_type="strategic",
            namespace=job_world.NAMESPACE,
            subresource="status",
        )
        job = await world.finished(within=60)
        assert job.status.failed == 1


FULL = {"metadata": {"annotations": {"note": "x" * (256 * 1024 - len("note"))}}}


@virtual(seeds=3)
async def test_a_job_whose_annotations_leave_no_room_ends_all_the_same(sim: Sim) -> None:
    """It has 256 KB of its own, and failures cannot be shown there."""
    async with job_world.world(sim, job_world.in_turn(FAILS, FOREVER)) as world:
        await world.submit(completions=2, parallelism=2, backoffLimit=0)
        await world.client.patch(kinds.JOBS, "job", FULL, namespace=job_world.NAMESPACE)
        job = await world.finished(within=60)
        assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
        assert job.status.failed == 2
        assert list(job.metadata.annotations or ()) == ["note"]
        assert "PodFailureJudged" in world.told.reasons()


@virtual(seeds=3)
async def test_a_pod_whose_annotations_leave_no_room_is_suspended_all_the_same(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit()
        await world.sleep(3)
        [pod] = await world.pods()
        name = pod.metadata.name
        await world.client.patch(kinds.PODS, name, FULL, namespace=job_world.NAMESPACE)
        await world.change(suspend=True)
        await world.sleep(10)
        assert await world.pods() == []
        assert (await world.job()).status.failed == 0
