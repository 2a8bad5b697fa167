# SPDX-License-Identifier: Apache-2.0
"""What policies make of the ends of pods, on a real API server in virtual time."""

from typing import Any

import pytest

from refloat.api.core import Pod
from refloat.client import kinds
from refloat.policy.job import attempts, pod_state
from tests.cases import cases
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run
from tests.simulation.test_job_lifecycle import OVER_LIMIT, completed, conditions, failed
from tests.virtual import virtual


def on_exit(action: str, *codes: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": list(codes)}}


async def disrupt(cluster: JobCluster, pod: Pod) -> None:
    """Delete a pod as an eviction does: the condition first."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    await cluster.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"status": {"conditions": [target]}},
        patch_type="strategic",
        namespace=NAMESPACE,
        subresource="status",
    )
    await cluster.delete(pod.metadata.name)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, Run(seconds=5, exit_code=42)), seeds=20)
async def test_fail_job_ends_the_job_and_names_the_pod(cluster: JobCluster) -> None:
    """Behaviour A15.7."""
    policy = {"rules": [on_exit("Ignore", 7), on_exit("FailJob", 42)]}
    await cluster.submit(parallelism=2, completions=2, podFailurePolicy=policy)
    job = await cluster.finished()
    name = cluster.kubelet.created[1].metadata.name
    message = (
        f"Container main for pod default/{name} failed with exit code 42 "
        "matching FailJob rule at index 1"
    )
    assert conditions(job) == failed(("PodFailurePolicy", message))
    assert (job.status.failed, len(cluster.kubelet.created)) == (2, 2)
    assert cluster.event_log.events[-1] == ("Warning", "PodFailurePolicy", message)


async def hold(cluster: JobCluster) -> list[Pod]:
    """Have the objects of these pods stay when they are deleted."""
    pods = await cluster.pods()
    for pod in pods:
        finalizers = [*(pod.metadata.finalizers or ()), "example.com/hold"]
        patch = {"metadata": {"finalizers": finalizers}}
        await cluster.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)
    return pods


@cases(
    "change want_failed",
    {"for less parallelism": ({"parallelism": 1}, 1), "for a suspension": ({"suspend": True}, 0)},
)
@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_fail_job_is_for_pods_too_that_were_deleted_uncounted(
    cluster: JobCluster, change: dict[str, Any], want_failed: int
) -> None:
    """Behaviour A15.8: while they are there; they still count for nothing."""
    policy = {"rules": [on_exit("FailJob", 143)]}
    await cluster.submit(parallelism=2, completions=2, podFailurePolicy=policy)
    await cluster.sleep(5)
    names = {pod.metadata.name for pod in await hold(cluster)}
    await cluster.change(**change)
    job = await cluster.finished(within=60)
    reason, message = conditions(job)[-1][1:]
    assert reason == "PodFailurePolicy"
    assert any(f"pod default/{name} failed with exit code 143" in message for name in names)
    assert job.status.failed == want_failed
    await cluster.sleep(60)
    assert not any(map(pod_state.is_tracked, await cluster.pods()))


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_pods_that_were_deleted_uncounted_cost_no_writes(cluster: JobCluster) -> None:
    """However long they are there, and though they are looked at."""
    policy = {"rules": [on_exit("FailJob", 42)]}
    await cluster.submit(parallelism=2, completions=2, podFailurePolicy=policy)
    await cluster.sleep(5)
    await hold(cluster)
    await cluster.change(parallelism=1)
    await cluster.sleep(10)
    before = cluster.faulty.writes
    await cluster.change(backoffLimit=5, activeDeadlineSeconds=9999)
    await cluster.sleep(600)
    assert cluster.faulty.writes == before
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (1, 0, 0)


@virtual(JobCluster, job_cluster.in_turn(FAILS, FAILS, OK), seeds=5)
async def test_a_job_without_a_policy_tells_of_its_failures_too(cluster: JobCluster) -> None:
    """Each failure has an entry; those of one sync have one event."""
    await cluster.submit(completions=2, parallelism=2)
    job = await cluster.finished()
    first, second = (pod.metadata.name for pod in cluster.kubelet.created[:2])
    notes = [note for _, reason, note in cluster.event_log.events if reason == "PodFailureJudged"]
    assert notes in [
        [f"{one}, {other}: container main failed with exit code 1 matching no rule"]
        for one, other in ((first, second), (second, first))
    ]
    records = attempts.recorded(job.metadata.annotations)
    assert {each["pod"]: each["exitCode"] for each in records} == {first: 1, second: 1}
    assert not any("rule" in each or "action" in each for each in records)


@virtual(JobCluster, job_cluster.in_turn(Run(exit_code=7), Run(exit_code=7), OK), seeds=20)
async def test_ignored_failures_count_for_no_limit_but_delay(cluster: JobCluster) -> None:
    """Behaviour A11.3, A15.6."""
    policy = {"rules": [on_exit("Ignore", 7)]}
    await cluster.submit(backoffLimit=0, podFailurePolicy=policy)
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.succeeded, job.status.failed) == (1, 0)
    assert cluster.kubelet.created_at == [0, 15, 40]
    first, second, _ = cluster.kubelet.created
    message = "container main failed with exit code 7 matching Ignore rule at index 0"
    events = [event for event in cluster.event_log.events if event[1] == "PodFailureJudged"]
    assert events == [
        ("Normal", "PodFailureJudged", f"{pod.metadata.name}: {message}") for pod in (first, second)
    ]
    records = attempts.recorded(job.metadata.annotations)
    assert [(each["pod"], each["action"], each["rule"]) for each in records] == [
        (pod.metadata.name, "Ignore", 0) for pod in (first, second)
    ]


@virtual(JobCluster, job_cluster.in_turn(Run(exit_code=7)), seeds=5)
async def test_counted_failures_reach_the_limit(cluster: JobCluster) -> None:
    policy = {"rules": [on_exit("Count", 7), on_exit("Ignore", 7)]}
    await cluster.submit(backoffLimit=1, podFailurePolicy=policy)
    job = await cluster.finished()
    assert conditions(job) == failed(OVER_LIMIT)
    assert job.status.failed == 2
    handled = cluster.metrics.get_sample_value(
        "job_controller_pod_failures_handled_by_failure_policy_total", {"action": "Count"}
    )
    assert handled == 2


@virtual(JobCluster, job_cluster.by_index(i1=Run(exit_code=3)), seeds=20)
async def test_fail_index_gives_up_one_index_and_not_the_others(cluster: JobCluster) -> None:
    policy = {"rules": [on_exit("FailIndex", 3)]}
    await cluster.submit(
        completions=3,
        parallelism=3,
        completionMode="Indexed",
        backoffLimitPerIndex=5,
        podFailurePolicy=policy,
    )
    job = await cluster.finished()
    assert conditions(job) == failed(("FailedIndexes", "Job has failed indexes"))
    assert (job.status.completed_indexes, job.status.failed_indexes) == ("0,2", "1")
    assert len(cluster.kubelet.created) == 3


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=3600)), seeds=20)
async def test_record_has_pods_that_are_deleted_because_the_job_failed(cluster: JobCluster) -> None:
    await cluster.submit(activeDeadlineSeconds=30, parallelism=2, completions=2)
    job = await cluster.finished()
    records = attempts.recorded(job.metadata.annotations)
    names = {pod.metadata.name for pod in cluster.kubelet.created}
    assert {each["pod"]: each["jobFailed"] for each in records} == dict.fromkeys(
        names, "DeadlineExceeded"
    )
    assert len(records) == job.status.failed == 2


@virtual(JobCluster, job_cluster.by_index(i0=FAILS), seeds=20)
async def test_an_index_is_retried_by_its_own_limit_and_delay(cluster: JobCluster) -> None:
    """Behaviour A12.7-A12.9."""
    await cluster.submit(
        completions=2, parallelism=2, completionMode="Indexed", backoffLimitPerIndex=2
    )
    job = await cluster.finished()
    assert conditions(job) == failed(("FailedIndexes", "Job has failed indexes"))
    assert (job.status.completed_indexes, job.status.failed_indexes) == ("1", "0")
    assert (job.status.failed, job.status.succeeded) == (3, 1)
    first = [
        (pod, at)
        for pod, at in zip(cluster.kubelet.created, cluster.kubelet.created_at, strict=True)
        if pod_state.completion_index(pod) == 0
    ]
    assert [at for _, at in first] == [0, 15, 40]
    assert [pod_state.index_failures(pod) for pod, _ in first] == [0, 1, 2]


@virtual(JobCluster, job_cluster.in_turn(Run(exit_code=7), OK), seeds=5)
async def test_index_that_was_ignored_too_often_starts_to_count_anew(cluster: JobCluster) -> None:
    """Behaviour A12.7: in 32 bits, as Kubernetes; negative numbers have no event."""
    await cluster.submit(
        completions=1,
        completionMode="Indexed",
        backoffLimitPerIndex=1,
        podFailurePolicy={"rules": [on_exit("Ignore", 7)]},
    )
    await cluster.sleep(2)
    [pod] = await cluster.pods()
    patch = {"metadata": {"annotations": {pod_state.INDEX_IGNORED_FAILURES: str(2**31 - 1)}}}
    await cluster.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)
    assert conditions(await cluster.finished()) == completed()
    assert cluster.kubelet.created_at == [0, 15]
    annotations = cluster.kubelet.created[1].metadata.annotations or {}
    assert pod_state.INDEX_IGNORED_FAILURES not in annotations


@virtual(JobCluster, job_cluster.by_index(i0=FAILS, i1=FAILS, i2=FOREVER), seeds=5)
async def test_too_many_failed_indexes_fail_the_job(cluster: JobCluster) -> None:
    await cluster.submit(
        completions=3,
        parallelism=3,
        completionMode="Indexed",
        backoffLimitPerIndex=0,
        maxFailedIndexes=1,
    )
    job = await cluster.finished()
    message = "Job has exceeded the specified maximal number of failed indexes"
    assert conditions(job) == failed(("MaxFailedIndexesExceeded", message))
    assert job.status.failed_indexes == "0,1"


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=1e9, stop_seconds=25), OK), seeds=20)
async def test_under_failed_a_deleted_pod_is_waited_for(cluster: JobCluster) -> None:
    """Behaviour G3: drained with an Ignore rule, replaced once the pod has ended."""
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    await cluster.submit(backoffLimit=0, podFailurePolicy=policy)
    await cluster.sleep(5)
    await disrupt(cluster, cluster.kubelet.created[0])
    await cluster.sleep(20)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (0, 1, 0)
    assert len(cluster.kubelet.created) == 1
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.failed, cluster.kubelet.created_at) == (0, [0, 40])


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=1e9, stop_seconds=60), OK), seeds=20)
async def test_under_terminating_or_failed_deleted_pods_are_replaced(cluster: JobCluster) -> None:
    """Behaviour G4: after the back-off, while the old one is terminating."""
    await cluster.submit()
    await cluster.sleep(5)
    await disrupt(cluster, cluster.kubelet.created[0])
    await cluster.sleep(2)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (0, 1, 1)
    await cluster.sleep(10)
    status = (await cluster.job()).status
    assert (status.active, status.terminating, status.failed) == (1, 1, 1)
    assert cluster.kubelet.created_at == [0, 15]
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.succeeded, job.status.failed, job.status.terminating) == (1, 1, 0)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=1e9, stop_code=0)), seeds=5)
async def test_terminating_pod_that_ends_well_is_success_under_failed(cluster: JobCluster) -> None:
    await cluster.submit(podReplacementPolicy="Failed")
    await cluster.sleep(5)
    await cluster.delete(cluster.kubelet.created[0].metadata.name)
    job = await cluster.finished()
    assert conditions(job) == completed()
    assert (job.status.succeeded, job.status.failed) == (1, 0)


@virtual(JobCluster, job_cluster.by_index(i1=FOREVER, i2=FOREVER), seeds=20)
async def test_a_success_policy_ends_the_stragglers_uncounted(cluster: JobCluster) -> None:
    """Behaviour G11, A17."""
    await cluster.submit(
        completions=3,
        parallelism=3,
        completionMode="Indexed",
        successPolicy={"rules": [{"succeededIndexes": "0"}]},
    )
    await cluster.sleep(6.5)
    status = (await cluster.job()).status
    assert [each.type for each in status.conditions or ()] == ["SuccessCriteriaMet"]
    assert (status.terminating, status.completion_time) == (2, None)
    job = await cluster.finished()
    assert conditions(job) == completed(("SuccessPolicy", "Matched rules at index 0"))
    assert (job.status.succeeded, job.status.failed) == (1, 0)
    assert job.status.completed_indexes == "0"
    assert cluster.event_log.events[-1] == ("Normal", "Completed", "Job completed")


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
@virtual(
    JobCluster, job_cluster.in_turn(Run(seconds=30, stop_seconds=7), Run(seconds=20)), seeds=15
)
async def test_under_failed_there_are_never_more_pods_than_parallelism(
    cluster: JobCluster, mode: str
) -> None:
    await cluster.submit(
        completions=4,
        parallelism=2,
        completionMode=mode,
        podReplacementPolicy="Failed",
        backoffLimit=100,
    )
    for _ in range(60):
        await cluster.sleep(1)
        living = [pod for pod in await cluster.pods() if not pod.is_terminal]
        assert len(living) <= 2
        if living and cluster.sim.rand.below(8) == 0:
            await cluster.delete(cluster.sim.rand.choice(living).metadata.name)
    job = await cluster.finished()
    assert job.status.succeeded == 4
