# SPDX-License-Identifier: Apache-2.0
"""The demo of a Job with an evicted pod, as watches show it.

The demo itself plays the scheduler, the kubelet and the controllers through the API,
write by write. The API server checks each write as it checks theirs.
"""

from dataclasses import dataclass

from refloat.api import schema
from refloat.base.clock import Clock
from refloat.demo import objects
from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.errors import DemoFailed
from refloat.demo.objects import Object
from refloat.demo.view import CollectionView

SPACE = "/api/v1/namespaces/demo"
PODS = f"{SPACE}/pods"
JOBS = "/apis/batch/v1/namespaces/demo/jobs"
BUDGETS = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets"
JOB = f"{JOBS}/train"


@dataclass(frozen=True, slots=True)
class _Players:
    """The writes of the components that the demo plays, and the views of the demo."""

    cluster: DemoCluster
    clock: Clock
    pods: CollectionView
    jobs: CollectionView
    budgets: CollectionView

    async def pod(self, owner: Object, node: str) -> Object:
        """A new pod of the Job, bound and running, by the writes of three components."""
        client = self.cluster.client
        pod = await self.pods.shown(await client.create(PODS, objects.pod_of(owner)))
        name = pod["metadata"]["name"]
        await client.create(f"{PODS}/{name}/binding", objects.binding(pod, node))
        return await self.status(name, objects.running(self.clock.now()))

    async def status(self, pod: str, status: Object) -> Object:
        """Write a status as the kubelet."""
        return await self.pods.shown(
            await self.cluster.client.patch(f"{PODS}/{pod}/status", status)
        )

    async def job(self, status: Object) -> None:
        """Write a status as the Job controller."""
        await self.jobs.shown(await self.cluster.client.patch(f"{JOB}/status", status))

    async def release(self, pod: str) -> Object:
        """Remove the finalizer from a counted pod, as the Job controller does."""
        return await self.cluster.client.patch(f"{PODS}/{pod}", {"metadata": {"finalizers": None}})


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    players = await _set_up(cluster)
    owner = await _create_job(players)
    await cluster.step("Two pods: created, bound to nodes, running")
    await players.job(objects.job_started(players.clock.now()))
    first = await players.pod(owner, "node-a")
    second = await players.pod(owner, "node-b")
    await players.job(objects.job_counts(active=2))
    await _conflict(players)
    await _evict(players, owner, first, second)
    third = await _replace(players, owner, first)
    await _complete(players, [second, third])
    await _replay(players)
    await cluster.step("The end, in the tables of the server")
    await cluster.table(JOBS, headline="$ kubectl get jobs")
    await cluster.table(PODS, headline="$ kubectl get pods")


async def _set_up(cluster: DemoCluster) -> _Players:
    await cluster.step("A temporary cluster")
    version = (await cluster.client.get("/version"))["gitVersion"]
    assert version.startswith(schema.kubernetes_version())
    cluster.answer(f"{cluster.url} serves {version} after {cluster.seconds * 1000:.0f} ms")
    await cluster.client.create("/api/v1/namespaces", objects.namespace("demo"))
    for name in ("node-a", "node-b"):
        await cluster.client.create("/api/v1/nodes", objects.node(name))
    cluster.answer("created namespace/demo, node/node-a, node/node-b")
    views = [await cluster.view(path) for path in (PODS, JOBS, BUDGETS)]
    cluster.note("The demo itself plays the kubelet, the scheduler and the controllers")
    cluster.note("through the API. The lines below are the events of its watches.")
    return _Players(cluster, cluster.clock, *views)


async def _create_job(players: _Players) -> Object:
    cluster = players.cluster
    await cluster.step("A Job: the server checks it and sets defaults, as Kubernetes does")
    wrong = objects.job("train", completions=2)
    wrong["spec"]["parallelism"] = -1
    await cluster.refused(422, "POST", JOBS, wrong)
    owner = await cluster.client.create(JOBS, objects.job("train", completions=2))
    return await players.jobs.shown(owner)


async def _conflict(players: _Players) -> None:
    cluster = players.cluster
    await cluster.step("Two writers: the server refuses a write to an old version")
    job = await cluster.client.get(JOB)
    change = {"metadata": {"annotations": {"example.com/note": "first"}}}
    await players.jobs.shown(await cluster.client.patch(JOB, change))
    await cluster.refused(409, "PUT", JOB, job)


async def _evict(players: _Players, owner: Object, first: Object, second: Object) -> None:
    cluster = players.cluster
    await cluster.step("A budget allows the eviction of one pod, not of two")
    budget = objects.budget("train", owner, min_available=1)
    await players.budgets.shown(await cluster.client.create(BUDGETS, budget))
    status = objects.budget_status(healthy=2, desired=1)
    await players.budgets.shown(await cluster.client.patch(f"{BUDGETS}/train/status", status))
    name = first["metadata"]["name"]
    await cluster.client.create(f"{PODS}/{name}/eviction", objects.eviction(first))
    await players.pods.shown(await cluster.client.get(f"{PODS}/{name}"))
    await players.budgets.shown(await cluster.client.get(f"{BUDGETS}/train"))
    other = second["metadata"]["name"]
    await cluster.refused(429, "POST", f"{PODS}/{other}/eviction", objects.eviction(second))


async def _replace(players: _Players, owner: Object, evicted: Object) -> Object:
    cluster = players.cluster
    await cluster.step(
        "The evicted pod ends; a finalizer keeps the pod until the Job has counted it"
    )
    name = evicted["metadata"]["name"]
    await players.status(name, objects.ended(players.clock.now(), exit_code=143))
    pod = await cluster.client.delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    await players.pods.shown(pod)
    cluster.note(f"deleted, but still there: {', '.join(pod['metadata']['finalizers'])}")
    cluster.note("the Job's failure policy ignores disruptions, so the Job counts no failure")
    await players.job(objects.job_counts(active=1))
    await players.release(name)
    await players.pods.gone(name)
    replacement = await players.pod(owner, "node-b")
    await players.job(objects.job_counts(active=2))
    return replacement


async def _complete(players: _Players, pods: list[Object]) -> None:
    cluster = players.cluster
    await cluster.step("Both pods succeed, and so does the Job")
    for pod in pods:
        name = pod["metadata"]["name"]
        await players.status(name, objects.ended(players.clock.now(), exit_code=0))
        await players.pods.shown(await players.release(name))
    await players.job(objects.job_counts(active=0, succeeded=2))
    await players.job(objects.job_complete(players.clock.now(), succeeded=2))


async def _replay(players: _Players) -> None:
    """Watch the pods again, from the revision of the first watch."""
    cluster = players.cluster
    await cluster.step("A second watch from the same revision: no event lost, no event twice")
    first, second = players.pods.events, []
    async for event in cluster.client.watch(PODS, players.pods.revision):
        second.append((event["type"], event["object"]["metadata"]["resourceVersion"]))
        if len(second) >= len(first):
            break
    if second != first:
        raise DemoFailed(f"the second watch saw {second}, the first {first}")
    cluster.answer(
        f"from revision {players.pods.revision} on: the same {len(second)} events of pods, in order"
    )
