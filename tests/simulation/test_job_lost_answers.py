# SPDX-License-Identifier: Apache-2.0
"""Creates of pods whose answers are lost, held or late: each pod counts and is reported once."""

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.policy.job import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run, Script
from tests.simulation.job_scenarios import indexed
from tests.simulation.test_job_faults import creates_a_pod
from tests.virtual import virtual

Call: TypeAlias = Callable[[], Awaitable[bytes]]
Fault: TypeAlias = Callable[[JobCluster, Call], Awaitable[bytes]]

# A client waits 30 s for an answer.
PATIENCE = 30.0


async def lost(_: JobCluster, call: Call) -> bytes:
    """The write happens, and the answer says that the server failed; a refusal is lost, too."""
    with contextlib.suppress(errors.ClientError):
        await call()
    raise errors.Unavailable("internal error", code=500)


async def held(cluster: JobCluster, call: Call) -> bytes:
    """The write happens, and the answer comes when the client waits no more."""
    await call()
    await cluster.sleep(PATIENCE)
    raise errors.Timeout("no answer in time")


async def late(cluster: JobCluster, call: Call) -> bytes:
    """The write happens after the client has given up."""

    async def apply() -> None:
        await cluster.sleep(PATIENCE + 5)
        with contextlib.suppress(errors.ClientError):
            await call()

    cluster.spawn(apply())
    await cluster.sleep(PATIENCE)
    raise errors.Timeout("no answer in time")


FAULTS: dict[str, Fault] = {"lost": lost, "held": held, "late": late}


def afflict(cluster: JobCluster, fault: Fault, *, likely: float = 1.0) -> None:
    """Have the fault befall creates of pods."""

    async def answer(request: Request, call: Call) -> bytes:
        if creates_a_pod(request) and cluster.sim.rand.random() < likely:
            return await fault(cluster, call)
        return await call()

    cluster.faulty.answers = answer


JOBS: dict[str, tuple[Object, Script]] = {
    "all end well": ({"completions": 3, "parallelism": 3}, job_cluster.in_turn(OK)),
    "all fail at once": ({"backoffLimit": 2}, job_cluster.in_turn(Run(seconds=0.1, exit_code=1))),
    "indexes, one fails": (indexed(3, backoffLimitPerIndex=1), job_cluster.by_index(i0=FAILS)),
}


def created(cluster: JobCluster) -> list[str]:
    return [pod.metadata.name for pod in cluster.kubelet.created]


def reported(cluster: JobCluster) -> Counter[str]:
    notes = (note for _, reason, note in cluster.event_log.events if reason == "SuccessfulCreate")
    return Counter(note.removeprefix("Created pod: ") for note in notes)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("lag", [0.0, 3.0], ids=["", "caches behind"])
@virtual(seeds=4)
async def test_each_pod_is_counted_and_reported_once(
    sim: Sim, fault: str, name: str, lag: float
) -> None:
    spec, script = JOBS[name]
    async with JobCluster(sim, script) as cluster:
        afflict(cluster, FAULTS[fault], likely=0.6)
        cluster.watch_faults.lag = lag
        await cluster.submit(**spec)
        status = (await cluster.finished()).status
        await cluster.sleep(60)
        assert status.succeeded + status.failed == len(created(cluster))
        assert reported(cluster) == Counter(created(cluster))


@pytest.mark.parametrize("fault", ["lost", "held"])
@virtual(JobCluster, seeds=3)
async def test_no_failed_create_is_reported_of_a_live_pod(cluster: JobCluster, fault: str) -> None:
    afflict(cluster, FAULTS[fault])
    await cluster.submit(completions=3, parallelism=3)
    await cluster.finished()
    assert "FailedCreate" not in cluster.event_log.reasons()


@virtual(JobCluster, seeds=3)
async def test_the_name_of_another_pod_is_no_creation(cluster: JobCluster) -> None:
    """A pod of that name which the Job does not control is neither counted nor reported."""

    async def answer(request: Request, call: Call) -> bytes:
        if creates_a_pod(request):
            raise errors.AlreadyExists('pods "x" already exists', code=409)
        return await call()

    cluster.faulty.answers = answer
    await cluster.submit()
    await cluster.sleep(20)
    assert set(cluster.event_log.reasons()) == {"FailedCreate"}
    assert (await cluster.job()).status.active == 0


@pytest.mark.parametrize("fault", FAULTS)
@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=4)
async def test_pod_that_comes_after_its_job_may_go(cluster: JobCluster, fault: str) -> None:
    """The pod has no finalizer, so that the garbage collector can delete it."""
    afflict(cluster, FAULTS[fault])
    await cluster.submit(completions=3, parallelism=3)
    await cluster.sleep(20 * cluster.sim.rand.random())
    how: Any = DeleteOptions(propagation="Background")
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=how)
    await cluster.sleep(200)
    assert created(cluster)
    assert not any(pod_state.is_tracked(pod) for pod in await cluster.pods())


def ends_when_deleted_or_fails_later(pod: Pod, number: int) -> Run:
    """The first pod of index 0 waits for its deletion, the first of index 1 fails at 8.5 s."""
    if number:
        return OK
    return FOREVER if pod_state.completion_index(pod) == 0 else Run(seconds=8.5, exit_code=1)


@virtual(JobCluster, ends_when_deleted_or_fails_later, seeds=4)
async def test_replacement_has_another_name_when_an_answer_is_lost(cluster: JobCluster) -> None:
    """The next sync finds the first pod listed, and waits because a second one failed.

    When the wait is over, the first pod is gone. A second pod of the same name would be taken for
    the first: its creation would have no event.
    """
    await cluster.submit(**indexed(2, podReplacementPolicy="Failed"))
    await cluster.sleep(5)

    async def answer(request: Request, call: Call) -> bytes:
        if request.method == "PATCH" and b'"failed":["' in (request.body or b""):
            cluster.faulty.answers = None
            return await lost(cluster, call)
        return await call()

    cluster.faulty.answers = answer
    pod = next(pod for pod in await cluster.pods() if pod_state.completion_index(pod) == 0)
    await cluster.client.delete(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    status = (await cluster.finished()).status
    await cluster.sleep(60)
    assert cluster.faulty.answers is None
    assert (status.succeeded, status.failed) == (2, 2)
    assert reported(cluster) == Counter(created(cluster))
    assert len(set(created(cluster))) == 4
