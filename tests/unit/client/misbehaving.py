# SPDX-License-Identifier: Apache-2.0
"""An API server that misbehaves on purpose, request by request, as a script says.

Speaks HTTP/1.1 by hand, since a server library would not let it cut a chunk,
reset a connection or answer in HTML under a JSON address. The script is a
list of acts, one for each request; an act after the last is a failed test.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from refloat.base.tasks import Tasks


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int
    peer: str = ""  # the name in the client's certificate

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")


Act = Callable[["Misbehaving", asyncio.StreamWriter], Awaitable[None]]

Ending = Literal["clean", "cut", "reset", "open"]


@dataclass
class Misbehaving:
    """The server, what it is to do, and what it was asked."""

    script: deque[Act] = field(default_factory=deque)
    seen: list[ReceivedRequest] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""
    open_connections: int = 0
    _connections: int = 0
    _tasks: Tasks = field(default_factory=Tasks)

    def will(self, *acts: Act) -> None:
        """Answer the next requests like this."""
        self.script.extend(acts)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self.open_connections += 1
        self._tasks.spawn(
            self._talk(reader, writer, self._connections), name=f"connection-{self._connections}"
        )

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        try:
            while (request := await _request(reader, writer, number)) is not None:
                self.seen.append(request)
                self.arrived.set()
                await self.script.popleft()(self, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.open_connections -= 1
            self.gone.set()
            writer.close()
            with suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def close(self) -> None:
        await self._tasks.close()


async def _request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
) -> ReceivedRequest | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(": ") for line in lines):
        before = headers.get(name.lower())
        headers[name.lower()] = value if before is None else f"{before}, {value}"
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(method, target, headers, body, number, _peer(writer))


def _peer(writer: asyncio.StreamWriter) -> str:
    certificate = writer.get_extra_info("peercert") or {}
    names = [value for rdn in certificate.get("subject", ()) for _, value in rdn]
    return names[0] if names else ""


@asynccontextmanager
async def serving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Misbehaving]:
    """A server at a free port of the loopback."""
    server = Misbehaving()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield server
    finally:
        listener.close()
        await server.close()
        await listener.wait_closed()


async def away() -> str:
    """The URL of a server that is not there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{probe.getsockname()[1]}"


def answer(code: int, body: bytes, kind: str = "application/json", **headers: object) -> Act:
    """Any body under any code; a header's name is given with underscores."""
    fields = {"Content-Type": kind, "Content-Length": len(body)}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())

    async def act(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {code} Whatever\r\n{head}\r\n".encode() + body)
        await writer.drain()

    return act


def obj(body: Any, code: int = 200, **headers: object) -> Act:
    return answer(code, json.dumps(body).encode(), "application/json", **headers)


def status(
    code: int, reason: str = "", message: str = "no", *, details: Any = None, **headers: object
) -> Act:
    """A failure in Kubernetes' own form."""
    return obj(failure(code, reason, message, details), code, **headers)


def failure(code: int, reason: str, message: str = "no", details: Any = None) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def event(kind: str, body: Any) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def stream(*pieces: bytes, then: Ending = "clean") -> Act:
    """A watch that sends these pieces, and ends like this."""

    async def act(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        server.sent.set()
        await _ENDINGS[then](server, writer)

    return act


async def _clean(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _cut(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
    writer.close()
    raise ConnectionResetError


async def reset(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
    """Break the connection so that the client is told."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise ConnectionResetError


async def hang(server: Misbehaving, writer: asyncio.StreamWriter) -> None:
    """Never say anything again, until the client is gone."""
    await writer.wait_closed()
    raise ConnectionResetError


_ENDINGS: dict[Ending, Act] = {"clean": _clean, "cut": _cut, "reset": reset, "open": hang}
