# SPDX-License-Identifier: Apache-2.0
"""The story of a Job whose pod is evicted, as its watches show it.

Until the controllers and nodes exist, the story plays their parts through the
API, write by write; the server holds it to every rule that they are held to.
"""

from dataclasses import dataclass

from refloat.api import schema
from refloat.base.clock import Clock
from refloat.demo import objects
from refloat.demo.errors import StoryFailed
from refloat.demo.objects import Object
from refloat.demo.stage import Stage
from refloat.demo.view import View

SPACE = "/api/v1/namespaces/demo"
PODS = f"{SPACE}/pods"
JOBS = "/apis/batch/v1/namespaces/demo/jobs"
BUDGETS = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets"
JOB = f"{JOBS}/train"


@dataclass(frozen=True, slots=True)
class _Cast:
    """What the story works with, once there is a namespace."""

    stage: Stage
    clock: Clock
    pods: View
    jobs: View
    budgets: View

    async def pod(self, owner: Object, node: str) -> Object:
        """A new pod of the Job, bound and running, as three components bring it about."""
        client = self.stage.client
        made = await self.pods.shown(await client.create(PODS, objects.pod_of(owner)))
        name = made["metadata"]["name"]
        await client.create(f"{PODS}/{name}/binding", objects.binding(made, node))
        return await self.status(name, objects.running(self.clock.now()))

    async def status(self, pod: str, status: Object) -> Object:
        """What a kubelet does."""
        return await self.pods.shown(await self.stage.client.patch(f"{PODS}/{pod}/status", status))

    async def job(self, status: Object) -> None:
        """What the Job controller does."""
        await self.jobs.shown(await self.stage.client.patch(f"{JOB}/status", status))

    async def release(self, pod: str) -> Object:
        """What the Job controller does to a pod that it has taken into account."""
        return await self.stage.client.patch(f"{PODS}/{pod}", {"metadata": {"finalizers": None}})


async def act(stage: Stage) -> None:
    """Play it."""
    cast = await _set_up(stage)
    owner = await _create_job(cast)
    await stage.step("Two pods: created, bound to nodes, running")
    await cast.job(objects.job_started(cast.clock.now()))
    first = await cast.pod(owner, "node-a")
    second = await cast.pod(owner, "node-b")
    await cast.job(objects.job_counts(active=2))
    await _conflict(cast)
    await _evict(cast, owner, first, second)
    third = await _replace(cast, owner, first)
    await _complete(cast, [second, third])
    await _replay(cast)
    await stage.step("The end, in the server's own tables")
    await stage.table(JOBS, headline="$ kubectl get jobs")
    await stage.table(PODS, headline="$ kubectl get pods")


async def _set_up(stage: Stage) -> _Cast:
    await stage.step("A cluster of its own")
    version = (await stage.client.get("/version"))["gitVersion"]
    assert version.startswith(schema.kubernetes_version())
    stage.answer(f"{stage.url} serves {version} after {stage.seconds * 1000:.0f} ms")
    await stage.client.create("/api/v1/namespaces", objects.namespace("demo"))
    for name in ("node-a", "node-b"):
        await stage.client.create("/api/v1/nodes", objects.node(name))
    stage.answer("created namespace/demo, node/node-a, node/node-b")
    views = [await stage.view(path) for path in (PODS, JOBS, BUDGETS)]
    stage.note("this story plays the kubelet, the scheduler and the controllers itself,")
    stage.note("through the API; below is what its watches see, as it arrives")
    return _Cast(stage, stage.clock, *views)


async def _create_job(cast: _Cast) -> Object:
    stage = cast.stage
    await stage.step("A Job, checked and completed as Kubernetes does it")
    wrong = objects.job("train", completions=2)
    wrong["spec"]["parallelism"] = -1
    await stage.refused(422, "POST", JOBS, wrong)
    owner = await stage.client.create(JOBS, objects.job("train", completions=2))
    return await cast.jobs.shown(owner)


async def _conflict(cast: _Cast) -> None:
    stage = cast.stage
    await stage.step("Two writers: the one who read an old version is told")
    read = await stage.client.get(JOB)
    change = {"metadata": {"annotations": {"example.com/note": "first"}}}
    await cast.jobs.shown(await stage.client.patch(JOB, change))
    await stage.refused(409, "PUT", JOB, read)


async def _evict(cast: _Cast, owner: Object, first: Object, second: Object) -> None:
    stage = cast.stage
    await stage.step("A budget lets one pod go, not two")
    wanted = objects.budget("train", owner, min_available=1)
    await cast.budgets.shown(await stage.client.create(BUDGETS, wanted))
    status = objects.budget_status(healthy=2, desired=1)
    await cast.budgets.shown(await stage.client.patch(f"{BUDGETS}/train/status", status))
    name = first["metadata"]["name"]
    await stage.client.create(f"{PODS}/{name}/eviction", objects.eviction(first))
    await cast.pods.shown(await stage.client.get(f"{PODS}/{name}"))
    await cast.budgets.shown(await stage.client.get(f"{BUDGETS}/train"))
    other = second["metadata"]["name"]
    await stage.refused(429, "POST", f"{PODS}/{other}/eviction", objects.eviction(second))


async def _replace(cast: _Cast, owner: Object, evicted: Object) -> Object:
    stage = cast.stage
    await stage.step("The evicted pod ends; a finalizer keeps it until the Job knows")
    name = evicted["metadata"]["name"]
    await cast.status(name, objects.ended(cast.clock.now(), exit_code=143))
    held = await stage.client.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    await cast.pods.shown(held)
    stage.note(f"deleted, yet still there: {', '.join(held['metadata']['finalizers'])}")
    stage.note("the Job's failure policy ignores disruptions, so this is no failure of it")
    await cast.job(objects.job_counts(active=1))
    await cast.release(name)
    await cast.pods.gone(name)
    replacement = await cast.pod(owner, "node-b")
    await cast.job(objects.job_counts(active=2))
    return replacement


async def _complete(cast: _Cast, pods: list[Object]) -> None:
    stage = cast.stage
    await stage.step("Both pods succeed, and so does the Job")
    for pod in pods:
        name = pod["metadata"]["name"]
        await cast.status(name, objects.ended(cast.clock.now(), exit_code=0))
        await cast.pods.shown(await cast.release(name))
    await cast.job(objects.job_counts(active=0, succeeded=2))
    await cast.job(objects.job_complete(cast.clock.now(), succeeded=2))


async def _replay(cast: _Cast) -> None:
    """Watch the pods again, from where the first watch began."""
    stage = cast.stage
    await stage.step("A second watch, from the past: nothing lost, nothing twice")
    shown, seen = cast.pods.events, []
    async for event in stage.client.watch(PODS, cast.pods.revision):
        seen.append((event["type"], event["object"]["metadata"]["resourceVersion"]))
        if len(seen) >= len(shown):
            break
    if seen != shown:
        raise StoryFailed(f"the second watch saw {seen}, the first {shown}")
    stage.answer(
        f"from revision {cast.pods.revision} on: the same {len(seen)} events of pods, in order"
    )
