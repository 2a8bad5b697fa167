# SPDX-License-Identifier: Apache-2.0
"""What a watch makes of a stream that misbehaves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from refloat.client import cluster_access, errors, watch_stream
from refloat.client.contract import Watch
from refloat.client.http import HttpClient
from tests.cases import cases
from tests.clocks import ManualClock
from tests.unit.client.conftest import PODS, SETTINGS, Connect, Pod
from tests.unit.client.misbehaving import (
    Misbehaving,
    answer,
    event,
    failure,
    hang,
    obj,
    reset,
    status,
    stream,
)


def pod(name: str, version: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": version}, **more}


A = event("ADDED", pod("a", "5"))
B = event("MODIFIED", pod("b", "6"))


@pytest.fixture
def watch(client: HttpClient) -> Watch[Pod]:
    return client.watch(PODS, namespace="n", resource_version="4")


Told = list[tuple[str, str, str]]


async def read(watch: Watch[Pod], into: Told | None = None) -> Told:
    """All events of a watch, also those before an error."""
    events: Told = [] if into is None else into
    async for each in watch:
        obj = each.object
        name = obj.metadata.name if obj is not None and obj.metadata is not None else ""
        events.append((each.type, name or "", each.resource_version))
    return events


async def test_watch_that_the_server_ends_just_ends(server: Misbehaving, watch: Watch[Pod]) -> None:
    server.will(stream(A, B))
    assert await read(watch) == [("ADDED", "a", "5"), ("MODIFIED", "b", "6")]
    assert await read(watch) == []
    assert server.seen[0].target == (
        "/api/v1/namespaces/n/pods?watch=true&allowWatchBookmarks=true&resourceVersion=4"
    )


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_lines_are_put_together_from_whatever_pieces_arrive(
    size: int, server: Misbehaving, watch: Watch[Pod]
) -> None:
    both = A + B
    server.will(stream(*(both[at : at + size] for at in range(0, len(both), size))))
    assert await read(watch) == [("ADDED", "a", "5"), ("MODIFIED", "b", "6")]


async def test_a_line_of_several_megabytes_arrives(server: Misbehaving, watch: Watch[Pod]) -> None:
    server.will(stream(event("ADDED", pod("a", "5", status="x" * 3_000_000)), B))
    assert await read(watch) == [("ADDED", "a", "5"), ("MODIFIED", "b", "6")]


async def test_a_line_without_end_is_given_up(
    server: Misbehaving, watch: Watch[Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "MAX_LINE_BYTES", 1000)
    server.will(stream(b"x" * 2000, then="open"))
    with pytest.raises(errors.Unavailable, match="a line longer than 1000 B"):
        await read(watch)


@pytest.mark.parametrize("then", ["clean", "cut", "reset"])
async def test_a_cut_in_a_line_is_unavailable_and_the_piece_is_not_delivered(
    then: Any, server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(A, B[:30], then=then))
    events: Told = []
    with pytest.raises(errors.Unavailable):
        await read(watch, events)
    # A reset may overtake what was sent before it.
    assert events == [("ADDED", "a", "5")] or (then == "reset" and events == [])
    assert await read(watch) == []


async def test_cut_shows_what_was_read_of_the_line(server: Misbehaving, watch: Watch[Pod]) -> None:
    server.will(stream(B[:20]))
    with pytest.raises(errors.Unavailable, match=r"cut in the line '{\"type\": \"MODIFIED\",'"):
        await read(watch)


async def test_a_cut_between_lines_without_a_proper_end_is_unavailable(
    server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(A, then="cut"))
    events: Told = []
    with pytest.raises(errors.Unavailable, match="it was cut"):
        await read(watch, events)
    assert events == [("ADDED", "a", "5")]


async def test_a_line_that_is_not_json_is_unavailable_and_shown(
    server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(A, b"<html>sorry</html>\n", B, then="open"))
    events: Told = []
    with pytest.raises(errors.Unavailable, match=r"not a watch event.*'<html>sorry</html>'"):
        await read(watch, events)
    assert events == [("ADDED", "a", "5")]
    await server.gone.wait()
    assert await read(watch) == []


@cases(
    "line text",
    {
        "no object": (b"[]\n", "Expected `object`, got `array`"),
        "no object in": (b'{"type": "ADDED"}\n', "missing required field `object`"),
        "unknown type": (event("RENAMED", pod("a", "5")), "of type 'RENAMED'"),
        "not UTF-8": (b'\xff{"type"}\n', "not a watch event"),
        "another shape": (event("ADDED", {"metadata": 5}), "at `$.metadata`"),
    },
)
async def test_a_line_that_is_no_event_is_unavailable(
    line: bytes, text: str, server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(line))
    with pytest.raises(errors.Unavailable) as error:
        await read(watch)
    assert text in str(error.value)


async def test_410_as_an_event_is_expired(server: Misbehaving, watch: Watch[Pod]) -> None:
    server.will(stream(A, event("ERROR", failure(410, "Expired", "too old resource version"))))
    events: Told = []
    with pytest.raises(errors.Expired, match="too old resource version"):
        await read(watch, events)
    assert events == [("ADDED", "a", "5")]


async def test_410_as_an_event_with_the_older_reason_is_expired(
    server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(event("ERROR", failure(410, "Gone"))))
    with pytest.raises(errors.Expired):
        await read(watch)


async def test_410_as_a_status_is_expired(server: Misbehaving, watch: Watch[Pod]) -> None:
    server.will(status(410, "Expired", "too old resource version"))
    with pytest.raises(errors.Expired, match="too old"):
        await read(watch)


@cases(
    "body want",
    {
        "internal error": (failure(500, "InternalError"), errors.Unavailable),
        "too many": (failure(429, "TooManyRequests"), errors.TooManyRequests),
        "timeout": (failure(504, "Timeout"), errors.Timeout),
        "no Status": ({"what": "ever"}, errors.Unavailable),
        "null": (None, errors.Unavailable),
    },
)
async def test_an_error_event_is_the_error_that_it_names(
    body: Any, want: type[Exception], server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(stream(event("ERROR", body)))
    with pytest.raises(want):
        await read(watch)


async def test_a_bookmark_with_nulls_is_a_bookmark(server: Misbehaving, watch: Watch[Pod]) -> None:
    metadata = {"resourceVersion": "9", "creationTimestamp": None, "annotations": None}
    server.will(stream(event("BOOKMARK", {"metadata": metadata, "spec": {"containers": None}})))
    bookmark = await anext(watch)
    assert (bookmark.type, bookmark.object, bookmark.resource_version) == ("BOOKMARK", None, "9")
    assert not bookmark.initial_end


@pytest.mark.parametrize(("value", "ends"), [("true", True), ("false", False)])
async def test_only_the_marked_bookmark_ends_the_initial_events(
    value: str, ends: bool, server: Misbehaving, watch: Watch[Pod]
) -> None:
    metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": value}}
    server.will(stream(event("BOOKMARK", {"metadata": metadata})))
    assert (await anext(watch)).initial_end is ends


@cases(
    "act want",
    {
        "500": (status(500, "InternalError"), errors.Unavailable),
        "429": (status(429, "TooManyRequests"), errors.TooManyRequests),
        "403": (status(403, "Forbidden"), errors.Forbidden),
        "HTML": (answer(502, b"<html>", "text/html"), errors.Unavailable),
        "HTML 200": (answer(200, b"<html>\n", "text/html"), errors.Unavailable),
        "reset": (reset, errors.Unavailable),
    },
)
async def test_a_watch_that_cannot_begin_is_told_once_and_not_tried_again(
    act: Any, want: type[Exception], server: Misbehaving, watch: Watch[Pod]
) -> None:
    server.will(act)
    with pytest.raises(want):
        await anext(watch)
    assert await read(watch) == []
    assert len(server.seen) == 1


async def test_a_watch_is_retried_with_a_new_token(
    server: Misbehaving, connect: Connect, tmp_path: Path, clock: ManualClock
) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    client = connect(cluster_access.User(token_file=file))
    server.will(obj(pod("a", "5")), status(401, "Unauthorized"), stream(A))
    await client.get(PODS, "a", namespace="n")
    file.write_text("newer")
    assert await read(client.watch(PODS)) == [("ADDED", "a", "5")]
    assert [request.token for request in server.seen] == ["old", "old", "newer"]


async def test_silence_ends_a_watch_after_the_idle_timeout(
    server: Misbehaving, watch: Watch[Pod], clock: ManualClock
) -> None:
    server.will(stream(A, then="open"))
    assert (await anext(watch)).resource_version == "5"
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await clock.advance(SETTINGS.watch_idle_seconds)
    with pytest.raises(errors.Timeout, match="nothing for 70 s"):
        await waiting
    await server.gone.wait()


async def test_a_server_that_never_begins_a_watch_is_a_timeout(
    server: Misbehaving, watch: Watch[Pod], clock: ManualClock
) -> None:
    server.will(hang)
    waiting = asyncio.ensure_future(anext(watch))
    await server.arrived.wait()
    await clock.advance(SETTINGS.request_seconds)
    with pytest.raises(errors.Timeout):
        await waiting


class TestClosing:
    async def test_it_ends_a_reader_that_waits(
        self, server: Misbehaving, watch: Watch[Pod]
    ) -> None:
        server.will(stream(A, then="open"))
        await anext(watch)
        waiting = asyncio.ensure_future(read(watch))
        await asyncio.sleep(0)
        await watch.aclose()
        assert await waiting == []
        await server.gone.wait()
        assert server.open_connections == 0

    async def test_it_ends_a_reader_that_waits_for_the_watch_to_begin(
        self, server: Misbehaving, watch: Watch[Pod]
    ) -> None:
        server.will(hang)
        waiting = asyncio.ensure_future(read(watch))
        await server.arrived.wait()
        await watch.aclose()
        assert await waiting == []

    async def test_it_drops_what_was_not_read(self, server: Misbehaving, watch: Watch[Pod]) -> None:
        server.will(stream(A + B, then="open"))
        await anext(watch)
        await watch.aclose()
        assert await read(watch) == []

    async def test_a_watch_that_was_never_read_asks_for_nothing(
        self, server: Misbehaving, watch: Watch[Pod]
    ) -> None:
        await watch.aclose()
        await watch.aclose()
        assert await read(watch) == []
        assert server.seen == []

    async def test_a_reader_that_is_cancelled_before_the_begin_can_begin_anew(
        self, server: Misbehaving, watch: Watch[Pod]
    ) -> None:
        server.will(hang, stream(A))
        waiting = asyncio.ensure_future(anext(watch))
        await server.arrived.wait()
        await _cancelled(waiting)
        assert await read(watch) == [("ADDED", "a", "5")]

    async def test_a_reader_that_is_cancelled_loses_nothing(
        self, server: Misbehaving, watch: Watch[Pod]
    ) -> None:
        server.will(stream(A, B[:30], then="open"))
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await server.sent.wait()
        await _cancelled(waiting)
        assert server.open_connections == 1
        await watch.aclose()


async def _cancelled(waiting: asyncio.Future[Any]) -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
