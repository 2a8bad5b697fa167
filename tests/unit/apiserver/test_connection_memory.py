# SPDX-License-Identifier: Apache-2.0
"""What connections and the targets of their requests leave in memory."""

import asyncio

import pytest
from yarl import _parse, _url

from refloat.apiserver import connection, target_caches
from refloat.apiserver.limits import Limits
from refloat.apiserver.metrics import Metrics
from refloat.base.clock import RealClock
from tests import servers
from tests.cases import cases

LARGE = "a" * (2 * target_caches.LARGE_CHARACTERS)


async def answer(port: int, *heads: str) -> bytes:
    """All that the server sends on a connection on which the client sends these heads."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for head in heads:
        writer.write(head.encode())
        await writer.drain()
    text = await reader.read()
    writer.close()
    return text


def get(target: str) -> str:
    return f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_the_private_caches_of_yarl_are_known() -> None:
    """pyproject.toml bounds the version of yarl: another one may name the caches differently."""
    assert hasattr(_parse.split_netloc, "cache_clear")
    assert hasattr(_url.encode_url, "cache_clear")
    assert hasattr(_url.pre_encoded_url, "cache_clear")


@cases(
    "heads",
    {
        "in its query": [get(f"/healthz?{LARGE}")],
        "in its path": [get(f"/{LARGE}")],
        "absolute": [get(f"http://host/{LARGE}")],
        "of a CONNECT": [get(LARGE).replace("GET", "CONNECT")],
        "that is malformed": [get(f"{LARGE}:x").replace("GET", "CONNECT")],
        "in pieces": ["GET /", *["a" * 1024] * 8, " HTTP/1.0\r\n\r\n"],
    },
)
async def test_no_cache_keeps_a_large_target(heads: list[str]) -> None:
    target_caches.clear()
    async with servers.serving() as server:
        assert await answer(server.port, *heads)
    assert target_caches.count() == 0


async def test_no_cache_keeps_a_large_target_that_becomes_no_request() -> None:
    """The client leaves while the server still works on the request before."""
    target_caches.clear()
    async with servers.serving() as server:
        watch = "GET /api/v1/namespaces?watch=1 HTTP/1.1\r\nHost: x\r\n"
        authorization = f"Authorization: Bearer {servers.TOKEN}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write((watch + authorization).encode())
        await reader.readline()
        writer.write(get(f"/{LARGE}").encode())
        while target_caches.count() < 2:  # the server has split both targets
            await asyncio.sleep(0)
        writer.close()
        while target_caches.count():
            await asyncio.sleep(0)


async def test_a_small_target_stays_in_its_cache() -> None:
    target_caches.clear()
    async with servers.serving() as server:
        assert await answer(server.port, get("/healthz"))
    assert target_caches.count() > 0


async def test_memory_is_returned_after_each_20_connections() -> None:
    trims: list[None] = []
    connections = connection.ServerConnections(
        lambda _: None,
        limits=Limits(),
        clock=RealClock(),
        counts=Metrics(),
        trim_soon=lambda: trims.append(None),
    )
    counts = []
    for _ in range(2 * connection.TRIM_CONNECTIONS):
        connections.note_end()
        counts.append(len(trims))
    assert (counts[18], counts[19], counts[38], counts[39]) == (0, 1, 1, 2)


async def test_the_server_trims_after_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TRIM_CONNECTIONS", 1)
    trim = asyncio.Event()
    async with servers.serving() as server:
        monkeypatch.setattr(server.http._shares.worker._worker, "trim_soon", trim.set)
        await answer(server.port, get("/healthz"))
        await trim.wait()
