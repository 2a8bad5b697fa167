# SPDX-License-Identifier: Apache-2.0
"""The demo of a Job with an evicted pod, as watches show it.

The demo itself plays the scheduler, the kubelet and the controllers through the API,
write by write. The API server checks each write as it checks theirs.
"""

import contextlib
from dataclasses import dataclass

from refloat.api import schema
from refloat.api.meta import Object
from refloat.base.clock import Clock
from refloat.client.contract import DeleteOptions
from refloat.demo import objects
from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.errors import DemoFailed
from refloat.scenario.cluster import JOBS, NODES, PODS, whole
from refloat.scenario.namespace import ScenarioNamespace

SPACE = "demo"
PATHS = {
    "jobs": f"/apis/batch/v1/namespaces/{SPACE}/jobs",
    "pods": f"/api/v1/namespaces/{SPACE}/pods",
}
BUDGETS = whole("poddisruptionbudgets", "policy")
JOB = "train"


@dataclass(frozen=True, slots=True)
class _Players:
    """The writes of the components that the demo plays; each waits for its event."""

    cluster: DemoCluster
    clock: Clock
    ns: ScenarioNamespace
    revision: str
    """Of the watches' begin."""
    owner: Object
    """The Job."""

    async def pod(self, node: str) -> Object:
        """A new pod of the Job, bound and running, by the writes of three components."""
        client = self.cluster.client
        body = objects.pod_of(self.owner)
        pod = await self.ns.shown(await client.create(PODS, body, namespace=SPACE))
        await client.bind(pod["metadata"]["name"], node, namespace=SPACE)
        return await self.status(pod, objects.running(self.clock.now()))

    async def status(self, pod: Object, status: Object) -> Object:
        """Write a status as the kubelet."""
        return await self.ns.shown(await self.ns.patch_pod(pod, status, "status"))

    async def job(self, status: Object) -> None:
        """Write a status as the Job controller."""
        job = await self.cluster.client.patch(
            JOBS, JOB, status, namespace=SPACE, subresource="status"
        )
        await self.ns.shown(job)

    async def release(self, pod: Object) -> Object:
        """Remove the finalizer from a counted pod, as the Job controller does."""
        return await self.ns.patch_pod(pod, {"metadata": {"finalizers": None}})


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    players = await _set_up(cluster)
    await cluster.step("Two pods: created, bound to nodes, running")
    await players.job(objects.job_started(players.clock.now()))
    first = await players.pod("node-a")
    second = await players.pod("node-b")
    await players.job(objects.job_counts(active=2))
    await _conflict(players)
    await _evict(players, first, second)
    third = await _replace(players, first)
    await _complete(players, [second, third])
    await _replay(players)
    await cluster.step("The end, in the tables of the server")
    for plural, path in PATHS.items():
        await cluster.table(path, headline=f"$ kubectl get {plural}")


async def _set_up(cluster: DemoCluster) -> _Players:
    await cluster.step("A temporary cluster")
    version = (await cluster.client.ask("GET", "/version"))["gitVersion"]
    assert version.startswith(schema.kubernetes_version())
    cluster.answer(f"{cluster.url} serves {version} after {cluster.seconds * 1000:.0f} ms")
    ns = await cluster.namespace(SPACE)
    for name in ("node-a", "node-b"):
        await cluster.client.create(NODES, {"metadata": {"name": name}})
    cluster.answer("created namespace/demo, node/node-a, node/node-b")
    pods = await cluster.client.ask("GET", PATHS["pods"])
    cluster.show(SPACE, "pods", "jobs", "poddisruptionbudgets")
    cluster.note("The demo itself plays the kubelet, the scheduler and the controllers")
    cluster.note("through the API. The lines below are the events of its watches.")
    await cluster.step("A Job: the server checks it and sets defaults, as Kubernetes does")
    spec = objects.job_spec(completions=2)
    await cluster.refused(422, ns.submit(JOB, **spec | {"parallelism": -1}))
    job = await ns.shown(await ns.submit(JOB, **spec))
    return _Players(cluster, cluster.clock, ns, pods["metadata"]["resourceVersion"], job)


async def _conflict(players: _Players) -> None:
    cluster = players.cluster
    await cluster.step("Two writers: the server refuses a write to an old version")
    client, path = cluster.client, f"{PATHS['jobs']}/{JOB}"
    job = await client.get(JOBS, JOB, namespace=SPACE)
    change = {"metadata": {"annotations": {"example.com/note": "first"}}}
    await players.ns.shown(await client.patch(JOBS, JOB, change, namespace=SPACE))
    await cluster.refused(409, client.ask("PUT", path, job))


async def _evict(players: _Players, first: Object, second: Object) -> None:
    cluster = players.cluster
    await cluster.step("A budget allows the eviction of one pod, not of two")
    client, ns = cluster.client, players.ns
    body = objects.budget(JOB, players.owner, min_available=1)
    await ns.shown(await client.create(BUDGETS, body, namespace=SPACE))
    status = objects.budget_status(healthy=2, desired=1)
    patch = client.patch(BUDGETS, JOB, status, namespace=SPACE, subresource="status")
    await ns.shown(await patch)
    await ns.evict(first)
    await ns.shown(await client.get(PODS, first["metadata"]["name"], namespace=SPACE))
    await ns.shown(await client.get(BUDGETS, JOB, namespace=SPACE))
    await cluster.refused(429, ns.evict(second))


async def _replace(players: _Players, evicted: Object) -> Object:
    cluster = players.cluster
    await cluster.step(
        "The evicted pod ends; a finalizer keeps the pod until the Job has counted it"
    )
    ns, name = players.ns, evicted["metadata"]["name"]
    await players.status(evicted, objects.ended(players.clock.now(), exit_code=143))
    await ns.delete_pod(evicted, DeleteOptions(grace_seconds=0))
    pod = await ns.shown(await cluster.client.get(PODS, name, namespace=SPACE))
    cluster.note(f"deleted, but still there: {', '.join(pod['metadata']['finalizers'])}")
    cluster.note("the Job's failure policy ignores disruptions, so the Job counts no failure")
    await players.job(objects.job_counts(active=1))
    await players.release(evicted)
    await ns.wait_until(lambda ns: evicted["metadata"]["uid"] in ns.gone)
    replacement = await players.pod("node-b")
    await players.job(objects.job_counts(active=2))
    return replacement


async def _complete(players: _Players, pods: list[Object]) -> None:
    cluster = players.cluster
    await cluster.step("Both pods succeed, and so does the Job")
    for pod in pods:
        await players.status(pod, objects.ended(players.clock.now(), exit_code=0))
        await players.ns.shown(await players.release(pod))
    await players.job(objects.job_counts(active=0, succeeded=2))
    await players.job(objects.job_complete(players.clock.now(), succeeded=2))


async def _replay(players: _Players) -> None:
    """Watch the pods again, from the revision of the first watch."""
    cluster = players.cluster
    await cluster.step("A second watch from the same revision: no event lost, no event twice")
    first = [
        (each.type, str(each.revision)) for each in players.ns.history if each.plural == "pods"
    ]
    second: list[tuple[str, str]] = []
    watch = cluster.client.watch(PODS, namespace=SPACE, resource_version=players.revision)
    async with contextlib.aclosing(watch):
        async for event in watch:
            second.append((event.type, event.resource_version))
            if len(second) >= len(first):
                break
    if second != first:
        raise DemoFailed(f"the second watch saw {second}, the first {first}")
    cluster.answer(
        f"from revision {players.revision} on: the same {len(second)} events of pods, in order"
    )
