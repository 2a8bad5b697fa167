# SPDX-License-Identifier: Apache-2.0
"""A proxy between one component and the API server, which makes the link fail.

A `ProxyLink` ends TLS on both sides, with the server's own certificate, so that the link sees
where each request and each answer begins. The faults are of two kinds. Faults of the
whole link: `hold` (bytes wait, and arrive after `mend`), `cut` (connections close, new
ones too), `half_open` (connections stay open, and answers vanish), `delay`. Faults of
single requests, by `AnswerRule`: the answer is lost, replaced or held, or the request arrives
late. A request that the link has read reaches the server, also if the client is gone by
then: that is what a network does.

All links of a process share one event loop in a thread, so that tests stay
plain code that waits for conditions.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")

Mode = Literal["open", "held", "cut", "half-open"]

# A head is small, and a chunk of a watch is one object of at most 3 MB.
LIMIT_BYTES = 2**22

# The time between two attempts of a link to reach a stopped server.
CONNECT_SECONDS = 0.1

ERROR = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"an error on the server has prevented the request from succeeding",'
    b'"reason":"InternalError","code":500}'
)


class Action(Enum):
    """What happens to a request of a rule. In each case the server gets the request."""

    PASS = "nothing; the rule counts requests"
    LOSE = "the answer is lost, and the connection closes"
    ERROR = "the answer is replaced by a 500"
    HOLD = "the answer waits until the rule ends"
    LATE = "the connection closes at once, and the request arrives when the rule ends"


@dataclass
class Message:
    """One request, from a client."""

    method: str
    path: str
    head: bytes
    body: bytes

    @property
    def bytes(self) -> bytes:
        return self.head + self.body


@dataclass
class AnswerRule:
    """Which requests meet an action: `count` of them, or all until `end`."""

    action: Action
    matches: Callable[[Message], bool]
    count: int = 10**9
    bodies: list[bytes] = field(default_factory=list)
    """Of the requests that met the action."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def takes(self, message: Message) -> bool:
        if self.over.is_set() or len(self.bodies) >= self.count or not self.matches(message):
            return False
        self.bodies.append(message.body)
        return True


class ProxyLoop:
    """The event loop of all links, in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for the result."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ProxyLink:
    """The way of one component to the API server; the methods are for other threads."""

    def __init__(
        self, loop: ProxyLoop, pki: Path, port: int, client: tuple[Path, Path] | None = None
    ) -> None:
        """`pki` has the server's certificate; `client` is the certificate of the component."""
        self._loop = loop
        self._port = port
        self._serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._serving.load_cert_chain(pki / "server.crt", pki / "server.key")
        self._calling = ssl.create_default_context(cafile=pki / "ca.crt")
        if client is not None:
            self._calling.load_cert_chain(*client)
        self._rules: list[AnswerRule] = []
        self._connections: set[_Connection] = set()
        self.mode: Mode = "open"
        self.seconds = 0.0
        self.open = asyncio.Event()
        self.port = loop.run(self._start())

    async def _start(self) -> int:
        self.open.set()
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self._serving, limit=LIMIT_BYTES
        )
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    # Faults of the link

    def hold(self) -> None:
        """Bytes of both directions wait for `mend`, and then all of them arrive."""
        self._loop.run(self._set("held"))

    def cut(self) -> None:
        """Connections break, and no new one can be made."""
        self._loop.run(self._set("cut"))

    def half_open(self) -> None:
        """Requests arrive, answers vanish; connections of that time are dead for ever."""
        self._loop.run(self._set("half-open"))

    def delay(self, seconds: float) -> None:
        """Each request and each answer takes this much longer; running ones keep their delay."""
        self.seconds = seconds

    def mend(self) -> None:
        """End all faults of the link itself; rules end by their own."""
        self.seconds = 0.0
        self._loop.run(self._set("open"))

    async def _set(self, mode: Mode) -> None:
        self.mode = mode
        if mode == "held":
            self.open.clear()
        else:
            self.open.set()
        for each in list(self._connections):
            if mode == "cut":
                each.abort()
            elif mode == "half-open":
                each.dead = True

    # Faults of requests

    @contextlib.contextmanager
    def rule(
        self, action: Action, matches: Callable[[Message], bool], count: int = 10**9
    ) -> Iterator[AnswerRule]:
        """Requests meet an action until the end of the block."""
        rule = AnswerRule(action, matches, count)
        self._rules.append(rule)
        try:
            yield rule
        finally:
            self._rules.remove(rule)
            self._loop.run(self._end(rule))

    async def _end(self, rule: AnswerRule) -> None:
        rule.over.set()

    def rule_for(self, message: Message) -> AnswerRule | None:
        return next((each for each in self._rules if each.takes(message)), None)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        if self.mode == "cut":
            connection.abort()
            return
        connection.dead = self.mode == "half-open"
        self._connections.add(connection)
        try:
            await connection.serve()
        except (OSError, EOFError, ssl.SSLError):
            pass  # one of the two sides is gone, and so is the other in a moment
        finally:
            self._connections.discard(connection)
            connection.close()

    async def call(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the server, once there is one: a server that restarts is away."""
        return await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._calling, limit=LIMIT_BYTES
        )

    async def deliver(self, message: Message) -> None:
        """Have the server handle a request whose answer is for no client."""
        while True:
            try:
                reader, writer = await self.call()
                break
            except OSError:
                await asyncio.sleep(CONNECT_SECONDS)
        with contextlib.suppress(OSError, EOFError):
            writer.write(message.bytes)
            await _answer_head(reader)
        writer.transport.abort()

    def close(self) -> None:
        self._loop.run(self._stop())

    async def _stop(self) -> None:
        self._server.close()
        await self._set("cut")


class _Connection:
    """One connection of a client, and the matching one to the server."""

    def __init__(
        self, link: ProxyLink, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._link, self._reader, self._writer = link, reader, writer
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_sent = False
        self._late: asyncio.Future[None] | None = None
        self.dead = False

    def abort(self) -> None:
        """Close both sides at once."""
        self._writer.transport.abort()
        if self._server is not None:
            self._server[1].transport.abort()

    def close(self) -> None:
        """Close the client's side, and the server's unless a request is still to arrive there."""
        if self._late is None:
            self.abort()
        else:
            self._writer.transport.abort()
            self._late.add_done_callback(lambda _: self.abort())

    async def serve(self) -> None:
        """One request after another, as in HTTP/1.1."""
        while True:
            message = await _request(self._reader)
            self._is_sent = False
            work = asyncio.ensure_future(self._exchange(message, self._link.rule_for(message)))
            closing = asyncio.ensure_future(self._closed())
            await asyncio.wait({work, closing}, return_when=asyncio.FIRST_COMPLETED)
            closing.cancel()
            if not work.done():
                self._leave(work)
                raise ConnectionResetError
            work.result()

    def _leave(self, work: "asyncio.Future[None]") -> None:
        """The client is gone: the sent bytes still arrive, and no answer is read."""
        work.add_done_callback(_observe)
        if self._is_sent:
            work.cancel()
        else:
            self._late = work

    async def _closed(self) -> None:
        """Until the client has closed; a client sends no second request before the first answer."""
        while not self._reader.at_eof() and self._reader.exception() is None:
            await asyncio.sleep(CONNECT_SECONDS)

    async def _exchange(self, message: Message, rule: AnswerRule | None) -> None:
        if rule is not None and rule.action is Action.LATE:
            self._writer.transport.abort()
            await rule.over.wait()
            await self._link.deliver(message)
            return
        await self._wait()
        reader, writer = await self._to_server()
        writer.write(message.bytes)
        self._is_sent = True
        await self._answer(rule, reader)

    async def _to_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._server is None:
            self._server = await self._link.call()
        return self._server

    async def _answer(self, rule: AnswerRule | None, reader: asyncio.StreamReader) -> None:
        head = await _answer_head(reader)
        if self._late is not None:
            return
        if rule is not None:
            await self._act(rule, head, reader)
            if rule.action not in (Action.HOLD, Action.PASS):
                return
        await self._pass(head)
        async for piece in _pieces(head, reader):
            await self._pass(piece)

    async def _act(self, rule: AnswerRule, head: bytes, reader: asyncio.StreamReader) -> None:
        if rule.action is Action.LOSE:
            raise ConnectionResetError
        if rule.action is Action.HOLD:
            await rule.over.wait()
        if rule.action is not Action.ERROR:
            return
        async for _ in _pieces(head, reader):
            pass
        kind = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
        await self._pass(kind + b"Content-Length: %d\r\n\r\n" % len(ERROR) + ERROR)

    async def _pass(self, piece: bytes) -> None:
        """To the client, as the link is just now."""
        await self._wait()
        if not self.dead:
            self._writer.write(piece)
            await self._writer.drain()

    async def _wait(self) -> None:
        if self._link.seconds:
            await asyncio.sleep(self._link.seconds)
        await self._link.open.wait()


def _observe(work: "asyncio.Future[None]") -> None:
    """A request whose client is gone may fail; asyncio wants that to be read."""
    if not work.cancelled():
        work.exception()


async def _request(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    method, path, _ = head.split(b" ", 2)
    body = b""
    async for piece in _pieces(head, reader, is_request=True):
        body += piece
    return Message(method.decode(), path.decode(), head, body)


async def _answer_head(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def _pieces(
    head: bytes, reader: asyncio.StreamReader, *, is_request: bool = False
) -> AsyncIterator[bytes]:
    """The body that follows a head, piece by piece."""
    fields = _fields(head)
    if "content-length" in fields:
        yield await reader.readexactly(int(fields["content-length"]))
    elif fields.get("transfer-encoding") == "chunked":
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(size + 2)
    elif not is_request:  # an answer without a length ends with the connection
        while piece := await reader.read(2**16):
            yield piece
        raise ConnectionResetError


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    parts = [each.partition(":") for each in lines if each]
    return {name.lower(): value.strip().lower() for name, _, value in parts}
