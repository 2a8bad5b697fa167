# SPDX-License-Identifier: Apache-2.0
"""A user of one namespace does nothing to the Jobs of another.

The user knows the uid of a Job elsewhere, which is no secret, and writes pods of the
own namespace that name the Job: as their controller, in their labels, in their finalizers.
"""

from unittest.mock import Mock

import pytest

from refloat.api import selectors
from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.controllers.job import pod_template as job_pods
from refloat.controllers.job.pod_names import PodNamer
from refloat.controllers.job.sync_memory import SyncMemory
from refloat.policy.job import pod_state
from refloat.policy.job.scaling import NewPod
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import OK, JobCluster, Run
from tests.simulation.job_scenarios import indexed
from tests.virtual import virtual

ELSEWHERE = "elsewhere"


async def forge(cluster: JobCluster, job: Job, name: str = "forged", **owner: str) -> Pod:
    """A pod of another namespace with the Job's labels, owner and finalizer."""
    labels = dict((job.spec.selector and job.spec.selector.match_labels) or {})
    metadata: Object = {
        "name": name,
        "labels": {**labels, "job-name": "job"},
        "annotations": {pod_state.COMPLETION_INDEX: "0"},
        "finalizers": [pod_state.TRACKING_FINALIZER],
        "ownerReferences": [{**job_pods.owner_reference(job), **owner}],
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}]}
    body = {"metadata": metadata, "spec": {**spec, "nodeName": "node-1"}}
    return await cluster.client.create(kinds.PODS, body, namespace=ELSEWHERE)


async def end(cluster: JobCluster, pod: Pod, phase: str) -> None:
    """What the node of the pod writes when it ends."""
    await cluster.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"status": {"phase": phase}},
        namespace=ELSEWHERE,
        subresource="status",
    )


async def elsewhere(cluster: JobCluster) -> list[Pod]:
    return [
        pod
        async for page in cluster.client.list(kinds.PODS, namespace=ELSEWHERE)
        for pod in page.items
    ]


async def open_namespace(cluster: JobCluster) -> None:
    await cluster.client.create(kinds.NAMESPACES, {"metadata": {"name": ELSEWHERE}})


async def put_back(cluster: JobCluster, pod: Pod, seconds: int) -> None:
    """Add the finalizer again, faster than any controller removes it."""
    for number in range(10 * seconds):
        metadata = {"finalizers": [pod_state.TRACKING_FINALIZER], "labels": {"n": str(number)}}
        await cluster.client.patch(
            kinds.PODS,
            pod.metadata.name,
            {"metadata": metadata},
            patch_type="strategic",
            namespace=ELSEWHERE,
        )
        await cluster.sleep(0.1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("spec", [{"completions": 2}, indexed(2)], ids=["plain", "indexed"])
@virtual(JobCluster, job_cluster.in_turn(Run(seconds=2)))
async def test_the_end_of_a_pod_elsewhere_is_not_counted(
    cluster: JobCluster, phase: str, spec: Object
) -> None:
    await open_namespace(cluster)
    job = await cluster.submit(**{**spec, "parallelism": 1, "backoffLimit": 0})
    pod = await forge(cluster, job)
    await end(cluster, pod, phase)
    cluster.watch_faults.lag = 0.2  # the controller's: what it judges has changed meanwhile
    await put_back(cluster, pod, seconds=6)
    status = (await cluster.finished()).status
    assert (status.succeeded, status.failed) == (2, 0)
    assert len(await cluster.pods()) == 2


@virtual(JobCluster, job_cluster.in_turn(OK), seeds=3)
async def test_a_pod_elsewhere_takes_no_place_of_a_job(cluster: JobCluster) -> None:
    await open_namespace(cluster)
    job = await cluster.submit(parallelism=1, completions=1, suspend=True)
    await forge(cluster, job)
    await cluster.sleep(3)
    await cluster.change(suspend=False)
    assert (await cluster.finished()).status.succeeded == 1


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=9)), seeds=3)
async def test_a_job_that_ends_deletes_no_pod_elsewhere(cluster: JobCluster) -> None:
    await open_namespace(cluster)
    job = await cluster.submit(activeDeadlineSeconds=4)
    pod = await forge(cluster, job)
    await cluster.finished()
    (forged,) = await elsewhere(cluster)
    assert (forged.metadata.uid, forged.is_terminating) == (pod.metadata.uid, False)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=60)), seeds=3)
async def test_finalizer_of_pod_elsewhere_is_removed_as_that_of_orphan(cluster: JobCluster) -> None:
    """As in Kubernetes: in its own namespace there is no such Job."""
    await open_namespace(cluster)
    await forge(cluster, await cluster.submit())
    await cluster.sleep(5)
    assert [pod_state.is_tracked(pod) for pod in await elsewhere(cluster)] == [False]


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=60)), seeds=10)
async def test_pods_elsewhere_do_not_stand_for_pods_that_a_job_expects(cluster: JobCluster) -> None:
    """The cache is behind. Each pod that comes elsewhere would count as one that was created."""
    await open_namespace(cluster)
    job = await cluster.submit(parallelism=3, completions=3, suspend=True)
    await cluster.sleep(3)
    expectations = cluster.context.memory.expectations
    expectations.expect_creations(job.metadata.uid, 3)
    for number in range(3):
        await forge(cluster, job, f"forged-{number}")
    await cluster.sleep(3)
    assert not expectations.satisfied(job.metadata.uid)
    for pod in await elsewhere(cluster):
        await cluster.client.delete(kinds.PODS, pod.metadata.name, namespace=ELSEWHERE)
    expectations.expect_deletions(job.metadata.uid, 3)
    await cluster.sleep(3)
    assert not expectations.satisfied(job.metadata.uid)


@pytest.mark.parametrize("lag", [0.0, 5.0], ids=["seen", "not seen yet"])
@pytest.mark.parametrize("spec", [{"completions": 2}, indexed(2)], ids=["plain", "indexed"])
@virtual(JobCluster, job_cluster.in_turn(OK), seeds=3)
async def test_pods_that_have_the_names_of_a_job_s_pods_neither_stop_it_nor_count(
    cluster: JobCluster, spec: Object, lag: float
) -> None:
    """The names are a hash of what all can read. A user of the namespace takes them first."""
    job = await cluster.submit(**{**spec, "parallelism": 1, "suspend": True})
    await cluster.sleep(3)
    namer = PodNamer(job, SyncMemory(cluster.sim.clock), lambda _: False)
    indexes = [0, 1] if "completionMode" in spec else [None, None]
    names = [namer.name(NewPod(index)) for index in [*indexes, *indexes]]
    cluster.watch_faults.lag = lag
    container = {"name": "main", "image": "busybox:1"}
    for name in names:
        body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
        await cluster.client.create(kinds.PODS, body, namespace=NAMESPACE)
    await cluster.change(suspend=False)
    status = (await cluster.finished()).status
    assert (status.succeeded, status.failed) == (2, 0)
    owned = [pod for pod in await cluster.pods() if pod.metadata.controller is not None]
    assert len(owned) == 2
    assert {pod.metadata.name for pod in owned}.isdisjoint(names)


@virtual(JobCluster)
async def test_a_pod_without_a_controller_parses_no_selector_of_all_jobs_anew(
    cluster: JobCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One create of a user would take 30 us of all others' time for each Job of the namespace."""
    for number in range(20):
        await cluster.submit(f"job-{number}", suspend=True)
    await cluster.sleep(3)
    parse = Mock(side_effect=selectors.from_object)
    monkeypatch.setattr(selectors, "from_object", parse)
    container = {"name": "main", "image": "busybox:1"}
    for number in range(20):
        body = {"metadata": {"name": f"p-{number}"}, "spec": {"containers": [container]}}
        await cluster.client.create(kinds.PODS, body, namespace=NAMESPACE)
    await cluster.sleep(3)
    assert parse.call_count <= 20
