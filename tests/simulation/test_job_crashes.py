# SPDX-License-Identifier: Apache-2.0
"""The controller is killed at each of its writes, or gets no answer: the end is the same."""

import functools
from typing import Any

import pytest

from refloat.policy.job import pod_state
from refloat.sim.run import Sim, run
from tests.simulation import job_cluster
from tests.simulation.job_cluster import OK, JobCluster, Run
from tests.simulation.job_scenarios import RACES, SCENARIOS, Ending, checked
from tests.virtual import virtual

SEED = 1

ALL = SCENARIOS | RACES


@functools.cache
def undisturbed(name: str) -> tuple[Ending, int]:
    """How the Job ends, and the number of writes until then."""

    async def program(sim: Sim) -> tuple[Ending, int]:
        async with JobCluster(sim, ALL[name].script) as cluster:
            return await checked(cluster, ALL[name]), cluster.faulty.writes

    return run(program, seed=SEED)


def killed(name: str, number: int, *, after: bool) -> Ending:
    async def program(sim: Sim) -> Ending:
        async with JobCluster(sim, ALL[name].script) as cluster:
            client = cluster.faulty
            client.dies_at, client.dies_after = number, after
            cluster.spawn(cluster.restart_when_dead(client))
            return await checked(cluster, ALL[name])

    return run(program, seed=SEED)


def unanswered(name: str, number: int) -> Ending:
    async def program(sim: Sim) -> Ending:
        async with JobCluster(sim, ALL[name].script) as cluster:
            cluster.faulty.loses = {number}
            return await checked(cluster, ALL[name])

    return run(program, seed=SEED)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ALL)
def test_a_kill_at_any_write_changes_nothing(name: str, *, after: bool) -> None:
    want, writes = undisturbed(name)
    for number in range(1, writes + 1):
        assert killed(name, number, after=after) == want, f"killed at write {number}"


@pytest.mark.parametrize("name", ALL)
def test_an_answer_that_is_lost_changes_nothing(name: str) -> None:
    want, writes = undisturbed(name)
    for number in range(1, writes + 1):
        assert unanswered(name, number) == want, f"lost answer {number}"


@virtual(JobCluster, seeds=8)
async def test_a_restart_at_any_moment_makes_no_pod_twice(cluster: JobCluster) -> None:
    await cluster.submit(completions=6, parallelism=3)
    for _ in range(8):
        await cluster.sleep(cluster.sim.rand.random() * 3)
        await cluster.stop()
        await cluster.sleep(cluster.sim.rand.random())
        await cluster.start()
    job = await cluster.finished()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (6, 6)


# -- between the removal of a finalizer and the deletion (behaviour A9.1) -----------


async def killed_before_the_deletion(cluster: JobCluster, **change: Any) -> None:
    """A change makes the controller release pods; then it is killed, and deletes none."""
    await cluster.sleep(3)
    client = cluster.faulty
    client.dies_on = lambda request: request.method == "DELETE"
    await cluster.change(**change)
    await client.died.wait()


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}], ids=["stop", "shrink"])
@virtual(JobCluster, job_cluster.in_turn(Run(seconds=30)), seeds=3)
async def test_a_pod_that_runs_on_after_a_kill_is_counted(
    cluster: JobCluster, change: dict[str, Any]
) -> None:
    """The successor adds the finalizer again, and the Job wants the pod again."""
    await cluster.submit(completions=2, parallelism=2)
    await killed_before_the_deletion(cluster, **change)
    await cluster.change(suspend=False, parallelism=2)
    await cluster.restart()
    job = await cluster.finished()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (2, 2)


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 0}], ids=["stop", "shrink"])
@virtual(JobCluster, job_cluster.in_turn(OK), seeds=3)
async def test_a_pod_that_ended_before_the_successor_saw_it_run_is_replaced(
    cluster: JobCluster, change: dict[str, Any]
) -> None:
    """As in Kubernetes: nothing that users cannot write shows that the pod was not counted."""
    await cluster.submit(completions=2, parallelism=2)
    await killed_before_the_deletion(cluster, **change)
    await cluster.sleep(10)
    untracked = sum(not pod_state.is_tracked(pod) for pod in await cluster.pods())
    assert (len(cluster.kubelet.done), untracked) in [(2, 1), (2, 2)]
    await cluster.restart()
    await cluster.change(suspend=False, parallelism=2)
    job = await cluster.finished()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (2, 2 + untracked)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=30), OK), seeds=3)
async def test_a_job_that_wants_a_pod_back_counts_it(cluster: JobCluster) -> None:
    """Suspended, killed, resumed: the pods go on, and one is deleted by hand."""
    await cluster.submit(completions=1, parallelism=1, podReplacementPolicy="Failed")
    await killed_before_the_deletion(cluster, suspend=True)
    await cluster.change(suspend=False)
    await cluster.restart()
    await cluster.sleep(3)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)
    job = await cluster.finished()
    assert (job.status.succeeded, job.status.failed) == (1, 1)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=30), OK), seeds=3)
async def test_a_job_that_does_not_want_the_pod_deletes_it_uncounted(cluster: JobCluster) -> None:
    """As if the controller had not been killed (behaviour A9.1)."""
    await cluster.submit(completions=1, parallelism=1)
    await killed_before_the_deletion(cluster, suspend=True)
    await cluster.restart()
    await cluster.sleep(10)
    assert await cluster.pods() == []
    await cluster.change(suspend=False)
    job = await cluster.finished()
    assert (job.status.succeeded, job.status.failed) == (1, 0)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=30)), seeds=3)
async def test_a_pod_that_ends_while_it_is_released_is_counted(cluster: JobCluster) -> None:
    """The pod changed, so the controller does not delete it: without any crash."""
    await cluster.submit(completions=1, parallelism=1)
    await cluster.sleep(3)
    [pod] = await cluster.pods()
    cluster.faulty.before = cluster.kubelet.ends_when_deleted(pod)
    await cluster.change(suspend=True)
    await cluster.sleep(10)
    job = await cluster.finished()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (1, 1)
    assert "FailedDelete" not in cluster.event_log.reasons()
