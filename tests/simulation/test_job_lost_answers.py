# SPDX-License-Identifier: Apache-2.0
"""Creates of pods whose answers are lost, held or late: each pod counts and is reported once."""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.policy import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_scenarios import indexed
from tests.simulation.job_world import FAILS, FOREVER, NAMESPACE, OK, Run, Script, World
from tests.simulation.test_job_faults import creates_a_pod
from tests.virtual import virtual

Call: TypeAlias = Callable[[], Awaitable[bytes]]
Fault: TypeAlias = Callable[[World, Call], Awaitable[bytes]]

# A client waits 30 s for an answer.
PATIENCE = 30.0


async def lost(_: World, call: Call) -> bytes:
    """The write happens, and the answer says that the server failed; a refusal is lost, too."""
    with contextlib.suppress(errors.ClientError):
        await call()
    raise errors.Unavailable("internal error", code=500)


async def held(world: World, call: Call) -> bytes:
    """The write happens, and the answer comes when the client waits no more."""
    await call()
    await world.sleep(PATIENCE)
    raise errors.Timeout("no answer in time")


async def late(world: World, call: Call) -> bytes:
    """The write happens after the client has given up."""

    async def apply() -> None:
        await world.sleep(PATIENCE + 5)
        with contextlib.suppress(errors.ClientError):
            await call()

    world.spawn(apply())
    await world.sleep(PATIENCE)
    raise errors.Timeout("no answer in time")


FAULTS: dict[str, Fault] = {"lost": lost, "held": held, "late": late}


def afflict(world: World, fault: Fault, *, likely: float = 1.0) -> None:
    """Have the fault befall creates of pods."""

    async def answer(request: Request, call: Call) -> bytes:
        if creates_a_pod(request) and world.sim.rand.random() < likely:
            return await fault(world, call)
        return await call()

    world.process.client.answers = answer


JOBS: dict[str, tuple[Object, Script]] = {
    "all end well": ({"completions": 3, "parallelism": 3}, job_world.in_turn(OK)),
    "all fail at once": (
        {"backoffLimit": 2},
        job_world.in_turn(Run(seconds=0.1, exit_code=1)),
    ),
    "indexes, one fails": (indexed(3, backoffLimitPerIndex=1), job_world.by_index(i0=FAILS)),
}


def created(world: World) -> list[str]:
    return [pod.metadata.name for pod in world.kubelet.created]


def reported(world: World) -> Counter[str]:
    notes = (note for _, reason, note in world.told.events if reason == "SuccessfulCreate")
    return Counter(note.removeprefix("Created pod: ") for note in notes)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("lag", [0.0, 3.0], ids=["", "caches behind"])
@virtual(seeds=4)
async def test_each_pod_is_counted_and_reported_once(
    sim: Sim, fault: str, name: str, lag: float
) -> None:
    spec, script = JOBS[name]
    async with job_world.world(sim, script) as world:
        afflict(world, FAULTS[fault], likely=0.6)
        world.lag = lag
        await world.submit(**spec)
        status = (await world.finished()).status
        await world.sleep(60)
        assert status.succeeded + status.failed == len(created(world))
        assert reported(world) == Counter(created(world))


@pytest.mark.parametrize("fault", ["lost", "held"])
@virtual(seeds=3)
async def test_no_failed_create_is_reported_for_a_pod_that_exists(sim: Sim, fault: str) -> None:
    async with job_world.world(sim) as world:
        afflict(world, FAULTS[fault])
        await world.submit(completions=3, parallelism=3)
        await world.finished()
        assert "FailedCreate" not in world.told.reasons()


@virtual(seeds=3)
async def test_the_name_of_another_pod_is_no_creation(sim: Sim) -> None:
    """A pod of that name which the Job does not control is neither counted nor reported."""
    async with job_world.world(sim) as world:

        async def answer(request: Request, call: Call) -> bytes:
            if creates_a_pod(request):
                raise errors.AlreadyExists('pods "x" already exists', code=409)
            return await call()

        world.process.client.answers = answer
        await world.submit()
        await world.sleep(20)
        assert set(world.told.reasons()) == {"FailedCreate"}
        assert (await world.job()).status.active == 0


@pytest.mark.parametrize("fault", FAULTS)
@virtual(seeds=4)
async def test_a_pod_that_comes_after_its_job_is_gone_is_free_to_go(sim: Sim, fault: str) -> None:
    """It has no finalizer, so that the garbage collector can delete it."""
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        afflict(world, FAULTS[fault])
        await world.submit(completions=3, parallelism=3)
        await world.sleep(20 * sim.rand.random())
        how: Any = DeleteOptions(propagation="Background")
        await world.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=how)
        await world.sleep(200)
        assert created(world)
        assert not any(pod_state.is_tracked(pod) for pod in await world.pods())
