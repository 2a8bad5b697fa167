# SPDX-License-Identifier: Apache-2.0
"""The demo of a cluster that stops and starts again."""

import asyncio
import contextlib

from refloat.demo.demo_cluster import DemoCluster
from refloat.demo.errors import DemoFailed
from refloat.scenario.cluster import whole

COUNT = 500
WRITERS = 50  # requests at a time, as in a busy cluster

PATH = "/api/v1/namespaces/default/configmaps"
MAPS = whole("configmaps")


async def run(cluster: DemoCluster) -> None:
    """Run the demo."""
    await cluster.step(f"{COUNT} objects, {WRITERS} writers at a time")
    before = (await cluster.client.ask("GET", PATH))["metadata"]["resourceVersion"]
    free = asyncio.Semaphore(WRITERS)

    async def create(number: int) -> None:
        async with free:
            body = {"metadata": {"name": f"map-{number:03}"}, "data": {"number": str(number)}}
            await cluster.client.create(MAPS, body, namespace="default")

    began = cluster.seconds
    await asyncio.gather(*(create(number) for number in range(COUNT)))
    seconds = cluster.seconds - began
    cluster.answer(f"{COUNT} creates in {seconds:.2f} s; each was on disk before its response")
    await cluster.step("The cluster stops, and starts from its data directory")
    url = cluster.url
    seconds = await cluster.restart()
    if cluster.url != url:
        raise DemoFailed(f"the cluster was at {url} and is at {cluster.url}")
    cluster.answer(f"back at the same address after {seconds:.2f} s")
    await cluster.step("All objects are there, and so is their history")
    maps = await cluster.client.ask("GET", PATH)
    if len(maps["items"]) != COUNT:
        raise DemoFailed(f"{COUNT} objects were created, {len(maps['items'])} are there")
    revision = maps["metadata"]["resourceVersion"]
    cluster.answer(f"a list finds {COUNT} objects at revision {revision}")
    names: list[str] = []
    watch = cluster.client.watch(MAPS, namespace="default", resource_version=before)
    async with contextlib.aclosing(watch):
        async for event in watch:
            if event.object is not None:
                names.append(event.object["metadata"]["name"])
            if len(names) == COUNT:
                break
    if len(set(names)) != COUNT:
        raise DemoFailed(f"a watch from revision {before} saw objects twice")
    cluster.answer(f"a watch from revision {before}, before all that, replays {COUNT} events")
