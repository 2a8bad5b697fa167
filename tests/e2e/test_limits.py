# SPDX-License-Identifier: Apache-2.0
"""What clients may take of a server, over real connections.

The server runs in this process with bounds so small that they are reached at
once; what a test waits for is always something that the server does.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web

from refloat.apiserver import identity
from refloat.apiserver.authentication import Tokens
from refloat.apiserver.identity import ADMIN
from refloat.apiserver.limits import TOO_MANY, Limits
from refloat.apiserver.routes import Target
from tests import servers
from tests.cases import cases
from tests.servers import ListeningServer

SOON = 0.1
"""Seconds, for a bound that a test wants to be reached."""

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
AUTH = f"Authorization: Bearer {servers.TOKEN}\r\n"


@dataclass
class RawConnection:
    """A connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: str = "",
        *,
        token: str = servers.TOKEN,
    ) -> None:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        auth = f"Authorization: Bearer {token}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{auth}{length}{headers}\r\n"
        self.send(head.encode() + body)

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = (line.partition(": ")[::2] for line in raw[1:] if line)
        return int(raw[0].split()[1]), {name.lower(): text for name, text in pairs}

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """An answer with a length."""
        status, headers = await self.head()
        return status, headers, await self.reader.readexactly(int(headers["content-length"]))

    async def status(self) -> tuple[int, dict[str, str], dict[str, Any]]:
        """An answer that is a Status."""
        code, headers, body = await self.answer()
        status: dict[str, Any] = json.loads(body)
        assert (status["kind"], status["code"]) == ("Status", code)
        return code, headers, status

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""


@asynccontextmanager
async def connected(server: ListeningServer) -> AsyncIterator[RawConnection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()


async def answers(server: ListeningServer) -> bool:
    """Does the server still answer others?"""
    async with connected(server) as wire:
        wire.ask("GET", f"{MAPS}/none")
        return (await wire.status())[0] == 404


def config_map(name: str, size: int = 0) -> bytes:
    return json.dumps({"metadata": {"name": name}, "data": {"k": "v" * size}}).encode()


# -- what does not come ----------------------------------------------------


@cases(
    "request_bytes",
    {
        "nothing": b"",
        "half a request line": b"GET /ver",
        "half a header": b"GET /version HTTP/1.1\r\nHost: x\r\nA: ",
    },
)
async def test_a_request_that_does_not_come_ends_its_connection(request_bytes: bytes) -> None:
    async with servers.serving(Limits(head_seconds=SOON)) as server:
        async with connected(server) as wire:
            wire.send(request_bytes)
            assert await wire.rest() == b""
        assert await answers(server)


async def test_a_second_request_that_half_comes_ends_its_connection() -> None:
    async with servers.serving(Limits(head_seconds=SOON)) as server, connected(server) as wire:
        wire.ask("GET", f"{MAPS}/none")
        assert (await wire.status())[0] == 404
        wire.send("GET /vers")
        assert await wire.rest() == b""


async def test_a_body_that_does_not_come_is_answered_and_holds_nothing() -> None:
    async with servers.serving(Limits(body_seconds=SOON)) as server, connected(server) as wire:
        wire.send(f"POST {MAPS} HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 100\r\n\r\n{{")
        code, _, body = await wire.status()
        assert (code, body["message"]) == (408, "the body of the request did not arrive in time")
        assert server.http.in_flight.counts["mutating"] == 0


async def test_a_client_that_leaves_in_its_body_leaves_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with servers.serving() as server:
        async with connected(server) as wire:
            wire.send(f"POST {MAPS} HTTP/1.1\r\nHost: x\r\n{AUTH}Content-Length: 100\r\n\r\n{{")
            await until(lambda: server.http.in_flight.counts["mutating"] == 1)
        await until(lambda: server.http.in_flight.counts["mutating"] == 0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_connection_that_is_not_used_ends() -> None:
    async with servers.serving(Limits(idle_seconds=SOON)) as server, connected(server) as wire:
        wire.ask("GET", f"{MAPS}/none")
        assert (await wire.status())[0] == 404
        assert await wire.rest() == b""


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that the server does."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.001)


# -- what is not read ------------------------------------------------------

UNREAD = Limits(unread_seconds=SOON, unread_bytes_per_second=2**40)

# For those who do read: a machine that is busy stops for longer than a moment.
LENIENT = Limits(unread_seconds=3.0, unread_bytes_per_second=2**40)


async def fill(server: ListeningServer, count: int) -> None:
    """Objects of 100 KB each."""
    async with connected(server) as wire:
        for number in range(count):
            wire.ask("POST", MAPS, config_map(f"large-{number}", 100_000))
            assert (await wire.answer())[0] == 201


async def test_a_client_that_does_not_read_its_list_is_cut_off() -> None:
    async with servers.serving(UNREAD) as server:
        await fill(server, 250)
        async with connected(server) as wire:
            wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
            wire.ask("GET", MAPS)
            await until(lambda: server.http.in_flight.counts["readOnly"] == 1)
            await until(lambda: server.http.in_flight.counts["readOnly"] == 0)
        assert await answers(server)


async def test_a_watcher_that_does_not_read_is_cut_off_and_others_are_not() -> None:
    async with (
        servers.serving(LENIENT) as server,
        connected(server) as idle,
        connected(server) as keen,
    ):
        for wire in (idle, keen):
            wire.ask("GET", f"{MAPS}?watch=true&resourceVersion={server.store.revision}")
            assert (await wire.head())[0] == 200
        idle.writer.transport.pause_reading()  # type: ignore[attr-defined]
        keen.reader._limit = 2**30  # type: ignore[attr-defined]
        last_event = asyncio.ensure_future(keen.reader.readuntil(b"large-249"))
        await fill(server, 250)
        await last_event
        await until(lambda: server.dispatcher.watchers == 1)


async def test_a_list_that_is_read_is_not_cut_off() -> None:
    async with servers.serving(LENIENT) as server:
        await fill(server, 250)
        async with connected(server) as wire:
            wire.ask("GET", MAPS, headers="Connection: close\r\n")
            assert (await wire.head())[0] == 200
            assert (await wire.rest()).count(b'"large-') == 250


# -- what is too much ------------------------------------------------------


async def test_a_body_as_large_as_allowed_is_read_and_one_byte_more_is_not() -> None:
    async with servers.serving() as server:
        for more, want in ((0, 400), (1, 413)):
            async with connected(server) as wire:
                wire.ask("POST", MAPS, b"x" * (3 * 2**20 + more))
                code, _, body = await wire.status()
                assert code == want
        assert body["message"] == "Request entity too large: limit is 3145728"


async def test_a_large_body_without_its_length_is_refused_too() -> None:
    async with servers.serving(Limits(body_bytes=1000)) as server, connected(server) as wire:
        wire.ask("POST", MAPS, headers="Transfer-Encoding: chunked\r\n")
        wire.send(b"400\r\n" + b"x" * 1024 + b"\r\n0\r\n\r\n")
        assert (await wire.status())[0] == 413


@cases(
    "head",
    {
        "a request line": b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n",
        "a header": b"GET / HTTP/1.1\r\nA: " + b"a" * 3000 + b"\r\n\r\n",
    },
)
async def test_a_head_that_is_too_large_is_refused(head: bytes) -> None:
    async with servers.serving(Limits(head_bytes=2000)) as server, connected(server) as wire:
        wire.send(head)
        assert (await wire.status())[0] == 431


async def test_a_head_of_many_small_parts_is_bounded_too() -> None:
    async with servers.serving(Limits(head_bytes=2000)) as server, connected(server) as wire:
        wire.send(b"GET / HTTP/1.1\r\n" + b"A: aaaaaaaaaaaaaaaaaaaa\r\n" * 100)
        assert await wire.rest() == b""


async def test_more_connections_than_allowed_are_refused() -> None:
    async with (
        servers.serving(Limits(connections=2)) as server,
        connected(server) as first,
        connected(server) as second,
    ):
        for wire in (first, second):
            wire.ask("GET", f"{MAPS}/none")
            assert (await wire.status())[0] == 404
        async with connected(server) as third:
            assert await third.rest() == b""
        first.ask("GET", f"{MAPS}/none")
        assert (await first.status())[0] == 404


@cases(
    "bounds method path",
    {
        "reads": (Limits(read_only=0), "GET", MAPS),
        "documents": (Limits(read_only=0), "GET", "/api"),
        "writes": (Limits(mutating=0), "DELETE", f"{MAPS}/x"),
        "watches": (Limits(watchers=0), "GET", f"{MAPS}?watch=1"),
    },
)
async def test_more_requests_than_allowed_are_told_to_come_back(
    bounds: Limits, method: str, path: str
) -> None:
    async with servers.serving(bounds) as server, connected(server) as wire:
        wire.ask(method, path)
        code, headers, body = await wire.status()
        assert (code, headers["retry-after"]) == (429, "1")
        assert (body["message"], body["reason"]) == (TOO_MANY, "TooManyRequests")


async def test_health_is_told_however_much_is_going_on() -> None:
    async with servers.serving(Limits(read_only=0)) as server, connected(server) as wire:
        wire.ask("GET", "/readyz")
        assert (await wire.answer())[2] == b"ok"


async def test_watches_do_not_count_as_reads() -> None:
    async with servers.serving(Limits(read_only=1)) as server, connected(server) as watch:
        watch.ask("GET", f"{MAPS}?watch=1")
        assert (await watch.head())[0] == 200
        assert await answers(server)


async def test_a_place_is_given_back_when_a_watch_ends() -> None:
    async with servers.serving(Limits(watchers=1)) as server:
        for _ in range(3):
            async with connected(server) as watch:
                watch.ask("GET", f"{MAPS}?watch=1")
                assert (await watch.head())[0] == 200
            await until(lambda: server.http.in_flight.counts["watch"] == 0)


async def test_a_nodes_large_lease_does_not_wait_for_the_thread_that_users_share() -> None:
    tokens = Tokens({servers.TOKEN: ADMIN, "of-the-node": identity.node("n1")})
    lease = {"metadata": {"name": "n1", "annotations": {"example.com/k": "v" * 30_000}}}
    async with servers.serving(Limits(waiting=0), tokens=tokens) as server:
        await server.http._shares.worker.turns.take("other")
        async with connected(server) as wire:
            wire.ask("POST", MAPS, config_map("large", 30_000))
            assert (await wire.status())[0] == 429
            wire.ask("POST", LEASES, json.dumps(lease).encode(), token="of-the-node")
            assert (await wire.answer())[0] == 201
            wire.ask("GET", f"{LEASES}/n1", token="of-the-node")
            assert (await wire.answer())[0] == 200


# -- what is wrong ---------------------------------------------------------


@cases(
    "request_text want",
    {
        "version 2": ("GET /version HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        "no host": ("GET /version HTTP/1.1\r\n\r\n", 400),
        "bad escape": ("GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        "no path": ("GET api HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        "asterisk": ("GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        "unknown method": ("FOO /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        "no HTTP at all": ("\0\1\2\r\n\r\n", 400),
        "bad header name": ("GET / HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", 400),
        "bad header value": ("GET / HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400),
        "expectation": (f"GET /version HTTP/1.1\r\nHost: x\r\n{AUTH}Expect: x\r\n\r\n", 417),
        "bad length": ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", 400),
        "bad chunk": (
            f"POST {MAPS} HTTP/1.1\r\nHost: x\r\n{AUTH}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
    },
)
async def test_what_is_no_request_is_answered_with_a_status(
    request_text: str, want: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with servers.serving() as server:
        async with connected(server) as wire:
            wire.send(request_text)
            assert (await wire.status())[0] == want
        assert await answers(server)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("name", "want"),
    [
        (".", "Name parameter invalid: \".\": may not be '.'"),
        ("..", "Name parameter invalid: \"..\": may not be '..'"),
        ("a%25b", "Name parameter invalid: \"a%b\": may not contain '%'"),
        ("%00", 'configmaps "\\x00" not found'),
    ],
)
async def test_names_that_nothing_can_have_are_refused_in_kubernetes_words(
    name: str, want: str
) -> None:
    async with servers.serving() as server, connected(server) as wire:
        wire.ask("GET", f"{MAPS}/{name}")
        assert (await wire.status())[2]["message"] == want


async def test_a_chunk_that_is_wrong_later_is_answered_too() -> None:
    async with servers.serving() as server, connected(server) as wire:
        wire.ask("POST", MAPS, headers="Transfer-Encoding: chunked\r\n")
        await until(lambda: server.http.in_flight.counts["mutating"] == 1)
        wire.send(b"zz\r\n")
        assert (await wire.status())[0] == 400


async def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    async with servers.serving() as server, connected(server) as wire:
        body = config_map("asked-first")
        head = f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n"
        wire.ask("POST", MAPS, headers=head)
        assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.send(body)
        assert (await wire.answer())[0] == 201


async def test_an_upgrade_is_not_done_and_ends_the_connection() -> None:
    async with servers.serving() as server, connected(server) as wire:
        wire.ask("GET", f"{MAPS}/none", headers="Connection: Upgrade\r\nUpgrade: websocket\r\n")
        assert (await wire.status())[0] == 404
        assert await wire.rest() == b""


# -- bugs ------------------------------------------------------------------


async def test_a_bug_is_a_logged_500_and_the_server_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> web.StreamResponse:
        raise ZeroDivisionError("a bug")

    async with servers.serving() as server:
        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
            patch.setattr(server.resources, "serve", broken)
            async with connected(server) as wire:
                wire.ask("GET", MAPS)
                code, headers, body = await wire.status()
        assert (code, body["reason"]) == (500, "InternalError")
        assert "a bug" not in body["message"]
        [record] = [each for each in caplog.records if each.exc_info]
        assert record.__dict__["fields"]["id"] == headers["audit-id"]
        assert await answers(server)


async def test_a_bug_in_the_middle_of_an_answer_breaks_it_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(exchange: Any, user: Any, verb: str, target: Target) -> web.StreamResponse:
        response: web.StreamResponse = await exchange.stream("application/json")
        await response.write(b'{"items":[')
        raise ZeroDivisionError("a bug")

    async with servers.serving() as server:
        monkeypatch.setattr(server.resources, "serve", broken)
        async with connected(server) as wire:
            wire.ask("GET", MAPS)
            assert (await wire.head())[0] == 200
            rest = await wire.rest()
        assert b'{"items":[' in rest
        assert not rest.endswith(b"0\r\n\r\n")  # the end of a whole answer


async def test_a_write_is_completed_when_its_client_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with servers.serving() as server:
        started, go_on = asyncio.Event(), asyncio.Event()
        create = server.registry.create

        async def slow(*args: Any) -> Any:
            started.set()
            await go_on.wait()
            return await create(*args)

        monkeypatch.setattr(server.registry, "create", slow)
        async with connected(server) as wire:
            wire.ask("POST", MAPS, config_map("left"))
            await started.wait()
        await until(lambda: server.http.in_flight.counts["mutating"] == 0)
        go_on.set()
        await until(lambda: server.store.get("configmaps/default/left") is not None)
