# SPDX-License-Identifier: Apache-2.0
"""Watches below HTTP: which events each watcher gets, in which order, and the end."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from refloat.api.meta import Object
from refloat.apiserver import watch_index
from refloat.apiserver.deletion import Options
from refloat.store import errors as store_errors
from refloat.store.contract import Entry
from tests import builders
from tests.apiserver_fixture import CONFIG_MAPS, JOBS, NODES, PODS, ServerFixture, drained, told
from tests.cases import cases
from tests.clocks import rest


async def label(world: ServerFixture, name: str, **labels: str) -> None:
    def change(obj: Object) -> None:
        obj["metadata"]["labels"] = labels

    await world.change(CONFIG_MAPS, name, change)


# -- the events of a watcher -------------------------------------------------


async def test_watcher_sees_a_life(world: ServerFixture) -> None:
    watcher = world.watcher(CONFIG_MAPS)
    world.dispatcher.open(watcher)
    await world.create(builders.config_map())
    await label(world, "c", a="b")
    await world.delete(CONFIG_MAPS, "c")
    assert await drained(watcher, world) == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]


async def test_deletion_shows_the_last_state_at_the_revision_of_its_end(
    world: ServerFixture,
) -> None:
    await world.create(builders.config_map(data={"a": "b"}))
    watcher = world.watcher(CONFIG_MAPS)
    world.dispatcher.open(watcher)
    await world.delete(CONFIG_MAPS, "c")
    ((kind, obj),) = await told(watcher, world)
    assert kind == "DELETED"
    assert obj["data"] == {"a": "b"}
    assert obj["metadata"]["resourceVersion"] == str(world.store.revision)


async def test_end_by_the_last_finalizer_shows_the_finalizer(world: ServerFixture) -> None:
    await world.create(builders.config_map(finalizers=["a.b/c"]))
    await world.delete(CONFIG_MAPS, "c")
    watcher = world.watcher(CONFIG_MAPS)
    world.dispatcher.open(watcher)
    await world.change(CONFIG_MAPS, "c", lambda obj: obj["metadata"].pop("finalizers"))
    ((kind, obj),) = await told(watcher, world)
    assert (kind, obj["metadata"]["finalizers"]) == ("DELETED", ["a.b/c"])


async def test_edges_of_a_selector_add_and_delete(world: ServerFixture) -> None:
    watcher = world.watcher(CONFIG_MAPS, labels="tier=web")
    world.dispatcher.open(watcher)
    await world.create(builders.config_map(labels={"tier": "db"}))
    assert await drained(watcher, world) == []
    await label(world, "c", tier="web")
    assert await drained(watcher, world) == [("ADDED", "c")]
    await label(world, "c", tier="web", more="x")
    assert await drained(watcher, world) == [("MODIFIED", "c")]
    await label(world, "c", tier="db")
    ((kind, obj),) = await told(watcher, world)
    assert (kind, obj["metadata"]["labels"]) == ("DELETED", {"tier": "web", "more": "x"})
    assert obj["metadata"]["resourceVersion"] == str(world.store.revision)
    await world.delete(CONFIG_MAPS, "c")
    assert await drained(watcher, world) == []


async def test_field_selector_follows_a_pod_to_its_node(world: ServerFixture) -> None:
    watcher = world.watcher(PODS, fields="spec.nodeName=n")
    world.dispatcher.open(watcher)
    await world.create(builders.pod())
    assert await drained(watcher, world) == []
    await world.change(
        PODS, "p", lambda obj: obj["spec"].update(nodeName="n"), subresource="binding"
    )
    assert await drained(watcher, world) == [("ADDED", "p")]


async def test_job_is_selected_by_its_successes(world: ServerFixture) -> None:
    """behaviour B2.4"""
    await world.create(builders.job())
    watcher = world.watcher(JOBS, fields="status.successful=2")
    world.dispatcher.open(watcher)
    await world.set_status(JOBS, "j", succeeded=2, startTime="2026-01-02T03:04:05Z")
    assert await drained(watcher, world) == [("ADDED", "j")]


# -- who is concerned -------------------------------------------------------


@cases(
    "selector want",
    {
        "all namespaces": ({}, 3),
        "one namespace": ({"namespace": "default"}, 2),
        "another namespace": ({"namespace": "kube-system"}, 1),
        "one name everywhere": ({"fields": "metadata.name=p1"}, 2),
        "one name in one place": ({"namespace": "default", "fields": "metadata.name=p1"}, 1),
        "one node": ({"fields": "spec.nodeName=n1"}, 2),
        "a node in a place": ({"namespace": "kube-system", "fields": "spec.nodeName=n1"}, 1),
        "a name on a node": ({"fields": "metadata.name=p1,spec.nodeName=n1"}, 2),
        "all but one name": ({"fields": "metadata.name!=p1"}, 1),
        "a name that nobody has": ({"fields": "metadata.name=none"}, 0),
    },
)
async def test_change_goes_to_watchers_of(world: ServerFixture, selector: Any, want: int) -> None:
    watcher = world.watcher(PODS, **selector)
    world.dispatcher.open(watcher)
    await world.create(builders.pod("p1", node="n1"))
    await world.create(builders.pod("p2", node="n2"))
    await world.create(builders.pod("p1", node="n1"), namespace="kube-system")
    assert len(await drained(watcher, world)) == want


async def test_change_is_offered_only_where_it_can_concern(world: ServerFixture) -> None:
    forms: list[str] = []

    class Noting(watch_index.Watcher):
        def offer(self, change: watch_index.StoreChange) -> None:
            forms.append(self.form)

    def pinned(form: str, **selector: Any) -> None:
        plain = world.watcher(PODS, **selector)
        noting = Noting(plain.selection, form, plain.encode, None, plain.after)
        world.dispatcher.open(noting)

    pinned("everywhere")
    pinned("here", namespace="default")
    pinned("there", namespace="kube-system")
    pinned("name", fields="metadata.name=p")
    pinned("other name", fields="metadata.name=q")
    pinned("name there", namespace="kube-system", fields="metadata.name=p")
    pinned("node", fields="spec.nodeName=n")
    pinned("other node", fields="spec.nodeName=m")
    world.dispatcher.open(world.watcher(NODES))
    await world.create(builders.pod(node="n"))
    await rest()
    assert sorted(forms) == ["everywhere", "here", "name", "node"]


async def test_watcher_that_left_is_offered_nothing(world: ServerFixture) -> None:
    watcher = world.watcher(CONFIG_MAPS)
    world.dispatcher.open(watcher)
    assert world.dispatcher.watchers == 1
    world.dispatcher.remove(watcher)
    assert world.dispatcher.watchers == 0
    await world.create(builders.config_map())
    assert await drained(watcher, world) == []


async def test_change_is_encoded_once_for_all_who_see_it_alike(world: ServerFixture) -> None:
    encoded: list[watch_index.EventType] = []

    def encode(event_type: watch_index.EventType, entry: Entry) -> bytes:
        encoded.append(event_type)
        return b'{"type":"%s","object":{"metadata":{"name":"x"}}}\n' % event_type.encode()

    watchers = [world.watcher(CONFIG_MAPS, encode=encode) for _ in range(5)]
    watchers.append(world.watcher(CONFIG_MAPS, labels="a=b", encode=encode))
    for watcher in watchers:
        world.dispatcher.open(watcher)
    await world.create(builders.config_map())
    await label(world, "c", a="b")
    await rest()
    # To the one with a selector the change is another: an addition.
    assert encoded == ["ADDED", "MODIFIED", "ADDED"]
    for watcher in watchers:
        assert await drained(watcher, world)


# -- from where -------------------------------------------------------------


async def test_watch_from_a_revision_brings_what_came_after_it(world: ServerFixture) -> None:
    await world.create(builders.config_map("old"))
    revision = world.store.revision
    await world.create(builders.config_map("new"))
    await world.delete(CONFIG_MAPS, "old")
    await rest()
    watcher = world.watcher(CONFIG_MAPS, after=revision)
    world.dispatcher.open(watcher)
    await world.create(builders.config_map("newest"))
    assert await drained(watcher, world) == [
        ("ADDED", "new"),
        ("DELETED", "old"),
        ("ADDED", "newest"),
    ]


async def test_watch_opened_before_the_dispatcher_caught_up_misses_nothing(
    world: ServerFixture,
) -> None:
    revision = world.store.revision
    writes = [world.create(builders.config_map(f"c{index}")) for index in range(10)]
    running = asyncio.gather(*writes)
    watchers = []
    while not running.done():
        watcher = world.watcher(CONFIG_MAPS, after=revision)
        world.dispatcher.open(watcher)
        watchers.append(watcher)
        await asyncio.sleep(0)
    await running
    assert len(watchers) > 3
    for watcher in watchers:
        names = [name for _, name in await drained(watcher, world)]
        assert sorted(names) == [f"c{index}" for index in range(10)]


async def test_watch_from_a_revision_to_come_waits_for_it(world: ServerFixture) -> None:
    watcher = world.watcher(CONFIG_MAPS, after=world.store.revision + 1)
    world.dispatcher.open(watcher)
    await world.create(builders.config_map("first"))
    await world.create(builders.config_map("second"))
    assert await drained(watcher, world) == [("ADDED", "second")]


async def test_watch_from_a_forgotten_revision_is_refused(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    await world.delete(CONFIG_MAPS, "c")
    await rest()
    await world.store.compact(world.store.revision)
    with pytest.raises(store_errors.Compacted):
        world.dispatcher.open(world.watcher(CONFIG_MAPS, after=1))
    assert world.dispatcher.watchers == 0


# -- the stream -------------------------------------------------------------


class WatcherEvents:
    """A watch's lines as they come."""

    def __init__(self, world: ServerFixture, watcher: watch_index.Watcher, **more: Any) -> None:
        self.seen: list[tuple[str, Object]] = []
        self.ended = False
        source = watch_index.lines(
            watcher, more.get("initial"), world.dispatcher, world.clock, seconds=more["seconds"]
        )
        world.dispatcher.open(watcher)
        self.task = asyncio.ensure_future(self._read(source))

    async def _read(self, source: AsyncIterator[bytes]) -> None:
        async for piece in source:
            for line in piece.splitlines():
                event = msgspec.json.decode(line)
                self.seen.append((event["type"], event["object"]))
        self.ended = True

    @property
    def types(self) -> list[str]:
        return [kind for kind, _ in self.seen]


async def test_initial_state_comes_first_and_its_end_is_marked(world: ServerFixture) -> None:
    await world.create(builders.config_map("a"))
    await world.create(builders.config_map("b"))
    entries = world.store.page("configmaps/").entries
    watcher = world.watcher(CONFIG_MAPS, bookmarks=True)
    stream = WatcherEvents(world, watcher, initial=entries, seconds=10)
    await rest()
    await world.create(builders.config_map("c"))
    await rest()
    assert stream.types == ["ADDED", "ADDED", "BOOKMARK", "ADDED"]
    assert stream.seen[2][1]["metadata"] == {
        "resourceVersion": str(watcher.after),
        "annotations": {"k8s.io/initial-events-end": "true"},
    }
    stream.task.cancel()


async def test_initial_state_without_bookmarks_has_no_marked_end(world: ServerFixture) -> None:
    await world.create(builders.config_map())
    entries = world.store.page("configmaps/").entries
    stream = WatcherEvents(world, world.watcher(CONFIG_MAPS), initial=entries, seconds=10)
    await world.clock.advance(10)
    assert stream.types == ["ADDED"]
    assert stream.ended


async def test_bookmark_tells_how_far_everything_was_seen(world: ServerFixture) -> None:
    stream = WatcherEvents(world, world.watcher(CONFIG_MAPS, bookmarks=True), seconds=1000)
    await world.create(builders.node())  # not for this watcher, but seen
    revision = world.store.revision
    await world.clock.advance(watch_index.BOOKMARK_SECONDS)
    assert stream.types == ["BOOKMARK"]
    assert stream.seen[0][1]["metadata"] == {"resourceVersion": str(revision)}
    stream.task.cancel()


async def test_no_bookmarks_for_who_did_not_ask(world: ServerFixture) -> None:
    stream = WatcherEvents(world, world.watcher(CONFIG_MAPS), seconds=300)
    await world.clock.advance(300)
    assert stream.types == []
    assert stream.ended


async def test_stream_ends_with_its_time(world: ServerFixture) -> None:
    stream = WatcherEvents(world, world.watcher(CONFIG_MAPS), seconds=5)
    await world.clock.advance(4.9)
    assert not stream.ended
    await world.clock.advance(0.1)
    assert stream.ended


async def test_stream_ends_with_the_dispatcher(world: ServerFixture) -> None:
    stream = WatcherEvents(world, world.watcher(CONFIG_MAPS), seconds=500)
    await rest()
    await world.dispatcher.close()
    await rest()
    assert stream.ended


async def test_watcher_that_does_not_read_is_cut_off(
    world: ServerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_index, "MAX_BUFFER_BYTES", 2000)
    idle, reading = world.watcher(CONFIG_MAPS), world.watcher(CONFIG_MAPS)
    world.dispatcher.open(idle)
    stream = WatcherEvents(world, reading, seconds=500)
    for index in range(20):
        await world.create(builders.config_map(f"c{index}"))
        await rest()
    assert await idle.read(world.clock, 1.0) is None
    assert len(stream.seen) == 20
    stream.task.cancel()


async def test_forced_delete_of_a_pod_shows_its_mark_first(world: ServerFixture) -> None:
    await world.create(builders.pod(node="n"))
    watcher = world.watcher(PODS)
    world.dispatcher.open(watcher)
    await world.delete(PODS, "p", Options(grace_seconds=0))
    (first, second) = await told(watcher, world)
    assert first[0] == "MODIFIED"
    assert first[1]["metadata"]["deletionGracePeriodSeconds"] == 0
    assert second[0] == "DELETED"
