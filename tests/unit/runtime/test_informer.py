# SPDX-License-Identifier: Apache-2.0
"""What an informer promises while nothing goes wrong."""

import logging
from functools import partial

import pytest

from refloat.api.core import Pod
from refloat.client.errors import Unavailable
from refloat.runtime import index
from refloat.runtime.informer import Change
from refloat.sim.run import Sim
from tests.unit.runtime.checked_informer import APP, CheckedInformer, Told, synced, world
from tests.virtual import virtual


@virtual(world, "a", "b")
async def test_all_objects_come_in_one_watch_with_their_changes(w: CheckedInformer) -> None:
    w.informer.start()
    await w.settle(1)
    assert w.told.taken() == ["+a", "+b"]
    w.server.put("c")
    w.server.put("a")
    w.server.drop("b")
    await w.settle(1)
    assert w.told.taken() == ["+c", "~a", "-b"]
    assert w.server.calls == ["stream"]
    w.assert_true_to_the_server()


@virtual(world, "a", "b")
async def test_it_has_synced_when_all_were_told_and_not_before(w: CheckedInformer) -> None:
    w.server.initial_pause = 10
    w.informer.start()
    await w.settle(25)
    assert len(w.cache) == 2
    assert not w.informer.has_synced
    await w.settle(10)
    assert w.informer.has_synced


@virtual(world, "a")
async def test_it_has_seen_what_was_told_and_nothing_later(w: CheckedInformer) -> None:
    assert not w.informer.has_seen("1")
    w.informer.start()
    await w.settle(1)
    now = int(w.cache.get("default/a").metadata.resource_version)  # type: ignore[union-attr]
    assert w.informer.has_seen(str(now))
    assert w.informer.has_seen(str(now - 1))
    assert not w.informer.has_seen(str(now + 1))
    w.server.drop("a")
    await w.settle(1)
    assert w.informer.has_seen(str(now + 1))


@virtual(world)
async def test_an_empty_cluster_is_synced(w: CheckedInformer) -> None:
    w.informer.start()
    await w.informer.wait_synced()
    assert len(w.cache) == 0


@virtual(world, *"abcde", page_size=2)
async def test_a_server_without_initial_events_is_listed_in_chunks(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.informer.start()
    await w.settle(1)
    w.server.put("f")
    await w.settle(1)
    assert w.told.taken() == ["+a", "+b", "+c", "+d", "+e", "+f"]
    assert w.server.calls == ["stream", "list", "next page", "next page", "watch 105"]


@virtual(world, "a")
async def test_initial_events_are_not_asked_for_again_if_unknown(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    await w.sync()
    w.server.expire_watches()
    await w.settle()
    assert "stream" not in w.server.calls
    assert "list" in w.server.calls


@virtual(synced, "a", "b")
async def test_late_handler_is_told_what_is_there_and_then_same_as_all(w: CheckedInformer) -> None:
    late = Told(w.cache)
    w.informer.add_handler(late)
    assert late.taken() == ["+a", "+b"]
    w.server.put("a")
    await w.settle(1)
    assert late.taken() == w.told.taken() == ["~a"]


@virtual(synced, "a")
async def test_handler_added_by_a_handler_misses_and_repeats_nothing(w: CheckedInformer) -> None:
    late = Told(w.cache)

    def add(change: Change[Pod]) -> None:
        if change.current.metadata.name == "b" and change.old is None:
            w.informer.add_handler(late)

    w.informer.add_handler(add)
    w.server.put("b")
    w.server.put("b")
    await w.settle(1)
    assert late.taken() == ["+a", "+b", "~b"]


@virtual(world)
async def test_handlers_share_one_decoded_object(w: CheckedInformer) -> None:
    other = Told(w.cache)
    w.informer.add_handler(other)
    await w.sync()
    w.server.put("a")
    await w.settle(1)
    assert other.state["default/a"] is w.told.state["default/a"] is w.cache.get("default/a")


def _note(calls: list[int], number: int, _: Change[Pod]) -> None:
    calls.append(number)


@virtual(world)
async def test_handlers_are_called_in_order_in_which_they_were_added(w: CheckedInformer) -> None:
    calls: list[int] = []
    for number in range(3):
        w.informer.add_handler(partial(_note, calls, number))
    await w.sync()
    w.server.put("a")
    await w.settle(1)
    assert calls == [0, 1, 2]


@virtual()
async def test_handler_that_raises_stops_nobody(sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Change[Pod]) -> None:
        raise RuntimeError("boom")

    w = CheckedInformer(sim)
    w.informer.add_handler(broken)
    later = Told(w.cache)
    w.informer.add_handler(later)
    w.server.put("a")
    with caplog.at_level(logging.ERROR):
        await w.sync()
        w.server.put("b")
        w.server.drop("a")
        await w.settle(1)
    await w.informer.close()
    assert w.told.taken() == ["+b", "-a"]
    assert later.state.keys() == {"default/b"}
    assert "a handler failed on default/a" in caplog.text
    assert w.server.calls == []


@virtual(synced, "a")
async def test_a_recreated_object_is_gone_before_it_appears(w: CheckedInformer) -> None:
    w.server.drop("a")
    w.server.put("a")
    await w.settle(1)
    assert w.told.taken() == ["-a", "+a"]


@virtual(synced, "a")
async def test_close_ends_the_watch_at_once_and_keeps_the_cache(w: CheckedInformer) -> None:
    before = w.sim.clock.monotonic()
    await w.informer.close()
    assert w.sim.clock.monotonic() == before
    assert w.server.watches == []
    w.server.put("b")
    await w.settle()
    assert w.told.taken() == []
    assert "default/a" in w.cache


@virtual(world)
async def test_close_ends_a_wait_before_another_attempt(w: CheckedInformer) -> None:
    w.server.failures = [Unavailable("away")] * 100
    w.informer.start()
    await w.settle(50)
    before = w.sim.clock.monotonic()
    await w.informer.close()
    assert w.sim.clock.monotonic() == before


@virtual()
async def test_what_was_never_started_can_be_closed(sim: Sim) -> None:
    await CheckedInformer(sim).informer.close()


@virtual(synced, "a")
async def test_a_quiet_watch_lives_on_bookmarks(w: CheckedInformer) -> None:
    await w.settle(1000)
    assert w.server.calls == []


@virtual(world, *(f"p{n}" for n in range(1000)))
async def test_a_long_list_gives_way_to_others(w: CheckedInformer) -> None:
    ids: set[int] = set()
    w.informer.start()
    while not w.informer.has_synced:
        await w.sim.clock.sleep(0)
        ids.add(len(w.cache))
    assert len(ids) > 5


@virtual(world)
async def test_indexes_follow(w: CheckedInformer) -> None:
    owner = {"ownerReferences": [{"uid": "job-1", "controller": True}]}
    w.server.put("a", spec={"nodeName": "n1"}, metadata={"labels": {"app": "x"}})
    w.server.put("b", metadata=owner)
    await w.sync()
    assert [each.metadata.name for each in w.cache.by(index.NODE, "n1")] == ["a"]
    assert [each.metadata.name for each in w.cache.by(index.OWNER, "job-1")] == ["b"]
    assert w.cache.count(APP, "x") == 1
    w.server.put("b", spec={"nodeName": "n1"}, metadata=owner)
    w.server.drop("a")
    await w.settle(1)
    assert [each.metadata.name for each in w.cache.by(index.NODE, "n1")] == ["b"]
    assert w.cache.by(APP, "x") == []


@virtual()
async def test_its_name_is_that_of_the_resource(sim: Sim) -> None:
    assert CheckedInformer(sim).informer.name == "pods"
