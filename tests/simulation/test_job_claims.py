# SPDX-License-Identifier: Apache-2.0
"""Which Job a pod belongs to, which controller a Job belongs to, and pods without either."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.selectors import LabelSelector
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.job import orphans, pod_adoption
from refloat.controllers.job.settings import JobSettings
from refloat.policy.job import pod_state
from refloat.sim.run import Sim
from tests.cases import cases
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FOREVER, OK, JobCluster, Run
from tests.virtual import virtual


async def patched(cluster: JobCluster, pod: Pod, metadata: dict[str, Any]) -> None:
    patch = {"metadata": metadata}
    await cluster.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)


async def stray(cluster: JobCluster, name: str, labels: dict[str, str]) -> None:
    """A pod without a controller."""
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    pod = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)


@virtual(JobCluster, seeds=20)
async def test_a_pod_that_matches_is_adopted_and_counts(cluster: JobCluster) -> None:
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    labels: dict[str, Any] = {"app": "x"}
    pod = {"metadata": {"name": "stray", "labels": labels}, "spec": spec}
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "metadata": {"name": "job"},
        "spec": {"manualSelector": True, "selector": {"matchLabels": labels}, "template": template},
    }
    job = await cluster.client.create(kinds.JOBS, body, namespace=NAMESPACE)
    await cluster.sleep(2)
    stray = await cluster.client.get(kinds.PODS, "stray", namespace=NAMESPACE)
    assert stray.metadata.controller is not None
    assert stray.metadata.controller.uid == job.metadata.uid
    assert pod_state.is_tracked(stray)
    done = await cluster.finished()
    assert done.status.succeeded == 1
    assert [each.metadata.name for each in cluster.kubelet.created] == ["stray"]


@virtual(JobCluster, seeds=5)
async def test_more_successes_than_asked_for_are_told_of(cluster: JobCluster) -> None:
    """Behaviour A6.3, A22.1: before the end itself is."""
    labels: dict[str, Any] = {"app": "x"}
    for name in ("one", "two"):
        await stray(cluster, name, labels)
    await cluster.sleep(10)
    selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
    await cluster.submit(labels=labels, completions=1, **selector)
    job = await cluster.finished()
    assert (job.status.succeeded, len(cluster.kubelet.created)) == (2, 2)
    assert cluster.event_log.events == [
        (
            "Warning",
            "TooManySucceededPods",
            "Too many succeeded pods running after completion count reached",
        ),
        ("Normal", "Completed", "Job completed"),
    ]


@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=5)
async def test_a_counted_pod_whose_labels_change_is_released(cluster: JobCluster) -> None:
    """Behaviour A2.4: also after the pod is over, while its Job is not; its count stays."""
    await cluster.submit(completions=2, parallelism=1)
    await cluster.sleep(10)
    assert (await cluster.job()).status.succeeded == 1
    pod = cluster.kubelet.created[0]
    await patched(cluster, pod, {"labels": {"batch.kubernetes.io/controller-uid": None}})
    await cluster.sleep(3)
    released = await cluster.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    assert released.metadata.owner_references is None
    status = (await cluster.job()).status
    assert (status.succeeded, status.active, len(cluster.kubelet.created)) == (1, 1, 2)


@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=5)
async def test_counted_pods_of_a_selector_of_its_own_stay(cluster: JobCluster) -> None:
    labels: dict[str, Any] = {"app": "x"}
    selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
    await cluster.submit(labels=labels, completions=2, parallelism=1, **selector)
    await cluster.sleep(10)
    first = cluster.kubelet.created[0]
    await patched(cluster, first, {"labels": {"other": "y"}})
    await cluster.sleep(3)
    pod = await cluster.client.get(kinds.PODS, first.metadata.name, namespace=NAMESPACE)
    assert pod.metadata.controller is not None
    await patched(cluster, first, {"labels": {"app": None}})
    await cluster.sleep(3)
    pod = await cluster.client.get(kinds.PODS, first.metadata.name, namespace=NAMESPACE)
    assert pod.metadata.controller is None


async def relabelled(cluster: JobCluster) -> Pod:
    """A counted pod of a Job that goes on, whose own selector no longer matches the pod."""
    labels: dict[str, Any] = {"app": "x"}
    selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
    await cluster.submit(labels=labels, completions=2, parallelism=1, **selector)
    await cluster.sleep(10)
    pod = cluster.kubelet.created[0]
    await patched(cluster, pod, {"labels": {"app": None}})
    return pod


async def is_owned(cluster: JobCluster, pod: Pod) -> bool:
    newest = await cluster.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    return newest.metadata.controller is not None


@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=5)
async def test_a_counted_pod_that_could_not_be_released_is_tried_again(cluster: JobCluster) -> None:
    refusals = [errors.Unavailable("not now") for _ in range(3)]

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        releases = b'"$patch"' in (request.body or b"")
        return refusals.pop() if releases and refusals else None

    cluster.faulty.refuses = refuse
    pod = await relabelled(cluster)
    await cluster.sleep(5)
    assert await is_owned(cluster, pod)
    await cluster.sleep(30)
    assert not await is_owned(cluster, pod)
    assert refusals == []


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=8), FOREVER), seeds=5)
async def test_a_counted_pod_whose_labels_changed_while_nobody_looked_is_released(
    cluster: JobCluster,
) -> None:
    cluster.faulty.dies_on = lambda request: b'"$patch"' in (request.body or b"")
    pod = await relabelled(cluster)
    await cluster.faulty.died.wait()
    assert await is_owned(cluster, pod)
    await cluster.restart()
    await cluster.sleep(3)
    assert not await is_owned(cluster, pod)


@virtual(JobCluster, job_cluster.in_turn(FOREVER, job_cluster.OK), seeds=20)
async def test_a_pod_whose_labels_change_is_released_and_replaced(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(3)
    [pod] = await cluster.pods()
    await patched(cluster, pod, {"labels": {"batch.kubernetes.io/controller-uid": None}})
    job = await cluster.finished()
    assert (job.status.succeeded, job.status.failed) == (1, 0)
    released = await cluster.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    assert released.metadata.owner_references is None
    assert not pod_state.is_tracked(released)
    assert len(cluster.kubelet.created) == 2


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=20)
async def test_pods_of_a_job_that_is_gone_lose_their_finalizer(cluster: JobCluster) -> None:
    """Behaviour A20.3."""
    await cluster.submit(parallelism=3, completions=3)
    await cluster.sleep(3)
    options = DeleteOptions(propagation="Background")
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
    await cluster.sleep(3)
    pods = await cluster.pods()
    assert len(pods) == 3
    assert not any(pod_state.is_tracked(pod) for pod in pods)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_job_being_deleted_creates_nothing_and_lets_its_pods_go(cluster: JobCluster) -> None:
    """Behaviour A20.1."""
    await cluster.submit()
    await cluster.sleep(3)
    options = DeleteOptions(propagation="Foreground")
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
    await cluster.sleep(3)
    [pod] = await cluster.pods()
    assert not pod_state.is_tracked(pod)
    await cluster.delete(pod.metadata.name)
    await cluster.sleep(30)
    assert len(cluster.kubelet.created) == 1
    assert (await cluster.job()).status.failed == 0


@virtual(JobCluster, seeds=5)
async def test_another_controllers_job_is_left_alone(cluster: JobCluster) -> None:
    await cluster.submit(managedBy="example.com/other")
    await cluster.sleep(30)
    job = await cluster.job()
    assert (job.status.start_time, cluster.kubelet.created) == (None, [])
    count = cluster.metrics.get_sample_value(
        "job_controller_jobs_by_external_controller_total", {"controller_name": "Other"}
    )
    assert count == 1


@virtual(JobCluster, settings=JobSettings(takes_default=False), seeds=5)
async def test_beside_kubernetes_jobs_that_name_refloat_are_synced(cluster: JobCluster) -> None:
    await cluster.submit("plain")
    await cluster.submit("reserved", managedBy="kubernetes.io/job-controller")
    await cluster.submit("ours", managedBy="refloat.dev/job-controller")
    await cluster.finished("ours")
    owners = [pod.metadata.controller for pod in cluster.kubelet.created]
    assert [owner.name for owner in owners if owner is not None] == ["ours"]


@virtual(JobCluster, job_cluster.in_turn(FOREVER), JobSettings(takes_default=False), seeds=3)
async def test_beside_kubernetes_pods_of_jobs_that_are_gone_lose_the_finalizer_after_a_wait(
    cluster: JobCluster,
) -> None:
    """Kubernetes' controller comes first, if it runs; otherwise the pods could never go."""
    how = DeleteOptions(propagation="Background")
    await cluster.submit(managedBy="refloat.dev/job-controller")
    await cluster.sleep(5)
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=how)
    await cluster.sleep(orphans.OTHERS_FIRST_SECONDS - 1)
    assert [pod_state.is_tracked(pod) for pod in await cluster.pods()] == [True]
    await cluster.sleep(2)
    assert [pod_state.is_tracked(pod) for pod in await cluster.pods()] == [False]


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=5)
async def test_a_pod_that_names_no_controller_loses_the_finalizer(cluster: JobCluster) -> None:
    pod = {
        "metadata": {"name": "alone", "finalizers": [pod_state.TRACKING_FINALIZER]},
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
    }
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)
    await cluster.sleep(5)
    [pod_after] = await cluster.pods()
    assert not pod_state.is_tracked(pod_after)


@cases(
    "version want",
    {
        "of Jobs as they are": ("batch/v1", False),
        "of another version": ("batch/v1beta1", True),
        "of another group": ("example.com/v1", True),
    },
)
@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_only_pods_of_jobs_lose_the_finalizer_when_their_owner_is_not_there(
    cluster: JobCluster, version: str, want: bool
) -> None:
    """Behaviour A20.3: a kind of that name elsewhere may track its pods alike."""
    owner = {"apiVersion": version, "kind": "Job", "name": "x", "uid": "x", "controller": True}
    pod = {
        "metadata": {
            "name": "theirs",
            "finalizers": [pod_state.TRACKING_FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
    }
    await cluster.client.create(kinds.PODS, pod, namespace=NAMESPACE)
    await cluster.sleep(5)
    [pod_after] = await cluster.pods()
    assert pod_state.is_tracked(pod_after) is want


BARE: dict[str, Any] = {
    "manualSelector": True,
    "selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
}


@virtual(JobCluster, seeds=3)
async def test_an_index_is_label_enough_for_a_pod(cluster: JobCluster) -> None:
    """Behaviour A8.10."""
    await cluster.submit(completionMode="Indexed", completions=2, parallelism=2, **BARE)
    job = await cluster.finished(within=60)
    assert job.status.completed_indexes == "0,1"
    labels = [pod.metadata.labels for pod in cluster.kubelet.created]
    assert labels == [{pod_state.COMPLETION_INDEX: index} for index in "01"]


@virtual(JobCluster, seeds=3)
async def test_a_pod_without_any_label_is_not_made(cluster: JobCluster) -> None:
    """Behaviour A8.10."""
    await cluster.submit(**BARE)
    await cluster.sleep(60)
    assert cluster.kubelet.created == []


@virtual(seeds=3)
async def test_a_bare_pod_costs_nothing_for_jobs_that_want_none(sim: Sim) -> None:
    """Selectors are built for Jobs at work, and one of these may still adopt the pod (A25.1)."""
    selectors: list[str] = []
    original = pod_adoption.selector_of

    def selector_of(job: Job) -> LabelSelector:
        selectors.append(job.metadata.name)
        return original(job)

    def script(pod: Pod, _: int) -> Run:
        return OK if pod.metadata.name.startswith("over") else FOREVER

    async with JobCluster(sim, script) as cluster:
        labels: dict[str, Any] = {"app": "x"}
        selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
        await cluster.submit("over", labels=labels, **selector)
        await cluster.finished("over")
        await cluster.submit("others", labels=labels, managedBy="example.com/other", **selector)
        await cluster.submit("works", labels={"app": "y"}, completions=2)
        await cluster.sleep(5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pod_adoption, "selector_of", selector_of)
            await stray(cluster, "bare", labels)
            await cluster.sleep(5)
        assert selectors == ["works"]
