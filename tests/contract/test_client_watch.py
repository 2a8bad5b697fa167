# SPDX-License-Identifier: Apache-2.0
"""What every client promises of lists and watches, asked of each of them."""

import asyncio

import pytest

from refloat.client import errors
from refloat.client.contract import ListPage, Selector
from tests.contract.clusters import CONFIG_MAPS, ContractCluster, Thing, read, told

MINE = Selector(labels="mine")


async def fill(cluster: ContractCluster, *names: str) -> None:
    for name in names:
        await cluster.config_map(name, labels={"mine": "", "name": name})


async def pages(cluster: ContractCluster, **how: object) -> list[ListPage[Thing]]:
    listing = cluster.client.list(CONFIG_MAPS, namespace=cluster.namespace, **how)  # type: ignore[arg-type]
    return [page async for page in listing]


def names(page: ListPage[Thing]) -> list[str]:
    return [each.metadata.name for each in page.items]


async def version(cluster: ContractCluster) -> str:
    """The present resourceVersion."""
    return (await pages(cluster, selector=MINE))[0].resource_version


class TestList:
    async def test_it_comes_in_chunks_of_one_version(self, cluster: ContractCluster) -> None:
        await fill(cluster, "a", "b", "c", "d", "e")
        result = await pages(cluster, selector=MINE, limit=2)
        assert [names(page) for page in result] == [["a", "b"], ["c", "d"], ["e"]]
        assert [page.last for page in result] == [False, False, True]
        assert len({page.resource_version for page in result}) == 1

    async def test_what_changes_between_chunks_is_not_seen(self, cluster: ContractCluster) -> None:
        await fill(cluster, "a", "b", "c")
        listing = cluster.client.list(
            CONFIG_MAPS, namespace=cluster.namespace, selector=MINE, limit=1
        )
        assert names(await anext(listing)) == ["a"]
        await cluster.client.delete(CONFIG_MAPS, "b", namespace=cluster.namespace)
        await fill(cluster, "d")
        assert [names(page) async for page in listing] == [["b"], ["c"]]

    async def test_nothing_is_one_empty_chunk(self, cluster: ContractCluster) -> None:
        result = await pages(cluster, selector=MINE)
        assert [(names(page), page.last) for page in result] == [([], True)]
        assert result[0].resource_version

    @pytest.mark.parametrize(
        ("selector", "want"),
        [
            (Selector(labels="name in (a, c)"), ["a", "c"]),
            (Selector(labels="mine,name!=a"), ["b", "c"]),
            (Selector(fields="metadata.name=b"), ["b"]),
            (Selector(labels="mine", fields="metadata.name!=b"), ["a", "c"]),
        ],
    )
    async def test_selectors_choose(
        self, cluster: ContractCluster, selector: Selector, want: list[str]
    ) -> None:
        await fill(cluster, "a", "b", "c")
        assert [names(page) for page in await pages(cluster, selector=selector)] == [want]

    async def test_no_namespace_is_all_of_them(self, cluster: ContractCluster) -> None:
        await fill(cluster, "a")
        label = Selector(labels="mine,name=a")
        result = [page async for page in cluster.client.list(CONFIG_MAPS, selector=label)]
        places = [each.metadata.namespace for page in result for each in page.items]
        assert cluster.namespace in places

    async def test_no_older_than_a_version_is_at_least_that(self, cluster: ContractCluster) -> None:
        await fill(cluster, "a", "b")
        now = await version(cluster)
        result = await pages(cluster, selector=MINE, resource_version=now, limit=1)
        assert [name for page in result for name in names(page)] == ["a", "b"]

    async def test_any_version_will_do(self, cluster: ContractCluster) -> None:
        await fill(cluster, "a")
        now = await version(cluster)
        await pages(cluster, selector=MINE, resource_version=now)  # so that "any" is not older
        result = await pages(cluster, selector=MINE, resource_version="0")
        assert [name for page in result for name in names(page)] == ["a"]

    async def test_selector_that_cannot_be_read_is_invalid(self, cluster: ContractCluster) -> None:
        with pytest.raises(errors.Invalid) as error:
            await pages(cluster, selector=Selector(labels="a===b"))
        assert error.value.code == 400


class TestWatch:
    async def test_it_tells_every_change_after_a_version_in_order(
        self, cluster: ContractCluster
    ) -> None:
        await fill(cluster, "before")
        watch = cluster.watch(await version(cluster))
        await fill(cluster, "a")
        await cluster.client.patch(
            CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace=cluster.namespace
        )
        await cluster.client.delete(CONFIG_MAPS, "a", namespace=cluster.namespace)
        events = await read(watch, 3)
        assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        assert [each.object.data if each.object else None for each in events] == [
            None,
            {"x": "1"},
            {"x": "1"},
        ]
        versions = [int(each.resource_version) for each in events]
        assert versions == sorted(set(versions))
        assert [each.object and each.object.metadata.resource_version for each in events] == [
            each.resource_version for each in events
        ]
        await watch.aclose()

    async def test_it_tells_what_happens_while_it_is_open(self, cluster: ContractCluster) -> None:
        watch = cluster.watch(await version(cluster))
        waiting = asyncio.ensure_future(read(watch, 1))
        await fill(cluster, "a")
        assert told(await waiting) == [("ADDED", "a")]
        await watch.aclose()

    async def test_a_version_seen_is_where_the_next_watch_goes_on(
        self, cluster: ContractCluster
    ) -> None:
        watch = cluster.watch(await version(cluster))
        await fill(cluster, "a", "b")
        first = await read(watch, 1)
        await watch.aclose()
        again = cluster.watch(first[0].resource_version)
        assert told(await read(again, 1)) == [("ADDED", "b")]
        await again.aclose()

    async def test_initial_events_come_first_and_a_bookmark_ends_them(
        self, cluster: ContractCluster
    ) -> None:
        await fill(cluster, "a", "b")
        watch = cluster.watch(initial_events=True, selector=MINE)
        events = [await anext(watch) for _ in range(3)]
        assert sorted(told(events[:2])) == [("ADDED", "a"), ("ADDED", "b")]
        assert (events[2].type, events[2].object, events[2].initial_end) == ("BOOKMARK", None, True)
        await fill(cluster, "c")
        assert told(await read(watch, 1)) == [("ADDED", "c")]
        await watch.aclose()

    async def test_a_bookmarks_version_is_where_the_next_watch_goes_on(
        self, cluster: ContractCluster
    ) -> None:
        await fill(cluster, "a")
        watch = cluster.watch(initial_events=True, selector=MINE)
        while not (event := await anext(watch)).initial_end:
            pass
        await watch.aclose()
        await fill(cluster, "b")
        again = cluster.watch(event.resource_version, selector=MINE)
        assert told(await read(again, 1)) == [("ADDED", "b")]
        await again.aclose()

    async def test_what_enters_and_leaves_a_selector_is_added_and_deleted(
        self, cluster: ContractCluster
    ) -> None:
        await fill(cluster, "a")
        watch = cluster.watch(await version(cluster), selector=Selector(labels="hot=yes"))
        for labels in ({"hot": "yes"}, {"more": "x"}, {"hot": "no"}):
            await cluster.client.patch(
                CONFIG_MAPS, "a", {"metadata": {"labels": labels}}, namespace=cluster.namespace
            )
        events = await read(watch, 3)
        assert told(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        last = events[2].object
        assert last is not None
        assert (last.metadata.labels or {})["hot"] == "yes"
        await watch.aclose()

    async def test_other_namespaces_are_not_told(self, cluster: ContractCluster) -> None:
        name = cluster.namespace
        watch = cluster.watch(await version(cluster))
        other = await cluster.client.create(
            CONFIG_MAPS, {"metadata": {"name": name}}, namespace="default"
        )
        await fill(cluster, "a")
        assert told(await read(watch, 1)) == [("ADDED", "a")]
        await cluster.client.delete(CONFIG_MAPS, other.metadata.name, namespace="default")
        await watch.aclose()

    async def test_the_server_ends_it_when_its_time_is_up(self, cluster: ContractCluster) -> None:
        watch = cluster.watch(await version(cluster), timeout_seconds=1)
        events = [event async for event in watch]
        assert all(event.type == "BOOKMARK" for event in events)
        assert [event async for event in watch] == []

    async def test_closing_ends_a_reader_that_waits(self, cluster: ContractCluster) -> None:
        watch = cluster.watch(await version(cluster))
        await fill(cluster, "a")
        await read(watch, 1)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
        await watch.aclose()
        assert await waiting is None

    async def test_one_that_was_closed_unread_is_over(self, cluster: ContractCluster) -> None:
        watch = cluster.watch(await version(cluster))
        await watch.aclose()
        assert [event async for event in watch] == []

    async def test_closing_one_leaves_the_others(self, cluster: ContractCluster) -> None:
        start = await version(cluster)
        one, other = cluster.watch(start), cluster.watch(start)
        await fill(cluster, "a")
        assert told(await read(one, 1)) == told(await read(other, 1)) == [("ADDED", "a")]
        await one.aclose()
        await fill(cluster, "b")
        assert told(await read(other, 1)) == [("ADDED", "b")]
        await other.aclose()

    async def test_a_version_that_was_forgotten_is_expired(self, cluster: ContractCluster) -> None:
        watch = cluster.watch(await cluster.forget())
        with pytest.raises(errors.Expired) as error:
            await read(watch, 1)
        assert (error.value.code, error.value.reason) == (410, "Expired")
        assert [event async for event in watch] == []

    async def test_a_selector_that_cannot_be_read_is_invalid(
        self, cluster: ContractCluster
    ) -> None:
        with pytest.raises(errors.Invalid):
            await anext(cluster.watch(selector=Selector(labels="a===b")))
