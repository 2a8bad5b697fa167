# SPDX-License-Identifier: Apache-2.0
"""Whose a pod is, whose a Job is, and pods that are nobody's any more."""

from typing import Any

from refloat.api.core import Pod
from refloat.client import kinds
from refloat.client.contract import DeleteOptions
from refloat.controllers.job.settings import Settings
from refloat.policy import pod_state
from refloat.sim.run import Sim
from tests.simulation import job_world
from tests.simulation.job_world import FOREVER, NAMESPACE, World
from tests.virtual import virtual


async def patched(world: World, pod: Pod, metadata: dict[str, Any]) -> None:
    patch = {"metadata": metadata}
    await world.client.patch(kinds.PODS, pod.metadata.name, patch, namespace=NAMESPACE)


@virtual(seeds=20)
async def test_a_pod_that_matches_is_adopted_and_counts(sim: Sim) -> None:
    async with job_world.world(sim) as world:
        spec = {"containers": [{"name": "main", "image": "busybox:1"}], "restartPolicy": "Never"}
        labels = {"app": "x"}
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
            {"controller_name": "example.com/other"},
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
