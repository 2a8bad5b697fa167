# SPDX-License-Identifier: Apache-2.0
"""What a user with the role `edit` can write does not decide what a Job counts, or how it ends.

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
from refloat.controllers.job import attempts
from refloat.policy import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_scenarios import indexed, policy, rule
from tests.simulation.job_world import FAILS, FOREVER, NAMESPACE, OK, Run, World
from tests.virtual import virtual

TRACKED = {"finalizers": [pod_state.TRACKING_FINALIZER]}
UNTRACKED = {"$deleteFromPrimitiveList/finalizers": [pod_state.TRACKING_FINALIZER]}


async def write(world: World, pod: Pod, metadata: Object) -> None:
    """Change a pod's metadata, as a user may."""
    await world.client.patch(
        kinds.PODS,
        pod.metadata.name,
        {"metadata": metadata},
        patch_type="strategic",
        namespace=NAMESPACE,
    )


async def annotate_job(world: World, annotations: dict[str, str]) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await world.client.patch(kinds.JOBS, "job", patch, namespace=NAMESPACE)


def labels(world: World, family: str) -> set[str]:
    """All values of labels of a family of metrics."""
    return {
        value
        for known in world.process.registry.collect()
        if known.name == family
        for sample in known.samples
        for value in sample.labels.values()
    }


@pytest.mark.parametrize("succeeded", [True, False])
@virtual(seeds=3)
async def test_an_annotation_does_not_end_a_job(sim: Sim, succeeded: bool) -> None:
    async with job_world.world(sim, job_world.in_turn(Run(seconds=20))) as world:
        job = await world.submit(completions=3, parallelism=3)
        await world.sleep(3)
        forged = {"uid": job.metadata.uid, "succeeded": succeeded, "reason": "Whatever"}
        text = json.dumps({**forged, "message": "m"})
        await annotate_job(world, {"refloat.dev/decision": text})
        job = await world.finished()
        assert (job.status.conditions or ())[-1].reason == "CompletionsReached"
        assert (job.status.succeeded, job.status.failed) == (3, 0)
        assert "Whatever" not in labels(world, "job_controller_jobs_finished")


@virtual(seeds=3)
async def test_the_record_of_failures_does_not_decide_what_counts(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FAILS, FOREVER)) as world:
        rules = policy(rule("Ignore", 99))
        await world.submit(completions=2, parallelism=2, backoffLimit=0, **rules)
        await world.sleep(3)
        entries = [
            {"pod": pod.metadata.name, "uid": pod.metadata.uid, "action": "Ignore", "rule": 0}
            for pod in await world.pods()
        ]
        await annotate_job(world, {attempts.ANNOTATION: json.dumps(entries)})
        job = await world.finished()
        assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
        assert job.status.failed == 2


async def counted_success(world: World) -> Pod:
    """A pod that ended well and is counted, of a Job that wants three and runs the second."""
    await world.submit(completions=3, parallelism=1)
    await world.sleep(10)
    assert (await world.job()).status.succeeded == 1
    return world.kubelet.created[0]


@pytest.mark.parametrize("restart", [False, True], ids=["at once", "after a restart"])
@virtual(seeds=3)
async def test_an_annotation_has_no_pod_counted_again(sim: Sim, restart: bool) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        pod = await counted_success(world)
        await write(world, pod, {"annotations": {"refloat.dev/released": pod.metadata.uid}})
        if restart:
            await world.restart()
        await world.sleep(10)
        assert (await world.job()).status.succeeded == 1


@virtual(seeds=3)
async def test_a_finalizer_that_is_put_back_has_no_pod_counted_again(sim: Sim) -> None:
    """Kubernetes counts it once more."""
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        pod = await counted_success(world)
        await write(world, pod, TRACKED)
        await world.sleep(10)
        assert (await world.job()).status.succeeded == 1
        found = await world.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
        assert not pod_state.is_tracked(found)


@virtual(seeds=3)
async def test_a_finalizer_that_is_put_back_before_a_restart_counts_as_in_kubernetes(
    sim: Sim,
) -> None:
    """What remains: the status has no room for the pods that were counted ever."""
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        pod = await counted_success(world)
        await world.process.stop()
        await write(world, pod, TRACKED)
        await world.restart()
        await world.sleep(10)
        assert (await world.job()).status.succeeded == 2


@virtual(seeds=3)
async def test_a_pod_whose_finalizer_is_taken_away_is_counted(sim: Sim) -> None:
    """Kubernetes counts it never."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=9, exit_code=1), OK)) as world:
        await world.submit(backoffLimit=0)
        await world.sleep(3)
        await write(world, world.kubelet.created[0], UNTRACKED)
        job = await world.finished()
        assert (job.status.conditions or ())[-1].reason == "BackoffLimitExceeded"
        assert (job.status.failed, len(world.kubelet.created)) == (1, 1)


@virtual(seeds=3)
async def test_another_index_on_a_pod_completes_no_more_indexes_than_pods(sim: Sim) -> None:
    """As in Kubernetes: the pod is one too many of that index, and its own runs anew."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=9))) as world:
        await world.submit(**indexed(2))
        await world.sleep(3)
        pod = next(p for p in world.kubelet.created if pod_state.completion_index(p) == 0)
        await write(world, pod, {"annotations": {pod_state.COMPLETION_INDEX: "1"}})
        job = await world.finished()
        assert (job.status.completed_indexes, len(world.kubelet.created)) == ("0,1", 3)


@pytest.mark.parametrize(("failures", "want"), [("100", "0"), ("0", "0")], ids=["more", "fewer"])
@virtual(seeds=3)
async def test_forged_failures_of_an_index_concern_that_index_alone(
    sim: Sim, failures: str, want: str
) -> None:
    """As in Kubernetes: it fails sooner or later, and the others complete."""
    script = job_world.by_index(i0=Run(seconds=9, exit_code=1))
    async with job_world.world(sim, script) as world:
        await world.submit(**indexed(2, backoffLimitPerIndex=1))
        await world.sleep(3)
        pod = next(p for p in world.kubelet.created if pod_state.completion_index(p) == 0)
        await write(world, pod, {"annotations": {pod_state.INDEX_FAILURES: failures}})
        job = await world.finished()
        assert (job.status.completed_indexes, job.status.failed_indexes) == ("1", want)


@virtual(seeds=3)
async def test_a_reason_for_a_deletion_on_a_pod_that_runs_means_nothing(sim: Sim) -> None:
    """Only of a pod that is being deleted: a request of someone who may delete it."""
    async with job_world.world(sim, job_world.in_turn(Run(seconds=9, exit_code=1))) as world:
        await world.submit(backoffLimit=0)
        await world.sleep(3)
        reason = {"refloat.dev/deletion-reason": "NodeLost"}
        await write(world, world.kubelet.created[0], {"annotations": reason})
        job = await world.finished()
        assert job.status.failed == 1


@virtual(seeds=3)
async def test_the_name_of_another_controller_is_no_label_of_a_metric(sim: Sim) -> None:
    async with job_world.world(sim) as world:
        for number, name in enumerate(("a.example/x", "b.example/y", "kueue.x-k8s.io/multikueue")):
            await world.submit(f"job-{number}", managedBy=name)
        await world.sleep(3)
        family = "job_controller_jobs_by_external_controller"
        assert labels(world, family) == {"Other", "kueue.x-k8s.io/multikueue"}


@virtual(seeds=3)
async def test_the_reason_of_a_condition_is_no_label_unless_it_is_known(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit()
        await world.sleep(3)
        condition = {"type": "FailureTarget", "status": "True", "reason": "Own", "message": "m"}
        await world.client.patch(
            kinds.JOBS,
            "job",
            {"status": {"conditions": [condition]}},
            namespace=NAMESPACE,
            subresource="status",
        )
        job = await world.finished()
        assert (job.status.conditions or ())[-1].reason == "Own"
        assert labels(world, "job_controller_jobs_finished") >= {"failed", "Other"}
        assert "Own" not in labels(world, "job_controller_jobs_finished")


@pytest.mark.parametrize("kind", ["EVENTS", "CONFIG_MAPS", "SECRETS"])
def test_no_controller_reads_what_only_people_and_tools_read(kind: str) -> None:
    sources = Path(refloat.controllers.__file__).parent.rglob("*.py")
    assert [each.name for each in sources if f"kinds.{kind}" in each.read_text()] == []
