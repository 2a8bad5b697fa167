# SPDX-License-Identifier: Apache-2.0
"""A user with the role `edit` does not decide what a Job counts, or how the Job ends.

Such a user may write Jobs and pods with all their metadata, but no status. Each
test is a row of the table in SECURITY.md. Where Kubernetes heeds such a field,
so does Refloat; the test then shows the most that follows.
"""

import json
from pathlib import Path

import pytest

import refloat.controllers
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.client import kinds
from refloat.policy.job import attempts, pod_state
from tests.simulation import job_cluster
from tests.simulation.controller_cluster import NAMESPACE
from tests.simulation.job_cluster import FAILS, FOREVER, OK, JobCluster, Run
from tests.simulation.job_scenarios import indexed, policy, rule
from tests.virtual import virtual

TRACKED = {"finalizers": [pod_state.TRACKING_FINALIZER]}
UNTRACKED = {"$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER]}


async def write(cluster: JobCluster, pod: Pod, metadata: Object) -> None:
    """Change a pod's metadata, as a user may."""
    await cluster.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"metadata": metadata},
        patch_type="strategic",
        namespace=NAMESPACE,
    )


async def annotate_job(cluster: JobCluster, annotations: dict[str, str]) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await cluster.client.patch(kinds.JOBS, "job", patch, namespace=NAMESPACE)


def labels(cluster: JobCluster, family: str) -> set[str]:
    """All values of labels of a family of metrics."""
    return {
        value
        for each in cluster.metrics.collect()
        if each.name == family
        for sample in each.samples
        for value in sample.labels.values()
    }


@pytest.mark.parametrize("succeeded", [True, False])
@virtual(JobCluster, job_cluster.in_turn(Run(seconds=20)), seeds=3)
async def test_an_annotation_does_not_end_a_job(cluster: JobCluster, succeeded: bool) -> None:
    job = await cluster.submit(completions=3, parallelism=3)
    await cluster.sleep(3)
    forged = {"uid": job.metadata.uid, "succeeded": succeeded, "reason": "Whatever"}
    text = json.dumps({**forged, "message": "m"})
    await annotate_job(cluster, {"refloat.dev/decision": text})
    job = await cluster.finished()
    assert (job.status.conditions or ())[-1].reason == "CompletionsReached"
    assert (job.status.succeeded, job.status.failed) == (3, 0)
    assert "Whatever" not in labels(cluster, "job_controller_jobs_finished")


@virtual(JobCluster, job_cluster.in_turn(FAILS, FOREVER), seeds=3)
async def test_the_record_of_failures_does_not_decide_what_counts(cluster: JobCluster) -> None:
    rules = policy(rule("Ignore", 99))
    await cluster.submit(completions=2, parallelism=2, backoffLimit=0, **rules)
    await cluster.sleep(3)
    entries = [
        {"pod": pod.metadata.name, "uid": pod.metadata.uid, "action": "Ignore", "rule": 0}
        for pod in await cluster.pods()
    ]
    await annotate_job(cluster, {attempts.ANNOTATION: json.dumps(entries)})
    job = await cluster.finished()
    assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
    assert job.status.failed == 2


async def counted_success(cluster: JobCluster) -> Pod:
    """A pod that ended well and is counted, of a Job that wants three and runs the second."""
    await cluster.submit(completions=3, parallelism=1)
    await cluster.sleep(10)
    assert (await cluster.job()).status.succeeded == 1
    return cluster.kubelet.created[0]


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=3)
async def test_an_annotation_has_no_pod_counted_again(cluster: JobCluster, restart: bool) -> None:
    pod = await counted_success(cluster)
    await write(cluster, pod, {"annotations": {"refloat.dev/released": pod.metadata.uid}})
    if restart:
        await cluster.restart()
    await cluster.sleep(10)
    assert (await cluster.job()).status.succeeded == 1


@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=3)
async def test_a_finalizer_that_is_put_back_has_no_pod_counted_again(cluster: JobCluster) -> None:
    """Kubernetes counts the pod once more."""
    pod = await counted_success(cluster)
    await write(cluster, pod, TRACKED)
    await cluster.sleep(10)
    assert (await cluster.job()).status.succeeded == 1
    pod_after = await cluster.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    assert not pod_state.is_tracked(pod_after)


@virtual(JobCluster, job_cluster.in_turn(OK, FOREVER), seeds=3)
async def test_a_finalizer_that_is_put_back_before_a_restart_counts_as_in_kubernetes(
    cluster: JobCluster,
) -> None:
    """What remains: the status has no room for the pods that were counted ever."""
    pod = await counted_success(cluster)
    await cluster.stop()
    await write(cluster, pod, TRACKED)
    await cluster.restart()
    await cluster.sleep(10)
    assert (await cluster.job()).status.succeeded == 2


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=9, exit_code=1), OK), seeds=3)
async def test_a_pod_whose_finalizer_is_taken_away_is_counted(cluster: JobCluster) -> None:
    """Kubernetes never counts the pod."""
    await cluster.submit(backoffLimit=0)
    await cluster.sleep(3)
    await write(cluster, cluster.kubelet.created[0], UNTRACKED)
    job = await cluster.finished()
    assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
    assert (job.status.failed, len(cluster.kubelet.created)) == (1, 1)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=9)), seeds=3)
async def test_another_index_on_a_pod_completes_no_second_index(cluster: JobCluster) -> None:
    """As in Kubernetes: the pod is one too many of that index, and its own runs anew."""
    await cluster.submit(**indexed(2))
    await cluster.sleep(3)
    pod = next(p for p in cluster.kubelet.created if pod_state.completion_index(p) == 0)
    await write(cluster, pod, {"annotations": {pod_state.COMPLETION_INDEX: "1"}})
    job = await cluster.finished()
    assert (job.status.completed_indexes, len(cluster.kubelet.created)) == ("0,1", 3)


@pytest.mark.parametrize(("failures", "want"), [("100", "0"), ("0", "0")], ids=["more", "fewer"])
@virtual(JobCluster, job_cluster.by_index(i0=Run(seconds=9, exit_code=1)), seeds=3)
async def test_forged_failures_of_an_index_concern_that_index_alone(
    cluster: JobCluster, failures: str, want: str
) -> None:
    """As in Kubernetes: the pod fails sooner or later, and the others complete."""
    await cluster.submit(**indexed(2, backoffLimitPerIndex=1))
    await cluster.sleep(3)
    pod = next(p for p in cluster.kubelet.created if pod_state.completion_index(p) == 0)
    await write(cluster, pod, {"annotations": {pod_state.INDEX_FAILURES: failures}})
    job = await cluster.finished()
    assert (job.status.completed_indexes, job.status.failed_indexes) == ("1", want)


@virtual(JobCluster, job_cluster.in_turn(Run(seconds=9, exit_code=1)), seeds=3)
async def test_reason_for_a_deletion_on_a_pod_that_runs_means_nothing(cluster: JobCluster) -> None:
    """Only of a pod that is being deleted: a request of a user who may delete the pod."""
    await cluster.submit(backoffLimit=0)
    await cluster.sleep(3)
    reason = {"refloat.dev/deletion-reason": "NodeLost"}
    await write(cluster, cluster.kubelet.created[0], {"annotations": reason})
    job = await cluster.finished()
    assert job.status.failed == 1


@virtual(JobCluster, seeds=3)
async def test_the_name_of_another_controller_is_no_label_of_a_metric(cluster: JobCluster) -> None:
    for number, name in enumerate(("a.example/x", "b.example/y", "kueue.x-k8s.io/multikueue")):
        await cluster.submit(f"job-{number}", managedBy=name)
    await cluster.sleep(3)
    family = "job_controller_jobs_by_external_controller"
    assert labels(cluster, family) == {"Other", "kueue.x-k8s.io/multikueue"}


@virtual(JobCluster, job_cluster.in_turn(FOREVER), seeds=3)
async def test_reason_of_a_condition_is_no_label_unless_it_is_known(cluster: JobCluster) -> None:
    await cluster.submit()
    await cluster.sleep(3)
    condition = {"type": "FailureTarget", "status": "True", "reason": "Own", "message": "m"}
    await cluster.client.patch(
        kinds.JOBS,
        "job",
        {"status": {"conditions": [condition]}},
        namespace=NAMESPACE,
        subresource="status",
    )
    job = await cluster.finished()
    assert (job.status.conditions or ())[-1].reason == "Own"
    assert labels(cluster, "job_controller_jobs_finished") >= {"failed", "Other"}
    assert "Own" not in labels(cluster, "job_controller_jobs_finished")


@pytest.mark.parametrize("kind", ["EVENTS", "CONFIG_MAPS", "SECRETS"])
def test_no_controller_reads_what_only_people_and_tools_read(kind: str) -> None:
    sources = Path(refloat.controllers.__file__).parent.rglob("*.py")
    assert [each.name for each in sources if f"kinds.{kind}" in each.read_text()] == []
