# SPDX-License-Identifier: Apache-2.0
"""Any number of writers at once: no write is lost, none is done twice."""

import asyncio
from collections import Counter
from collections.abc import Awaitable

from hypothesis import given, settings
from hypothesis import strategies as st

from refloat.api.errors import StatusError
from refloat.api.meta import Object
from refloat.apiserver import listing, options, selection
from refloat.apiserver.deletion import Options
from refloat.store.yielding import give_way
from tests import builders
from tests.apiserver_fixture import BUDGETS, CONFIG_MAPS, PODS, ServerFixture, query, started

FEW = settings(max_examples=60, deadline=None)


async def closed(world: ServerFixture) -> None:
    await world.dispatcher.close()
    await world.store.close()


async def outcome(work: Awaitable[object]) -> str:
    """How a call ended: `done`, or the reason of its refusal."""
    try:
        await work
    except StatusError as error:
        return error.reason
    return "done"


@FEW
@given(adds=st.lists(st.integers(0, 4), min_size=1, max_size=10))
def test_counter_without_a_version_loses_no_increment(adds: list[int]) -> None:
    async def run() -> None:
        world = await started()
        await world.create(builders.config_map(data={"n": "0"}))

        async def add(turns: int) -> None:
            for _ in range(turns):
                await give_way()
            await world.change(CONFIG_MAPS, "c", _increment)

        await asyncio.gather(*map(add, adds))
        assert world.get(CONFIG_MAPS, "c")["data"]["n"] == str(len(adds))
        await closed(world)

    asyncio.run(run())


def _increment(obj: Object) -> None:
    obj["data"]["n"] = str(int(obj["data"]["n"]) + 1)


@FEW
@given(count=st.integers(2, 8))
def test_one_creator_of_a_name_wins(count: int) -> None:
    async def run() -> None:
        world = await started()
        calls = (outcome(world.create(builders.config_map())) for _ in range(count))
        outcomes = Counter(await asyncio.gather(*calls))
        assert outcomes == {"done": 1, "AlreadyExists": count - 1}
        await closed(world)

    asyncio.run(run())


@FEW
@given(count=st.integers(1, 6), allowed=st.integers(0, 6), marks=st.booleans())
def test_budget_lets_go_no_more_pods_than_it_allows(count: int, allowed: int, marks: bool) -> None:
    """behaviour C6.5: and charges each of them once."""

    async def run() -> None:
        world = await started(jumps=True, gates={"PodDisruptionConditions": marks})
        for index in range(count):
            await _running(world, f"p{index}")
        await world.create(builders.budget())
        await world.set_status(
            BUDGETS, "b", observedGeneration=1, disruptionsAllowed=allowed, currentHealthy=count
        )
        names = [f"p{index}" for index in range(count)]
        outcomes = Counter(await asyncio.gather(*(outcome(world.evict(name)) for name in names)))
        evictions = min(count, allowed)
        assert outcomes == Counter({"done": evictions, "TooManyRequests": count - evictions})
        status = world.get(BUDGETS, "b")["status"]
        assert status["disruptionsAllowed"] == allowed - evictions
        assert len(status.get("disruptedPods") or {}) == evictions
        await closed(world)

    asyncio.run(run())


async def _running(world: ServerFixture, name: str) -> None:
    await world.create(builders.pod(name, node="n", labels={"app": "x"}))
    ready = [{"type": "Ready", "status": "True"}]
    await world.set_status(PODS, name, phase="Running", conditions=ready)


@FEW
@given(
    periods=st.lists(st.one_of(st.none(), st.integers(-1, 40)), min_size=1, max_size=6),
    finalizer=st.booleans(),
)
def test_deletes_at_once_end_in_the_shortest_of_their_graces(
    periods: list[int | None], finalizer: bool
) -> None:
    """behaviour C8.4"""

    async def run() -> None:
        world = await started()
        finalizers = ["a.b/c"] if finalizer else []
        await world.create(builders.pod(node="n", finalizers=finalizers))
        calls = (world.delete(PODS, "p", Options(grace_seconds=each)) for each in periods)
        outcomes = Counter(await asyncio.gather(*map(outcome, calls)))
        assert set(outcomes) <= {"done", "NotFound"}
        graces = [30 if each is None else 1 if each < 0 else each for each in periods]
        if 0 in graces and not finalizer:
            assert not world.exists(PODS, "p")
        else:
            metadata = world.get(PODS, "p")["metadata"]
            least = [each for each in periods if each is not None]
            shortest = min(graces[0], *(1 if each < 0 else each for each in least), 99)
            assert metadata["deletionGracePeriodSeconds"] == shortest
            assert metadata["generation"] == 2
        await closed(world)

    asyncio.run(run())


@FEW
@given(
    names=st.sets(st.sampled_from("abcdefgh"), max_size=8),
    limit=st.integers(1, 4),
    odd=st.booleans(),
    changes=st.lists(st.sampled_from("abcdefgh"), max_size=6),
)
def test_pages_show_the_state_that_was_when_the_first_was_asked_for(
    names: set[str], limit: int, odd: bool, changes: list[str]
) -> None:
    async def run() -> None:
        world = await started()
        for name in sorted(names):
            parity = {"odd": str(ord(name) % 2)}
            await world.create(builders.config_map(name, labels=parity))
        want = [name for name in sorted(names) if not odd or ord(name) % 2]
        pages = await _pages(world, limit, "odd=1" if odd else "", changes)
        assert [name for page in pages for name in page] == want
        assert all(len(page) <= limit for page in pages)
        await closed(world)

    asyncio.run(run())


async def _pages(
    world: ServerFixture, limit: int, labels: str, changes: list[str]
) -> list[list[str]]:
    """All pages, with a change between any two."""
    selected = selection.select(CONFIG_MAPS, "default", label_text=labels, field_text="")
    pages: list[list[str]] = []
    token, remaining = "", list(changes)
    while True:
        request = options.list_options(
            query(**{"limit": str(limit), "continue": token}), watch=False
        )
        plan = await listing.plan(world.store, selected, request)
        pages.append([entry.key.rpartition("/")[2] for entry in plan.entries])
        token = plan.metadata.get("continue", "")
        if not token:
            return pages
        if remaining:
            name = remaining.pop()
            if world.exists(CONFIG_MAPS, name):
                await world.delete(CONFIG_MAPS, name)
            else:
                await world.create(builders.config_map(name, labels={"odd": "1"}))
