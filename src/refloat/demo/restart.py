# SPDX-License-Identifier: Apache-2.0
"""The story of a cluster that is stopped and started again."""

import asyncio

from refloat.demo import objects
from refloat.demo.errors import StoryFailed
from refloat.demo.stage import Stage

COUNT = 500
WRITERS = 50  # at a time: as many requests as a busy cluster has under way

MAPS = "/api/v1/namespaces/default/configmaps"


async def act(stage: Stage) -> None:
    """Play it."""
    await stage.step(f"{COUNT} objects, {WRITERS} writers at a time")
    before = await stage.client.get(MAPS)
    seconds = await _create_many(stage)
    stage.answer(f"{COUNT} creates in {seconds:.2f} s; each was on disk before its answer")
    await stage.step("The cluster stops, and starts from its data directory")
    url = stage.url
    seconds = await stage.restart()
    if stage.url != url:
        raise StoryFailed(f"the cluster was at {url} and is at {stage.url}")
    stage.answer(f"back at the same address after {seconds:.2f} s")
    await stage.step("Everything is there, and so is the past")
    await _check_list(stage)
    await _check_watch(stage, before["metadata"]["resourceVersion"])


async def _create_many(stage: Stage) -> float:
    free = asyncio.Semaphore(WRITERS)

    async def create(number: int) -> None:
        async with free:
            wanted = objects.config_map(f"map-{number:03}", number=str(number))
            await stage.client.create(MAPS, wanted)

    began = stage.seconds
    await asyncio.gather(*(create(number) for number in range(COUNT)))
    return stage.seconds - began


async def _check_list(stage: Stage) -> None:
    found = await stage.client.get(MAPS)
    if len(found["items"]) != COUNT:
        raise StoryFailed(f"{COUNT} objects were created, {len(found['items'])} are there")
    revision = found["metadata"]["resourceVersion"]
    stage.answer(f"a list finds {COUNT} objects at revision {revision}")


async def _check_watch(stage: Stage, revision: str) -> None:
    """A watch that was cut off by the stop goes on where it was."""
    seen: list[str] = []
    async for event in stage.client.watch(MAPS, revision):
        seen.append(event["object"]["metadata"]["name"])
        if len(seen) == COUNT:
            break
    if len(set(seen)) != COUNT:
        raise StoryFailed(f"a watch from revision {revision} saw objects twice")
    stage.answer(f"a watch from revision {revision}, before all that, replays {COUNT} events")
