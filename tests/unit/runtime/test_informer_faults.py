# SPDX-License-Identifier: Apache-2.0
"""What an informer makes of servers and networks that fail, each fault on its own."""

import asyncio
import itertools
import logging
from typing import cast

import pytest

from refloat.client import errors
from refloat.runtime.compact_objects import LAST_APPLIED
from refloat.runtime.reflector import FollowSettings
from refloat.sim.loop import VirtualLoop
from refloat.sim.run import Sim
from tests.cases import cases
from tests.unit.runtime.checked_informer import CheckedInformer, synced, world
from tests.virtual import virtual

EXPIRED = errors.Expired("too old resource version", code=410)
AWAY = errors.Unavailable("connection refused")

FAILURES = {
    "500": errors.Unavailable("500", code=500),
    "html": errors.Unavailable("not JSON: <html>"),
    "hang": errors.Timeout("no answer"),
    "403": errors.Forbidden("pods is forbidden", code=403),
    "401": errors.Unauthorized("Unauthorized", code=401),
    "404": errors.NotFound("the server could not find it", code=404),
    "429": errors.TooManyRequests("slow down", code=429),
    "defect": RuntimeError("a defect of the client"),
}


@virtual(synced, "a", "b")
async def test_a_cut_is_resumed_where_it_was_without_listing(w: CheckedInformer) -> None:
    w.server.put("a")
    await w.settle(1)
    w.server.cut()
    w.server.put("b")
    w.server.drop("a")
    await w.settle()
    assert w.told.taken() == ["~a", "~b", "-a"]
    assert w.server.calls == ["probe", "watch 103"]


@virtual(synced, "a")
async def test_an_ordered_end_is_resumed_at_once(w: CheckedInformer) -> None:
    w.server.put("a")
    await w.settle(5)
    w.server.end_watches()
    await w.settle(0.01)
    assert w.server.calls == ["watch 102"]


@virtual(synced, "a")
async def test_bookmarks_move_the_position(w: CheckedInformer) -> None:
    w.server.version = 500  # something else changed
    await w.settle(100)
    w.server.forget()
    w.server.end_watches()
    await w.settle(1)
    assert w.server.calls == ["watch 500"]


@virtual(world, "a")
async def test_a_bookmark_without_version_is_passed_over(w: CheckedInformer) -> None:
    w.server.bookmark_version = lambda _: ""
    await w.sync()
    await w.settle(200)
    w.server.cut()
    await w.settle()
    assert w.server.calls == ["probe", "watch 101"]


@virtual(world, "a", "b", "c")
async def test_a_cut_among_the_initial_events_begins_anew(w: CheckedInformer) -> None:
    w.server.initial_pause = 10
    w.informer.start()
    await w.settle(25)
    assert w.told.taken() == ["+a", "+b"]
    w.server.cut()
    w.server.drop("a")
    await w.settle()
    assert w.server.calls == ["stream", "stream"]
    assert w.told.taken() == ["+c", "-a"]
    w.assert_true_to_the_server()


@virtual(world, "a")
async def test_an_end_among_the_initial_events_does_not_count_as_synced(w: CheckedInformer) -> None:
    w.server.initial_pause = 1000
    w.informer.start()
    await w.settle(10)
    w.server.initial_pause = 0
    w.server.cut()
    assert not w.informer.has_synced
    await w.settle()
    assert w.informer.has_synced


@virtual(world, "a", "b", "c")
async def test_changes_among_the_initial_events_count(w: CheckedInformer) -> None:
    w.server.changes_among_initial = True
    w.server.initial_pause = 10
    w.informer.start()
    await w.settle(35)
    w.server.drop("a")
    w.server.put("b")
    w.server.put("d")
    assert not w.informer.has_synced
    await w.settle(10)
    assert w.told.taken() == ["+a", "+b", "+c", "-a", "~b", "+d"]
    w.server.cut()
    await w.settle(5)
    assert w.server.calls == ["stream", "probe", "watch 106"]


@virtual(world, *"abcd", page_size=2)
async def test_a_cut_between_chunks_begins_anew(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.server.page_pause = 5
    w.informer.start()
    await w.settle(1)
    w.server.failures = [AWAY]
    w.server.drop("a")
    await w.settle()
    w.assert_true_to_the_server()


@virtual(world, *"abcd", page_size=2)
async def test_changes_while_chunks_are_read_are_told(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.server.page_pause = 5
    w.informer.start()
    await w.settle(1)
    w.server.drop("d")
    w.server.drop("a")
    w.server.put("e")
    await w.settle(20)
    assert w.told.taken() == ["+a", "+b", "+c", "+d", "-d", "-a", "+e"]
    w.assert_true_to_the_server()


@virtual(synced, "a", "b", "c")
async def test_410_on_a_resume_lists_anew_and_tells_what_is_gone(w: CheckedInformer) -> None:
    w.server.cut()
    w.server.drop("a")
    w.server.put("b")
    w.server.put("d")
    w.server.forget()
    await w.settle()
    assert w.server.calls == ["probe", "watch 103", "stream"]
    assert w.told.taken() == ["~b", "+d", "-a"]
    w.assert_true_to_the_server()


@virtual(synced, "a", "b")
async def test_410_as_an_event_lists_anew(w: CheckedInformer) -> None:
    w.server.silent = True
    w.server.drop("a")
    w.server.expire_watches()
    w.server.silent = False
    await w.settle()
    assert w.server.calls == ["stream"]
    assert w.told.taken() == ["-a"]


@virtual(world, *"abcd", page_size=2)
async def test_410_between_chunks_lists_anew(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.server.page_pause = 5
    w.informer.start()
    await w.settle(1)
    w.server.put("a")
    w.server.forget()
    w.server.page_pause = 0
    await w.settle()
    assert w.server.calls.count("list") == 2
    assert w.informer.has_synced
    w.assert_true_to_the_server()


@virtual(world, "a", "b")
async def test_410_among_the_initial_events_begins_anew(w: CheckedInformer) -> None:
    w.server.initial_pause = 10
    w.informer.start()
    await w.settle(15)
    w.server.expire_watches()
    await w.settle()
    assert w.server.calls == ["stream", "stream"]
    w.assert_true_to_the_server()


@virtual(world, "a")
async def test_410_on_the_first_request_is_tried_again(w: CheckedInformer) -> None:
    w.server.failures = [EXPIRED]
    w.informer.start()
    await w.settle()
    assert w.server.calls == ["stream", "stream"]
    assert w.informer.has_synced


@virtual(world, "a")
async def test_an_endless_410_is_no_hot_loop(w: CheckedInformer) -> None:
    w.server.failures = [EXPIRED] * 10_000
    w.informer.start()
    await w.settle(3600)
    assert 50 < len(w.server.calls) < 250


@virtual(world, "a")
async def test_a_list_that_is_expired_at_once_each_time_is_no_hot_loop(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    await w.sync()
    for _ in range(1000):
        w.server.expire_watches()
        await w.settle(1)
    assert w.server.calls.count("list") < 100


@virtual(synced, "a")
async def test_a_watch_that_ends_at_once_each_time_is_no_hot_loop(w: CheckedInformer) -> None:
    for _ in range(36_000):
        w.server.end_watches()
        await w.settle(0.1)
    assert len(w.server.calls) < 500


@virtual(world, "a", "b")
async def test_an_object_that_vanishes_before_the_watch_is_told_gone(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.informer.start()
    while not w.informer.has_synced:
        await w.sim.clock.sleep(0)
    w.server.drop("a")
    await w.settle(1)
    assert w.told.taken() == ["+a", "+b", "-a"]


@virtual(synced)
async def test_an_object_that_came_and_went_unseen_is_not_told(w: CheckedInformer) -> None:
    w.server.expire_watches()
    w.server.put("a")
    w.server.drop("a")
    await w.settle()
    assert w.told.taken() == []


@virtual(synced)
async def test_the_end_of_an_unknown_object_is_passed_over(w: CheckedInformer) -> None:
    w.server.silent = True
    w.server.put("a")
    w.server.history.pop()
    w.server.silent = False
    w.server.drop("a")
    await w.settle(1)
    assert w.told.taken() == []
    assert w.server.calls == []


@virtual(synced, "a")
async def test_an_object_replaced_while_nobody_looked_is_gone_first(w: CheckedInformer) -> None:
    w.server.expire_watches()
    w.server.drop("a")
    w.server.put("a")
    await w.settle()
    assert w.told.taken() == ["-a", "+a"]


@virtual(synced, "a", "b")
async def test_an_unchanged_object_is_not_told_again_by_a_list(w: CheckedInformer) -> None:
    before = w.cache.get("default/a")
    w.server.put("b")
    w.server.expire_watches()
    await w.settle()
    assert w.told.taken() == ["~b"]
    assert w.cache.get("default/a") is before


@virtual(world)
async def test_what_is_not_kept_of_object_does_not_make_it_look_changed(w: CheckedInformer) -> None:
    w.server.put("a", metadata={"annotations": {LAST_APPLIED: "{}", "x": "y"}})
    await w.sync()
    w.server.expire_watches()
    await w.settle()
    assert w.server.calls == ["stream"]
    assert w.told.taken() == []


@virtual(synced)
async def test_an_event_that_comes_twice_is_told_once(w: CheckedInformer) -> None:
    w.server.put("a")
    w.server.history.append(w.server.history[-1])
    for watch in w.server.watches:
        watch.position = 0
    await w.settle(1)
    assert w.told.taken() == ["+a"]


@virtual(synced, "a", "b")
async def test_older_events_that_come_again_make_no_ghosts(w: CheckedInformer) -> None:
    w.server.drop("a")
    await w.settle(1)
    w.told.taken()
    for watch in w.server.watches:
        watch.position = 0  # the whole history once more
    w.server.put("b")
    await w.settle()
    assert w.told.taken() == ["~b"]
    w.assert_true_to_the_server()


@virtual(synced, "a", "b")
async def test_a_server_that_went_back_in_time_is_listed_anew(w: CheckedInformer) -> None:
    before = w.server.version
    w.server.put("a")
    w.server.put("c")
    w.server.drop("b")
    await w.settle(1)
    w.told.taken()
    w.server.rewind(before)
    await w.settle()
    assert w.server.calls == ["probe", "stream"]
    assert w.told.taken() == ["~a", "+b", "-c"]
    w.assert_true_to_the_server()


@virtual(synced, "a")
async def test_versions_that_are_given_out_again_do_not_hide_a_change(w: CheckedInformer) -> None:
    before = w.server.version
    w.server.put("a", spec={"nodeName": "n1"})
    w.server.put("b")
    await w.settle(1)
    w.told.taken()
    w.server.rewind(before)
    w.server.put("a", spec={"nodeName": "n2"})
    await w.settle()
    assert w.told.taken() == ["~a", "-b"]
    w.assert_true_to_the_server()


@virtual(synced, "a")
async def test_server_that_went_back_behind_a_connection_is_noticed(w: CheckedInformer) -> None:
    """As behind a proxy: the watch stays open, and silent, until it is given up."""
    before = w.server.version
    w.server.put("b")
    await w.settle(1)
    w.server.rewind(before)
    for watch in w.server.watches:
        watch.failure = None
    await w.settle(95)
    w.assert_true_to_the_server()


@virtual(synced, "a")
async def test_a_bookmark_from_the_past_is_noticed(w: CheckedInformer) -> None:
    w.server.bookmark_version = lambda _: "7"
    await w.settle(61)
    w.server.bookmark_version = str
    await w.settle(10)
    assert w.server.calls == ["stream"]


@virtual(synced, "a")
async def test_a_silent_watch_is_given_up_and_resumed(w: CheckedInformer) -> None:
    w.server.silent = True
    w.server.put("b")
    await w.settle(89)
    assert w.server.calls == []
    w.server.silent = False
    await w.settle(3)
    assert w.server.calls == ["probe", "watch 101"]
    assert w.told.taken() == ["+b"]


@virtual(world, "a")
async def test_initial_events_that_never_end_give_way_to_a_list(w: CheckedInformer) -> None:
    """As with servers that do not know them, and proxies that hold streams back."""
    w.server.initial_pause = 1e6
    w.informer.start()
    await w.settle(95)
    assert w.server.calls == ["stream", "list", "watch 101"]
    assert w.informer.has_synced


@virtual(world, *"abcdef")
async def test_slow_initial_events_are_waited_for(w: CheckedInformer) -> None:
    w.server.initial_pause = 80
    w.informer.start()
    await w.settle(600)
    assert w.server.calls == ["stream"]
    assert w.informer.has_synced


@cases("failure", FAILURES)
@virtual(world, "a")
async def test_failures_are_outlived(w: CheckedInformer, failure: Exception) -> None:
    w.server.failures = [failure] * 3
    w.informer.start()
    await w.settle()
    w.assert_true_to_the_server()
    w.server.cut()
    w.server.failures = [failure] * 3
    w.server.put("b")
    await w.settle()
    w.assert_true_to_the_server()


@virtual(world, "a")
async def test_an_answer_without_version_is_not_trusted(w: CheckedInformer) -> None:
    w.server.knows_initial_events = False
    w.server.version = ""  # type: ignore[assignment]
    w.informer.start()
    await w.settle(5)
    assert not w.informer.has_synced


@virtual(synced, "a")
async def test_who_may_watch_but_not_list_can_resume(w: CheckedInformer) -> None:
    w.server.cut()
    w.server.failures = [errors.Forbidden("cannot list resource pods", code=403)]
    w.server.put("b")
    await w.settle(5)
    assert w.server.calls == ["probe", "watch 101"]
    assert w.told.taken() == ["+b"]


@virtual(synced, "a", retry_jitter=0.0)
async def test_waits_grow_to_bound_and_begin_small_again_after_success(w: CheckedInformer) -> None:
    w.server.failures = [AWAY] * 12
    w.server.cut()
    times = []
    while len(w.server.calls) < 12:
        count = len(w.server.calls)
        await w.settle(0.05)
        if len(w.server.calls) > count:
            times.append(w.sim.clock.monotonic())
    gaps = [round(b - a, 1) for a, b in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 30], abs=0.1)
    await w.settle(60)
    w.server.put("a")
    await w.settle(1)
    w.server.calls.clear()
    w.server.cut()
    await w.settle(0.3)
    assert w.server.calls == ["probe", "watch 102"]


@virtual(world, "a", retry_jitter=0.0)
async def test_a_long_quiet_watch_counts_as_success(w: CheckedInformer) -> None:
    w.server.failures = [AWAY] * 12
    w.informer.start()
    await w.settle(600)
    w.server.calls.clear()
    w.server.cut()
    await w.settle(0.3)
    assert w.server.calls == ["probe", "watch 101"]


@virtual(world, "a", seeds=5)
async def test_waits_are_spread(w: CheckedInformer) -> None:
    settings = FollowSettings()
    w.server.failures = [AWAY]
    w.informer.start()
    await w.settle(settings.retry_seconds - 0.01)
    assert w.server.calls == ["stream"]
    await w.settle(settings.retry_seconds + 0.02)
    assert w.server.calls == ["stream", "stream"]


@virtual(world, "a")
async def test_the_server_is_not_asked_before_it_wants_to(w: CheckedInformer) -> None:
    w.server.failures = [errors.TooManyRequests("later", code=429, retry_after=20)]
    w.informer.start()
    await w.settle(19.9)
    assert w.server.calls == ["stream"]
    await w.settle(0.2)
    assert w.server.calls == ["stream", "stream"]


@virtual()
async def test_a_defect_is_logged_with_its_trace_and_a_cut_without(
    sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(sim, "a") as w:
        w.server.failures = [RuntimeError("boom"), AWAY]
        with caplog.at_level(logging.WARNING):
            w.informer.start()
            await w.settle()
    defect, cut = caplog.records
    assert defect.exc_info is not None
    assert cut.exc_info is None
    assert "pods: connection refused; again in" in cut.getMessage()


@virtual(world)
async def test_a_slow_handler_does_not_make_a_watch_look_dead(w: CheckedInformer) -> None:
    loop = cast("VirtualLoop", asyncio.get_running_loop())

    def hold_the_loop(_: object) -> None:
        loop._now += 500

    await w.sync()
    w.informer.add_handler(hold_the_loop)
    w.server.put("a")
    w.server.put("b")
    before = w.sim.clock.monotonic()
    await w.settle(1)
    assert w.sim.clock.monotonic() >= before + 1000
    assert w.told.taken() == ["+a", "+b"]
    assert w.server.calls == []


@virtual()
async def test_handlers_stay_consistent_over_many_cuts(sim: Sim) -> None:
    w = CheckedInformer(sim)
    w.informer.start()
    for number in range(200):
        w.server.put(f"p{number % 7}")
        if number % 3 == 0:
            w.server.cut()
        if number % 11 == 0:
            w.server.expire_watches()
        await w.settle(0.5)
    await w.settle()
    w.assert_true_to_the_server()
    await w.informer.close()
