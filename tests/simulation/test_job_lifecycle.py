# SPDX-License-Identifier: Apache-2.0
"""Jobs from their creation to their end, on a real API server in virtual time."""

import pytest

from refloat.api import structs
from refloat.api.batch import Job, UncountedTerminatedPods
from refloat.base.gates import JOB_POD_REPLACEMENT_POLICY, Gates
from refloat.policy.job import pod_state
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation import job_cluster
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run
from tests.virtual import virtual

DONE = ("CompletionsReached", "Reached expected number of succeeded pods")
OVER_LIMIT = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
TOO_LATE = ("DeadlineExceeded", "Job was active longer than specified deadline")


def conditions(job: Job) -> list[tuple[str, str, str]]:
    return [(each.type, each.reason, each.message) for each in job.status.conditions or ()]


def completed(reason: tuple[str, str] = DONE) -> list[tuple[str, str, str]]:
    return [("SuccessCriteriaMet", *reason), ("Complete", *reason)]


def failed(reason: tuple[str, str]) -> list[tuple[str, str, str]]:
    return [("FailureTarget", *reason), ("Failed", *reason)]


@virtual(JobCluster, seeds=25)
async def test_a_job_makes_pods_until_enough_have_succeeded(cluster: JobCluster) -> None:
    await cluster.submit(completions=5, parallelism=2)
    await cluster.sleep(3)
    running = (await cluster.job()).status
    assert (running.active, running.ready, running.terminating) == (2, 2, 0)
    assert running.start_time == "2026-01-01T00:00:00Z"
    job = await cluster.finished()
    status = job.status
    assert conditions(job) == completed()
    assert (status.succeeded, status.failed, status.active) == (5, 0, 0)
    assert (status.ready, status.terminating) == (0, 0)
    assert status.uncounted_terminated_pods == UncountedTerminatedPods()
    complete = structs.find(status.conditions, "Complete")
    assert complete is not None
    assert status.completion_time == complete.last_transition_time
    assert len(cluster.kubelet.created) == 5
    await cluster.sleep(5)
    assert not any(pod_state.is_tracked(pod) for pod in await cluster.pods())
    assert cluster.event_log.reasons() == ["SuccessfulCreate"] * 5 + ["Completed"]


@virtual(JobCluster, seeds=25)
async def test_an_indexed_job_runs_each_index_once(cluster: JobCluster) -> None:
    await cluster.submit(completions=7, parallelism=3, completionMode="Indexed")
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.succeeded, job.status.completed_indexes) == (7, "0-6")
    indexes = [pod_state.completion_index(pod) for pod in cluster.kubelet.created]
    assert sorted(index for index in indexes if index is not None) == list(range(7))
    assert {pod.spec.hostname for pod in cluster.kubelet.created} == {
        f"job-{index}" for index in range(7)
    }


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=5), Run(seconds=9), Run(seconds=30)), seeds=5)
async def test_a_work_queue_is_done_with_its_first_success(cluster: JobCluster) -> None:
    await cluster.submit(parallelism=3)
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (3, 3)


@virtual(JobCluster, job_cluster.in_turn(FAILS), seeds=25)
async def test_failures_are_retried_after_10_20_40_seconds_and_so_on(cluster: JobCluster) -> None:
    """Behaviour G1: the delay counts from the end of the last failed pod."""
    await cluster.submit()
    job = await cluster.finished()
    assert cluster.kubelet.created_at == [0, 15, 40, 85, 170, 335, 660]
    assert conditions(job) == failed(OVER_LIMIT)
    assert (job.status.failed, job.status.completion_time) == (7, None)
    assert cluster.event_log.events[-1] == ("Warning", *OVER_LIMIT)


@virtual(JobCluster, job_cluster.in_turn(FAILS, FAILS, OK, FAILS, OK), seeds=20)
async def test_a_success_ends_the_delay(cluster: JobCluster) -> None:
    await cluster.submit(completions=2)
    job = await cluster.finished()
    # 5 fails, 15..20 fails, 40..45 succeeds, at once again, 1 s of batching.
    assert cluster.kubelet.created_at == [0, 15, 40, 46, 61]
    assert (job.status.succeeded, job.status.failed) == (2, 3)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=5, exit_code=1), FOREVER), seeds=5)
async def test_running_pods_of_a_failed_job_are_ended_and_counted(cluster: JobCluster) -> None:
    await cluster.submit(completions=3, parallelism=3, backoffLimit=0)
    await cluster.sleep(7)
    status = (await cluster.job()).status
    assert [each.type for each in status.conditions or ()] == ["FailureTarget"]
    assert (status.failed, status.terminating) == (3, 2)
    job = await cluster.finished()
    assert conditions(job) == failed(OVER_LIMIT)
    assert (job.status.failed, job.status.terminating) == (3, 0)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=20)
async def test_a_job_is_ended_at_its_deadline(cluster: JobCluster) -> None:
    """Behaviour G9."""
    await cluster.submit(activeDeadlineSeconds=30, parallelism=2, completions=2)
    await cluster.sleep(30.5)
    status = (await cluster.job()).status
    assert [each.type for each in status.conditions or ()] == ["FailureTarget"]
    assert (status.active, status.failed, status.terminating) == (0, 2, 2)
    job = await cluster.finished()
    assert conditions(job) == failed(TOO_LATE)
    assert (job.status.failed, job.status.terminating) == (2, 0)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, FOREVER, OK), seeds=20)
async def test_a_suspended_job_loses_its_pods_and_counts_none_of_them(cluster: JobCluster) -> None:
    """Behaviour G8, A14."""
    await cluster.submit(parallelism=2, completions=2)
    await cluster.sleep(10)
    await cluster.change(suspend=True)
    await cluster.sleep(1)
    status = (await cluster.job()).status
    assert (status.active, status.ready, status.terminating) == (0, 0, 2)
    assert status.start_time is None
    await cluster.sleep(10)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (0, 0, 0)
    assert await cluster.pods() == []
    await cluster.change(suspend=False)
    job = await cluster.finished()
    assert conditions(job)[0] == ("Suspended", "JobResumed", "Job resumed")
    assert job.status.start_time == "2026-01-01T00:00:21Z"
    assert (job.status.succeeded, job.status.failed) == (2, 0)
    events = [event for event in cluster.event_log.events if "Job " in event[2]]
    assert events == [
        ("Normal", "Suspended", "Job suspended"),
        ("Normal", "Resumed", "Job resumed"),
        ("Normal", "Completed", "Job completed"),
    ]


@cases("stop_code want", {"well": (0, completed()), "badly": (1, failed(OVER_LIMIT))})
@virtual(seeds=5)
async def test_a_suspended_job_whose_last_pod_ends_is_over(
    sim: Sim, stop_code: int, want: list[tuple[str, str, str]]
) -> None:
    """Behaviour A14.6: a user deleted the pod before, and so the pod counts."""
    script = job_cluster.in_turn(Run(seconds=1e9, stop_seconds=10, stop_code=stop_code))
    async with JobCluster(sim, script) as cluster:
        await cluster.submit(podReplacementPolicy="Failed", backoffLimit=0)
        await cluster.sleep(5)
        await cluster.delete(cluster.kubelet.created[0].metadata.name)
        await cluster.sleep(2)
        await cluster.change(suspend=True)
        job = await cluster.finished(within=60)
        assert conditions(job) == [("Suspended", "JobSuspended", "Job suspended"), *want]
        assert job.status.start_time == "2026-01-01T00:00:16Z"


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_a_resumed_job_gives_no_name_of_a_suspended_pod_again(
    cluster: JobCluster, mode: str
) -> None:
    """Behaviour A8.5, A8.6: in Kubernetes a name is as good as never the same."""
    await cluster.submit(parallelism=2, completions=2, completionMode=mode)
    for suspended in (True, False) * 2:
        await cluster.sleep(10)
        await cluster.change(suspend=suspended)
    await cluster.sleep(10)
    names = [pod.metadata.name for pod in cluster.kubelet.created]
    assert len(names) == len(set(names)) == 6


@virtual(JobCluster, seeds=5)
async def test_a_job_that_is_created_suspended_starts_nothing(cluster: JobCluster) -> None:
    await cluster.submit(suspend=True)
    await cluster.sleep(100)
    status = (await cluster.job()).status
    assert (status.start_time, cluster.kubelet.created) == (None, [])
    assert [each.reason for each in status.conditions or ()] == ["JobSuspended"]


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=20)
async def test_less_parallelism_removes_pods_that_are_not_counted(cluster: JobCluster) -> None:
    await cluster.submit(parallelism=5, completions=9)
    await cluster.sleep(5)
    await cluster.change(parallelism=2)
    await cluster.sleep(10)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (2, 0, 0)
    assert len(await cluster.pods()) == 2
    await cluster.change(parallelism=4)
    await cluster.sleep(2)
    assert (await cluster.job()).status.active == 4
    assert len(cluster.kubelet.created) == 7


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_pods_are_created_in_growing_batches_and_500_at_a_time(cluster: JobCluster) -> None:
    await cluster.submit(parallelism=620, completions=620)
    await cluster.sleep(0.5)
    assert (await cluster.job()).status.active == 500
    await cluster.sleep(4)
    assert (await cluster.job()).status.active == 620
    assert len({pod.metadata.name for pod in cluster.kubelet.created}) == 620


@virtual(JobCluster, seeds=5)
async def test_a_job_with_no_completions_is_complete(cluster: JobCluster) -> None:
    await cluster.submit(completions=0, parallelism=1)
    assert conditions(await cluster.finished()) == completed()
    assert cluster.kubelet.created == []


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_restarts_of_containers_count_with_on_failure(cluster: JobCluster) -> None:
    """Behaviour A12.2: a limit of 2 bears one restart."""
    await cluster.submit(template={"restartPolicy": "OnFailure"}, backoffLimit=2)
    await cluster.sleep(3)
    for restarts in (1, 2):
        await cluster.kubelet.restarted(cluster.kubelet.created[0], restarts)
        await cluster.sleep(5)
        status = (await cluster.job()).status
        assert bool(status.conditions) == (restarts == 2)
    assert conditions(await cluster.finished()) == failed(OVER_LIMIT)


@virtual(JobCluster, job_cluster.by_index(i3=FOREVER, i4=FOREVER), seeds=10)
async def test_an_indexed_job_may_become_smaller_while_it_runs(cluster: JobCluster) -> None:
    """Behaviour A7.5, A7.8."""
    await cluster.submit(completions=5, parallelism=5, completionMode="Indexed")
    await cluster.sleep(3)
    await cluster.change(completions=3, parallelism=3)
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.completed_indexes, job.status.succeeded) == ("0-2", 3)
    assert job.status.failed == 0


@virtual(JobCluster, job_cluster.in_turn(FAILS, FAILS, OK), seeds=5)
async def test_restarted_controller_has_forgotten_delay_and_no_failure(cluster: JobCluster) -> None:
    """Behaviour A11.1."""
    await cluster.submit()
    await cluster.sleep(22)
    await cluster.restart()
    job = await cluster.finished()
    assert cluster.kubelet.created_at == [0, 15, 22]
    assert (job.status.succeeded, job.status.failed) == (1, 2)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=1e9, stop_seconds=60), OK), seeds=5)
async def test_with_its_gate_off_terminating_pods_are_replaced_at_once(cluster: JobCluster) -> None:
    await cluster.switch(Gates({JOB_POD_REPLACEMENT_POLICY: False}), server=Gates())
    await cluster.submit(podReplacementPolicy="Failed")
    await cluster.sleep(5)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)
    await cluster.sleep(12)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (1, None, 1)
