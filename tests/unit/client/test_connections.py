# SPDX-License-Identifier: Apache-2.0
"""Connections that are kept for the next request, and those that must not be."""

import asyncio

import pytest

from refloat.client import cluster_access, connections, errors
from refloat.client.connections import KEEPALIVE_SECONDS
from refloat.client.fence import fenced
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from tests.clocks import ManualClock
from tests.unit.client.conftest import PODS, Connect, Pod
from tests.unit.client.misbehaving import Act, Misbehaving, answer, event, hang, obj, stream

POD = {"metadata": {"name": "a"}}


async def get(client: HttpClient) -> Pod:
    return await client.get(PODS, "a", namespace="n")


async def used(server: Misbehaving) -> list[int]:
    return [request.connection for request in server.seen]


async def test_an_answer_in_chunks_leaves_the_connection_for_the_next(
    server: Misbehaving, client: HttpClient
) -> None:
    server.will(stream(b'{"metadata": ', b'{"name": "a"}}'), obj(POD))
    first = await get(client)
    assert first.metadata is not None
    assert first.metadata.name == "a"
    await get(client)
    assert await used(server) == [1, 1]


NOT_KEPT: dict[str, Act] = {
    "the server closes it": obj(POD, Connection="close"),
    "more came than was asked for": answer(200, b'{"metadata": {"name": "a"}}x', Content_Length=27),
}


@pytest.mark.parametrize("name", NOT_KEPT)
async def test_a_connection_is_not_used_again_when(
    name: str, server: Misbehaving, client: HttpClient
) -> None:
    server.will(NOT_KEPT[name], obj(POD))
    await get(client)
    await get(client)
    assert await used(server) == [1, 2]


async def test_an_answer_that_nobody_waits_for_any_more_is_nobody_elses(
    server: Misbehaving, client: HttpClient
) -> None:
    server.will(hang, obj(POD))
    waiting = asyncio.ensure_future(get(client))
    await server.arrived.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await get(client)
    assert await used(server) == [1, 2]


async def test_a_connection_that_lay_idle_for_long_is_not_trusted(
    server: Misbehaving, client: HttpClient, clock: ManualClock
) -> None:
    server.will(obj(POD), obj(POD), obj(POD))
    await get(client)
    await clock.advance(KEEPALIVE_SECONDS - 1)
    await get(client)
    await clock.advance(KEEPALIVE_SECONDS)
    await get(client)
    assert await used(server) == [1, 1, 2]


async def test_no_more_connections_are_opened_than_allowed(
    server: Misbehaving, connect: Connect
) -> None:
    client = connect(settings=ClientSettings(qps=0, connections=2))
    server.will(*[obj(POD)] * 10)
    await asyncio.gather(*(get(client) for _ in range(10)))
    assert set(await used(server)) == {1, 2}


async def test_a_request_that_is_stopped_at_the_last_moment_is_not_sent(
    server: Misbehaving, client: HttpClient
) -> None:
    def stop() -> None:
        raise PermissionError("not any more")

    server.will(obj(POD), obj(POD))
    await get(client)
    with fenced(stop), pytest.raises(errors.Unavailable, match="not any more"):
        await client.patch(PODS, "a", {}, namespace="n")
    await get(client)
    assert [request.method for request in server.seen] == ["GET", "GET"]
    assert await used(server) == [1, 1]


async def test_closing_ends_what_is_under_way(server: Misbehaving, client: HttpClient) -> None:
    server.will(hang)
    waiting = asyncio.ensure_future(get(client))
    await server.arrived.wait()
    await client.close()
    with pytest.raises(errors.Unavailable):
        await waiting
    await server.gone.wait()


async def test_every_group_that_is_impersonated_is_sent(
    server: Misbehaving, connect: Connect
) -> None:
    target = cluster_access.Impersonation("you", groups=("g", "h"))
    server.will(obj(POD))
    await get(connect(cluster_access.User(impersonate=target)))
    assert server.seen[0].headers["impersonate-group"] == "g, h"


async def test_what_a_watch_does_not_read_stays_with_the_server(
    server: Misbehaving, client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_HELD_BYTES", 100_000)
    pod = {"metadata": {"name": "a", "resourceVersion": "5"}, "padding": "x" * 60_000}
    server.will(stream(*[event("ADDED", pod)] * 1000))
    watch = client.watch(PODS, namespace="n", resource_version="4")
    await anext(watch)
    for _ in range(3000):  # turns of the loop: far more than 60 MB take
        await asyncio.sleep(0)
    assert not server.sent.is_set()
    assert len([each async for each in watch]) == 999
