# SPDX-License-Identifier: Apache-2.0
"""Pages for probes, scrapes and logs, and what becomes of those who ask badly."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from refloat.base.clock import RealClock
from refloat.runtime import mini_http
from refloat.runtime.mini_http import Page, PageServer, Request
from tests.clocks import ManualClock


async def show(request: Request) -> Page:
    match request.path:
        case "/echo":
            return Page(f"{request.method} {dict(request.query)}".encode())
        case "/pieces":
            return Page(_pieces())
        case "/broken":
            raise ZeroDivisionError
    return mini_http.NOT_FOUND


async def _pieces() -> AsyncGenerator[bytes, None]:
    for piece in (b"one", b"", b"two"):
        yield piece


@asynccontextmanager
async def serving(server: PageServer | None = None) -> AsyncIterator[tuple[str, int]]:
    server = server or PageServer(show, clock=RealClock())
    at = await server.start("127.0.0.1", 0)
    try:
        yield at
    finally:
        await server.close()


async def say(at: tuple[str, int], text: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection(*at)
    writer.write(text)
    try:
        return await reader.read()
    finally:
        writer.close()


ASKED = {
    "a page": (b"GET /echo?a=1&b=%20&c HTTP/1.1", 200, b"GET {'a': '1', 'b': ' ', 'c': ''}"),
    "a page in pieces": (b"GET /pieces HTTP/1.1", 200, b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
    "only its head": (b"HEAD /echo HTTP/1.1", 200, b""),
    "one that is not there": (b"GET /other HTTP/1.1", 404, b"404: Not Found"),
    "one that cannot be made": (b"GET /broken HTTP/1.1", 500, b"500: Internal Server Error"),
    "a change": (b"POST /echo HTTP/1.1", 405, b"405: Method Not Allowed"),
    "nonsense": (b"nonsense", 400, b"400: Bad Request"),
    "a proxy's form": (b"GET http://other/ HTTP/1.1", 400, b"400: Bad Request"),
}


@pytest.mark.parametrize(("line", "status", "body"), ASKED.values(), ids=ASKED.keys())
async def test_who_asks_for(line: bytes, status: int, body: bytes) -> None:
    async with serving() as at:
        head, _, found = (await say(at, line + b"\r\nHost: x\r\n\r\n")).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"Connection: close" in head
    assert found == body


async def test_a_head_without_end_is_refused() -> None:
    async with serving() as at:
        answer = await say(at, b"GET /echo HTTP/1.1\r\nX: " + b"x" * 2 * mini_http.MAX_HEAD_BYTES)
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_who_takes_too_long_is_hung_up_on() -> None:
    clock = ManualClock()
    async with serving(PageServer(show, clock=clock)) as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"GET /echo HTTP/1.1\r\n")
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():  # the socket's own time is not the clock's
            await clock.advance(mini_http.HEAD_SECONDS)
        assert await answer == b""
        writer.close()


async def test_closing_does_not_wait_for_a_page_without_end() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            yield b"begin"
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def answer(_: Request) -> Page:
        return Page(endless())

    clock = ManualClock()
    server = PageServer(answer, clock=clock)
    at = await server.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*at)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await begun.wait()
    closing = asyncio.ensure_future(server.close())
    await clock.advance(mini_http.CLOSE_SECONDS)
    await closing
    assert ended.is_set()
    writer.close()
