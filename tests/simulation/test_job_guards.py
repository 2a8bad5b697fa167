# SPDX-License-Identifier: Apache-2.0
"""Guards of the Job controller that only matter when caches and writes cross."""

from dataclasses import replace

import pytest

from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.job import pod_adoption
from refloat.controllers.job.controller import JOB_INDEXES, POD_INDEXES
from refloat.controllers.job.orphans import OrphanPods
from refloat.controllers.job.sync import JobContext
from refloat.policy.job import pod_state
from refloat.runtime.cache import Cache, key_of
from refloat.runtime.errors import Retry
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster
from tests.virtual import virtual


def context_of(cluster: JobCluster) -> JobContext:
    return cluster.context


async def patched(cluster: JobCluster, pod: Pod, metadata: Object) -> None:
    await cluster.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"metadata": metadata},
        patch_type="strategic",
        namespace=NAMESPACE,
    )


async def is_tracked(cluster: JobCluster, pod: Pod) -> bool:
    newest = await cluster.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    return pod_state.is_tracked(newest)


async def orphan(cluster: JobCluster) -> Pod:
    """A tracked pod of a Job that is gone, beside a new Job of the same name; no controller."""
    await cluster.submit()
    await cluster.sleep(3)
    await cluster.stop()
    options = DeleteOptions(propagation="Background")
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
    await cluster.submit()
    [pod] = await cluster.pods()
    assert pod_state.is_tracked(pod)
    return pod


# -- orphans ------------------------------------------------------------------------


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_another_job_of_the_same_name_does_not_keep_an_orphan(cluster: JobCluster) -> None:
    pod = await orphan(cluster)
    await cluster.restart()
    await cluster.sleep(5)
    assert not await is_tracked(cluster, pod)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_another_live_job_of_same_name_does_not_keep_an_orphan(cluster: JobCluster) -> None:
    """The cache of Jobs is behind, so that the API is asked."""
    pod = await orphan(cluster)
    pods = Cache(POD_INDEXES)
    pods.put(key_of(pod), pod)
    context = replace(context_of(cluster), jobs=Cache(JOB_INDEXES), pods=pods)
    await OrphanPods(context).reconcile(key_of(pod))
    assert not await is_tracked(cluster, pod)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_an_orphan_that_has_changed_keeps_its_finalizer(cluster: JobCluster) -> None:
    """A Job may have adopted the pod since, and counts on the finalizer."""
    pod = await orphan(cluster)
    pods = Cache(POD_INDEXES)
    pods.put(key_of(pod), pod)
    await patched(cluster, pod, {"labels": {"changed": "since"}})
    context = replace(context_of(cluster), jobs=Cache(JOB_INDEXES), pods=pods)
    with pytest.raises(errors.Conflict):
        await OrphanPods(context).reconcile(key_of(pod))
    assert await is_tracked(cluster, pod)


@virtual(JobCluster, seeds=3)
async def test_a_pod_of_a_finished_job_does_not_keep_a_finalizer_that_it_gets_later(
    cluster: JobCluster,
) -> None:
    await cluster.submit()
    await cluster.finished()
    await cluster.sleep(5)
    pod = cluster.kubelet.created[0]
    await patched(cluster, pod, {"finalizers": [pod_state.TRACKING_FINALIZER]})
    await cluster.sleep(5)
    assert not await is_tracked(cluster, pod)


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_pods_of_a_job_that_is_finished_lose_their_finalizers(cluster: JobCluster) -> None:
    """Behaviour A20.4: though nothing happens to the pods."""
    await cluster.submit()
    await cluster.sleep(3)
    now = (await cluster.job()).status.start_time
    conditions = [
        {"type": kind, "status": "True", "reason": "CompletionsReached", "message": "m"}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {"conditions": conditions, "completionTime": now, "active": 0, "ready": 0}
    await cluster.client.patch(
        kinds.JOBS, "job", {"status": status}, namespace=NAMESPACE, subresource="status"
    )
    await cluster.sleep(5)
    assert not await is_tracked(cluster, cluster.kubelet.created[0])


# -- expectations and adoption -------------------------------------------------------


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_an_update_of_a_pod_is_no_creation(cluster: JobCluster) -> None:
    job = await cluster.submit()
    await cluster.sleep(3)
    expectations = context_of(cluster).memory.expectations
    expectations.expect_creations(job.metadata.uid, 1)
    await patched(cluster, cluster.kubelet.created[0], {"labels": {"changed": "since"}})
    await cluster.sleep(3)
    assert not expectations.satisfied(job.metadata.uid)


@pytest.mark.parametrize("how", ["Foreground", "Background"])
@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_a_job_that_is_deleted_adopts_no_pod_though_the_cache_has_the_job(
    cluster: JobCluster, how: str
) -> None:
    """Behaviour A2.5: the Job itself is asked for."""
    job = await cluster.submit()
    await cluster.sleep(3)
    await cluster.stop()
    [pod] = await cluster.pods()
    await patched(
        cluster, pod, {"ownerReferences": [{"$patch": "delete", "uid": job.metadata.uid}]}
    )
    cached = await cluster.job()
    options = DeleteOptions(propagation=how)  # type: ignore[arg-type]
    await cluster.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
    [pod] = await cluster.pods()
    pods = Cache(POD_INDEXES)
    pods.put(key_of(pod), pod)
    with pytest.raises((Retry, errors.NotFound)):
        await pod_adoption.claim(
            cluster.client, pods, cached, released=(), mislabelled=False, wrote=lambda _: None
        )
    [pod] = await cluster.pods()
    assert pod.metadata.owner_references is None


# -- the back-off record --------------------------------------------------------------


@virtual(JobCluster, job_cluster.in_turn(FAILS, OK), seeds=3)
async def test_a_failure_whose_write_is_refused_three_times_counts_once_for_the_delay(
    cluster: JobCluster,
) -> None:
    """Behaviour A5.8: else four failures would delay the next pod by 80 s."""
    refusals = [errors.Unavailable("not now") for _ in range(3)]

    def refuse(request: Request, _: int) -> errors.ClientError | None:
        lists = b'"uncountedTerminatedPods":{"succeeded":null,"failed":[' in (request.body or b"")
        return refusals.pop() if lists and refusals else None

    cluster.faulty.refuses = refuse
    await cluster.submit()
    await cluster.finished()
    assert refusals == []
    assert cluster.kubelet.created_at[1] <= 5 + 10 + 5
