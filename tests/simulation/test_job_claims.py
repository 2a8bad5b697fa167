# SPDX-License-Identifier: Apache-2.0
"""Whose a pod is, whose a Job is, and pods that are nobody's any more."""

from typing import Any

import pytest

from refloat.api.batch import Job
from refloat.api.core import Pod
from refloat.api.selectors import LabelSelector
from refloat.client import errors, kinds
from refloat.client.contract import DeleteOptions
from refloat.client.requests import Request
from refloat.controllers.job import claims, orphans
from refloat.controllers.job.settings import Settings
from refloat.policy import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_world import FOREVER, NAMESPACE, OK, Run, World
from tests.virtual import virtual


async def patched(world: World, pod: Pod, metadata: dict[str, Any]) -> None:
    patch = {"metadata": metadata}
    await world.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)


async def stray(world: World, name: str, labels: dict[str, str]) -> None:
    """A pod that nobody controls."""
    spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
    pod = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await world.client.create(kinds.PODS, pod, namespace=NAMESPACE)


@virtual(seeds=20)
async def test_a_pod_that_matches_is_adopted_and_counts(sim: Sim) -> None:
    async with job_world.world(sim) as world:
        spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
        labels: dict[str, Any] = {"app": "x"}
        pod = {"metadata": {"name": "stray", "labels": labels}, "spec": spec}
        await world.client.create(kinds.PODS, pod, namespace=NAMESPACE)
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {
            "metadata": {"name": "job"},
            "spec": {
                "manualSelector": True,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }
        job = await world.client.create(kinds.JOBS, body, namespace=NAMESPACE)
        await world.sleep(2)
        found = await world.client.get(kinds.PODS, "stray", namespace=NAMESPACE)
        assert found.metadata.controller is not None
        assert found.metadata.controller.uid == job.metadata.uid
        assert pod_state.is_tracked(found)
        done = await world.finished()
        assert done.status.succeeded == 1
        assert [each.metadata.name for each in world.kubelet.created] == ["stray"]


@virtual(seeds=5)
async def test_more_successes_than_asked_for_are_told_of(sim: Sim) -> None:
    """Behaviour A6.3, A22.1: before the end itself is."""
    async with job_world.world(sim) as world:
        labels: dict[str, Any] = {"app": "x"}
        for name in ("one", "two"):
            await stray(world, name, labels)
        await world.sleep(10)
        selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
        await world.submit(labels=labels, completions=1, **selector)
        job = await world.finished()
        assert (job.status.succeeded, len(world.kubelet.created)) == (2, 2)
        assert world.told.events == [
            (
                "Warning",
                "TooManySucceededPods",
                "Too many succeeded pods running after completion count reached",
            ),
            ("Normal", "Completed", "Job completed"),
        ]


@virtual(seeds=5)
async def test_a_counted_pod_whose_labels_change_is_released(sim: Sim) -> None:
    """Behaviour A2.4: also after it is over, while its Job is not; its count stays."""
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        await world.submit(completions=2, parallelism=1)
        await world.sleep(10)
        assert (await world.job()).status.succeeded == 1
        pod = world.kubelet.created[0]
        await patched(world, pod, {"labels": {"batch.kubernetes.io/controller-uid": None}})
        await world.sleep(3)
        released = await world.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
        assert released.metadata.owner_references is None
        status = (await world.job()).status
        assert (status.succeeded, status.active, len(world.kubelet.created)) == (1, 1, 2)


@virtual(seeds=5)
async def test_counted_pods_of_a_selector_of_its_own_stay(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        labels: dict[str, Any] = {"app": "x"}
        selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
        await world.submit(labels=labels, completions=2, parallelism=1, **selector)
        await world.sleep(10)
        first = world.kubelet.created[0]
        await patched(world, first, {"labels": {"other": "y"}})
        await world.sleep(3)
        kept = await world.client.get(kinds.PODS, first.metadata.name, namespace=NAMESPACE)
        assert kept.metadata.controller is not None
        await patched(world, first, {"labels": {"app": None}})
        await world.sleep(3)
        kept = await world.client.get(kinds.PODS, first.metadata.name, namespace=NAMESPACE)
        assert kept.metadata.controller is None


async def relabelled(world: World) -> Pod:
    """A counted pod of a Job that goes on, with a selector of its own that it no longer matches."""
    labels: dict[str, Any] = {"app": "x"}
    selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
    await world.submit(labels=labels, completions=2, parallelism=1, **selector)
    await world.sleep(10)
    pod = world.kubelet.created[0]
    await patched(world, pod, {"labels": {"app": None}})
    return pod


async def is_owned(world: World, pod: Pod) -> bool:
    found = await world.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
    return found.metadata.controller is not None


@virtual(seeds=5)
async def test_a_counted_pod_that_could_not_be_released_is_tried_again(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(OK, FOREVER)) as world:
        refusals = [errors.Unavailable("not now") for _ in range(3)]

        def refuse(request: Request, _: int) -> errors.ClientError | None:
            releases = b'"$patch"' in (request.body or b"")
            return refusals.pop() if releases and refusals else None

        world.process.client.refuses = refuse
        pod = await relabelled(world)
        await world.sleep(5)
        assert await is_owned(world, pod)
        await world.sleep(30)
        assert not await is_owned(world, pod)
        assert refusals == []


@virtual(seeds=5)
async def test_a_counted_pod_whose_labels_changed_while_nobody_looked_is_released(
    sim: Sim,
) -> None:
    async with job_world.world(sim, job_world.in_turn(Run(seconds=8), FOREVER)) as world:
        world.process.client.dies_on = lambda request: b'"$patch"' in (request.body or b"")
        pod = await relabelled(world)
        await world.process.client.died.wait()
        assert await is_owned(world, pod)
        await world.restart()
        await world.sleep(3)
        assert not await is_owned(world, pod)


@virtual(seeds=20)
async def test_a_pod_whose_labels_change_is_released_and_replaced(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER, job_world.OK)) as world:
        await world.submit()
        await world.sleep(3)
        [pod] = await world.pods()
        await patched(world, pod, {"labels": {"batch.kubernetes.io/controller-uid": None}})
        job = await world.finished()
        assert (job.status.succeeded, job.status.failed) == (1, 0)
        released = await world.client.get(kinds.PODS, pod.metadata.name, namespace=NAMESPACE)
        assert released.metadata.owner_references is None
        assert not pod_state.is_tracked(released)
        assert len(world.kubelet.created) == 2


@virtual(seeds=20)
async def test_pods_of_a_job_that_is_gone_lose_their_finalizer(sim: Sim) -> None:
    """Behaviour A20.3."""
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit(parallelism=3, completions=3)
        await world.sleep(3)
        options = DeleteOptions(propagation="Background")
        await world.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
        await world.sleep(3)
        pods = await world.pods()
        assert len(pods) == 3
        assert not any(pod_state.is_tracked(pod) for pod in pods)


@virtual(seeds=5)
async def test_a_job_that_is_being_deleted_creates_nothing_and_lets_its_pods_go(sim: Sim) -> None:
    """Behaviour A20.1."""
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        await world.submit()
        await world.sleep(3)
        options = DeleteOptions(propagation="Foreground")
        await world.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=options)
        await world.sleep(3)
        [pod] = await world.pods()
        assert not pod_state.is_tracked(pod)
        await world.delete_pod(pod.metadata.name)
        await world.sleep(30)
        assert len(world.kubelet.created) == 1
        assert (await world.job()).status.failed == 0


@virtual(seeds=5)
async def test_another_controllers_job_is_left_alone(sim: Sim) -> None:
    async with job_world.world(sim) as world:
        await world.submit(managedBy="example.com/other")
        await world.sleep(30)
        job = await world.job()
        assert (job.status.start_time, world.kubelet.created) == (None, [])
        count = world.process.registry.get_sample_value(
            "job_controller_jobs_by_external_controller_total",
            {"controller_name": "Other"},
        )
        assert count == 1


@virtual(seeds=5)
async def test_beside_kubernetes_only_jobs_that_name_refloat_are_taken_care_of(sim: Sim) -> None:
    async with job_world.world(sim, settings=Settings(takes_default=False)) as world:
        await world.submit("plain")
        await world.submit("reserved", managedBy="kubernetes.io/job-controller")
        await world.submit("ours", managedBy="refloat.dev/job-controller")
        await world.finished("ours")
        owners = [pod.metadata.controller for pod in world.kubelet.created]
        assert [owner.name for owner in owners if owner is not None] == ["ours"]


@virtual(seeds=3)
async def test_beside_kubernetes_pods_of_jobs_that_are_gone_lose_the_finalizer_after_a_wait(
    sim: Sim,
) -> None:
    """Kubernetes' controller comes first, if it runs; without it the pods could never go."""
    how = DeleteOptions(propagation="Background")
    beside = Settings(takes_default=False)
    async with job_world.world(sim, job_world.in_turn(FOREVER), beside) as world:
        await world.submit(managedBy="refloat.dev/job-controller")
        await world.sleep(5)
        await world.client.delete(kinds.JOBS, "job", namespace=NAMESPACE, options=how)
        await world.sleep(orphans.OTHERS_FIRST_SECONDS - 1)
        assert [pod_state.is_tracked(pod) for pod in await world.pods()] == [True]
        await world.sleep(2)
        assert [pod_state.is_tracked(pod) for pod in await world.pods()] == [False]


@virtual(seeds=5)
async def test_a_pod_that_names_no_controller_loses_the_finalizer(sim: Sim) -> None:
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        pod = {
            "metadata": {"name": "alone", "finalizers": [pod_state.TRACKING_FINALIZER]},
            "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
        }
        await world.client.create(kinds.PODS, pod, namespace=NAMESPACE)
        await world.sleep(5)
        [found] = await world.pods()
        assert not pod_state.is_tracked(found)


@pytest.mark.parametrize(
    ("version", "want"),
    [
        pytest.param("batch/v1", False, id="of Jobs as they are"),
        pytest.param("batch/v1beta1", True, id="of another version"),
        pytest.param("example.com/v1", True, id="of another group"),
    ],
)
@virtual(seeds=3)
async def test_only_pods_of_jobs_lose_the_finalizer_when_their_owner_is_not_there(
    sim: Sim, version: str, want: bool
) -> None:
    """Behaviour A20.3: a kind of that name elsewhere may track its pods alike."""
    async with job_world.world(sim, job_world.in_turn(FOREVER)) as world:
        owner = {"apiVersion": version, "kind": "Job", "name": "x", "uid": "x", "controller": True}
        pod = {
            "metadata": {
                "name": "theirs",
                "finalizers": [pod_state.TRACKING_FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
        }
        await world.client.create(kinds.PODS, pod, namespace=NAMESPACE)
        await world.sleep(5)
        [found] = await world.pods()
        assert pod_state.is_tracked(found) is want


BARE: dict[str, Any] = {
    "manualSelector": True,
    "selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
}


@virtual(seeds=3)
async def test_an_index_is_label_enough_for_a_pod(sim: Sim) -> None:
    """Behaviour A8.10."""
    async with job_world.world(sim) as world:
        await world.submit(completionMode="Indexed", completions=2, parallelism=2, **BARE)
        job = await world.finished(within=60)
        assert job.status.completed_indexes == "0,1"
        labels = [pod.metadata.labels for pod in world.kubelet.created]
        assert labels == [{pod_state.COMPLETION_INDEX: index} for index in "01"]


@virtual(seeds=3)
async def test_a_pod_without_any_label_is_not_made(sim: Sim) -> None:
    """Behaviour A8.10."""
    async with job_world.world(sim) as world:
        await world.submit(**BARE)
        await world.sleep(60)
        assert world.kubelet.created == []


@virtual(seeds=3)
async def test_a_bare_pod_costs_nothing_for_jobs_that_want_none(sim: Sim) -> None:
    """Selectors are built for Jobs at work, and one of these may still adopt it (A25.1)."""
    asked: list[str] = []
    built = claims.selector_of

    def selector_of(job: Job) -> LabelSelector:
        asked.append(job.metadata.name)
        return built(job)

    def script(pod: Pod, _: int) -> Run:
        return OK if pod.metadata.name.startswith("over") else FOREVER

    async with job_world.world(sim, script) as world:
        labels: dict[str, Any] = {"app": "x"}
        selector: dict[str, Any] = {"manualSelector": True, "selector": {"matchLabels": labels}}
        await world.submit("over", labels=labels, **selector)
        await world.finished("over")
        await world.submit("others", labels=labels, managedBy="example.com/other", **selector)
        await world.submit("works", labels={"app": "y"}, completions=2)
        await world.sleep(5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claims, "selector_of", selector_of)
            await stray(world, "bare", labels)
            await world.sleep(5)
        assert asked == ["works"]
