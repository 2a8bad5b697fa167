# SPDX-License-Identifier: Apache-2.0
"""One request and its answer, with what all handlers need of both."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import client_exceptions, hdrs, http_exceptions, web

from refloat.api import codec, errors
from refloat.apiserver import connection, limits, metrics, negotiation, uri
from refloat.apiserver.fairness import FairShare
from refloat.apiserver.identity import (
    WARNED_CHARACTERS,
    WARNING_CHARACTERS,
    arguments,
    hold_nothing,
)
from refloat.apiserver.limits import Limits
from refloat.base.clock import Clock, RealClock
from refloat.base.workers import Worker
from refloat.store.yielding import give_way

_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# A client may choose its request's id, to find it again in the log.
_ID = re.compile("[!-~]{1,256}")

_CONTROLS = re.compile("[\x00-\x1f\x7f]")

# A parameter of a media type: a name, and a word or quoted string as value.
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*({_WORD})=({_WORD}|"(?:[^"\\]|\\.)*")\s*(?:;|$)')

# Of a media type's parameters, and of the media types that a client accepts:
# kubectl sends about 200.
MAX_MEDIA_CHARACTERS = 4096

# How bodies of a media type are read.
_MEDIA: dict[str, codec.Media] = {
    "": "json",
    "*/*": "json",
    negotiation.JSON: "json",
    negotiation.YAML: "yaml",
    negotiation.PROTOBUF: "protobuf",
}

# The errors of a body that breaks off or is framed wrongly.
_BROKEN = (
    web.RequestPayloadError,
    http_exceptions.HttpProcessingError,
    client_exceptions.ClientPayloadError,
)

# The most that one write sends.
WRITE_BYTES = 64 * 1024

# How long a large request waits for the thread: others may take a second each.
WORKER_SECONDS = 60.0

_T = TypeVar("_T")


class SharedWorker:
    """A thread that users share: one computation at a time, and users take turns."""

    def __init__(self, waiting: int) -> None:
        """`waiting` is how many computations of one user may wait."""
        self._worker = Worker()
        self.turns = FairShare(1, per_user=1, waiting=waiting)

    async def run(self, user: str, clock: Clock, function: Callable[..., _T], *args: Any) -> _T:
        """Run the function in the thread; raises 429 if its turn does not come in time."""
        await limits.wait_for(self.turns, user, 1, clock, WORKER_SECONDS)
        try:
            return await self._worker.run(function, *arguments(args))
        finally:
            self.turns.give(user)

    def trim_soon(self) -> None:
        """Return free memory to the system after a second."""
        self._worker.trim_soon()

    def close(self) -> None:
        self._worker.close()


class Shares:
    """The resources that all requests of a server share."""

    def __init__(self, bounds: Limits) -> None:
        self.worker = SharedWorker(bounds.waiting)
        self.urgent_worker = SharedWorker(bounds.waiting)
        self.bodies = _halved(bounds.held_body_bytes, bounds.waiting)
        self.answers = _halved(bounds.held_answer_bytes, bounds.waiting)

    def close(self) -> None:
        self.worker.close()
        self.urgent_worker.close()


def _halved(total: int, waiting: int) -> FairShare:
    return FairShare(total, per_user=total // 2, waiting=waiting)


_DEFAULTS = Limits()
_REAL = RealClock()


class Exchange:
    """A request in progress."""

    def __init__(
        self,
        request: web.BaseRequest,
        *,
        request_id: str,
        clock: Clock = _REAL,
        bounds: Limits = _DEFAULTS,
        shares: "Shares | None" = None,
    ) -> None:
        self.request = request
        self.user_agent = request.headers.get(hdrs.USER_AGENT, "")
        self.content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
        client_id = request.headers.get("Audit-ID")
        self.id = client_id if client_id is not None and _ID.fullmatch(client_id) else request_id
        self.path = ""
        self.query = uri.NO_QUERY
        self.form = negotiation.PLAIN
        self.warnings: list[str] = []  # sent with the answer, also with an error
        self.user = ""
        self.labels: metrics.Labels | None = None  # of a request for a resource
        self.mutating = False
        self.urgent = False  # a node's sign of life
        self.streaming = False  # the answer has begun
        self._clock = clock
        self._limits = bounds
        self._body: bytes | None = None
        self._shares = shares
        self._held: list[tuple[FairShare, str, int]] = []
        self.size = 0  # bytes of the body

    def close(self) -> None:
        """Give back the shares that this request holds."""
        for share, user, amount in self._held:
            share.give(user, amount)
        self._held.clear()

    async def _take(self, share: FairShare, most: int, size: int) -> None:
        amount = min(size, most // 2)
        await limits.wait_for(share, self.user, amount, self._clock, self._limits.waiting_seconds)
        self._held.append((share, self.user, amount))

    async def reserve(self, size: int) -> None:
        """Wait for the memory for an answer of this size; raises 429 if that takes too long."""
        if size > limits.SMALL_BYTES and self._shares is not None:
            await self._take(self._shares.answers, self._limits.held_answer_bytes, size)

    async def hold(self, size: int) -> Callable[[], None]:
        """The same for a part of an answer; the caller calls the result to give the memory back."""
        if size <= limits.SMALL_BYTES or self._shares is None:
            return await hold_nothing(size)
        share, user = self._shares.answers, self.user
        amount = min(size, self._limits.held_answer_bytes // 2)
        await limits.wait_for(share, user, amount, self._clock, self._limits.waiting_seconds)
        return partial(share.give, user, amount)

    async def offload(self, size: int, function: Callable[..., _T], /, *args: Any) -> _T:
        """Run a computation on so many bytes; if they are many, in a thread.

        The thread runs one computation at a time, and users take turns. Urgent requests
        wait only for other urgent ones.
        """
        if size < limits.LARGE_BYTES or self._shares is None:
            return function(*arguments(args))
        urgent = self.urgent and size <= limits.URGENT_BYTES
        worker = self._shares.urgent_worker if urgent else self._shares.worker
        return await worker.run(self.user, self._clock, function, *args)

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        """Write to an answer, a large piece in parts."""
        if len(data) <= WRITE_BYTES:
            await response.write(data)
            return
        view = memoryview(data)
        for start in range(0, len(data), WRITE_BYTES):
            await response.write(bytes(view[start : start + WRITE_BYTES]))
            await give_way()  # encryption takes time, and the kernel takes megabytes

    async def send(self, answer: web.Response) -> web.StreamResponse:
        """Send a large answer in pieces, and wait for the client to read them."""
        body = answer.body
        if not isinstance(body, bytes) or len(body) <= WRITE_BYTES or self.streaming:
            return answer
        if self.request.method == hdrs.METH_HEAD:
            return answer
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        if answer.keep_alive is False:
            response.force_close()
        response.content_length = len(body)
        self.streaming = True
        await response.prepare(self.request)
        await self.write(response, body)
        await response.write_eof()
        return response

    def parse_target(self) -> None:
        """Parse the address; raises 400 and 417."""
        request = self.request
        if connection.UNSUPPORTED in request:
            raise errors.bad_request("malformed HTTP request: unsupported protocol version")
        expect = request.headers.get(hdrs.EXPECT)
        if expect is not None and expect.lower() != "100-continue":
            raise errors.StatusError(417, "ExpectationFailed", f"cannot fulfil Expect: {expect}")
        self.path, self.query = uri.parse(request.raw_path)

    def negotiate(self, *, streams: bool) -> None:
        """Choose a form that the client accepts; raises 406."""
        accept = ",".join(self.request.headers.getall(hdrs.ACCEPT, ()))
        if len(accept) > MAX_MEDIA_CHARACTERS:
            raise errors.not_acceptable(negotiation.SERVED)
        include = self.query.get("includeObject", "")
        self.form = negotiation.accepted(accept, include, streams=streams)

    async def receive(self) -> None:
        """Wait for the body; raises 408 and 400.

        A body that is too large stays unread, and `body` then raises 413.
        """
        if self._body is not None:
            return
        length = self.request.content_length
        if length is not None and length > self._limits.body_bytes:
            return
        if length is None:  # such a body may be as large as any
            length = self._limits.body_bytes if self.request.can_read_body else 0
        if self._shares is not None and length > limits.SMALL_BYTES:
            await self._take(self._shares.bodies, self._limits.held_body_bytes, length)
        content = self.request.content
        if content.is_eof():
            self._body = content.read_nowait()
            self.size = len(self._body)
            return
        try:
            async with self._clock.timeout(self._limits.body_seconds):
                if hdrs.EXPECT in self.request.headers:
                    await self.request.writer.write(_CONTINUE)
                    self.request.writer.output_size = 0  # no part of the answer
                self._body = await self._read()
                self.size = len(self._body or b"")
        except TimeoutError as error:
            message = "the body of the request did not arrive in time"
            raise errors.StatusError(408, "Timeout", message) from error
        except _BROKEN as error:
            raise errors.bad_request(f"the body of the request broke off: {error}") from error

    async def _read(self) -> bytes | None:
        parts: list[bytes] = []
        size = 0
        async for part in self.request.content.iter_any():
            size += len(part)
            if size > self._limits.body_bytes:
                return None
            parts.append(part)
        return b"".join(parts)

    async def body(self) -> bytes:
        """The whole body; raises 413 if the body is too large."""
        await self.receive()
        if self._body is None or len(self._body) > self._limits.body_bytes:
            raise errors.too_large(self._limits.body_bytes)
        # The readers of other formats count values themselves.
        is_suspect = self.size >= limits.MAX_VALUES and "json" in self.content_type
        if (
            is_suspect
            and _value_count(self._body) > limits.MAX_VALUES
            and await self.offload(self.size, _is_crowded, self._body)
        ):
            raise errors.StatusError(
                413,
                "RequestEntityTooLarge",
                f"Request entity too large: at most {limits.MAX_VALUES} values are read",
            )
        return self._body

    @property
    def media(self) -> codec.Media:
        """The media type of the body; raises 415."""
        media, parted, parameters = self.content_type.partition(";")
        media = media.strip().lower()
        is_valid = not parted or bool(media and len(parameters) <= MAX_MEDIA_CHARACTERS)
        names: set[str] = set()
        place = 0
        # As in Go: parameters that are none, or have one name twice, are an error.
        while is_valid and parameters[place:].strip():
            match = _PARAMETER.match(parameters, place)
            if match is None or match[1].lower() in names:
                is_valid = False
            else:
                names.add(match[1].lower())
                place = match.end()
        if not is_valid or media not in _MEDIA:
            raise errors.unsupported_media_type(negotiation.SERVED)
        return _MEDIA[media]

    def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        media: str = negotiation.JSON,
        headers: Mapping[str, str] | None = None,
        warnings: Iterable[str] = (),
        as_is: bool = False,
    ) -> web.Response:
        """The whole answer; `as_is` keeps the layout of the JSON."""
        if media == negotiation.JSON and self.form.media == negotiation.YAML:
            body, media = negotiation.as_yaml(msgspec.json.decode(body)), negotiation.YAML
        if media == negotiation.JSON and body and not as_is:
            body = msgspec.json.format(body, indent=2) if self.wants_pretty() else body + b"\n"
        response = web.Response(body=body, status=status)
        self.set_headers(response, media, warnings)
        if headers:
            response.headers.update(headers)
        return response

    async def stream(self, media: str) -> web.StreamResponse:
        """Begin an answer that the handler writes in pieces."""
        response = web.StreamResponse()
        self.set_headers(response, media, self.warnings)
        if self.request.version >= (1, 1):
            response.enable_chunked_encoding()
        self.streaming = True
        await response.prepare(self.request)
        return response

    def set_headers(
        self, response: web.StreamResponse, media: str, warnings: Iterable[str] = ()
    ) -> None:
        """Set the headers that every answer has."""
        headers = response.headers
        headers[hdrs.CONTENT_TYPE] = media
        headers["Audit-Id"] = self.id
        headers[hdrs.CACHE_CONTROL] = "no-cache, private"
        for text in _bounded(warnings):
            headers.add(hdrs.WARNING, f"299 - {_quoted(text)}")
        if hdrs.UPGRADE in self.request.headers:
            response.force_close()  # the next bytes belong to another protocol

    def wants_pretty(self) -> bool:
        pretty = self.query.get("pretty")
        if pretty is not None:
            return pretty in ("1", "t", "T", "true", "True", "TRUE")
        return self.user_agent.startswith(_READ_BY_PEOPLE)


def _bounded(warnings: Iterable[str]) -> Iterator[str]:
    """As many warnings as Kubernetes sends; shortened if they are too long together."""
    texts = list(warnings)
    if sum(map(len, texts)) <= WARNED_CHARACTERS:
        yield from texts
        return
    total = 0
    for text in texts:
        if total >= WARNED_CHARACTERS:
            return
        total += len(text[:WARNING_CHARACTERS])
        yield text[:WARNING_CHARACTERS]


def _quoted(text: str) -> str:
    """A warning as a quoted string of a header: one line, quotes escaped."""
    flat = _CONTROLS.sub(" ", text).encode(errors="replace").decode()
    escaped = flat.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _value_count(body: bytes) -> int:
    """An upper bound of the values: each follows a comma or begins a list or map."""
    return body.count(b",") + body.count(b"[") + body.count(b"{") + 1


def _is_crowded(body: bytes) -> bool:
    """Whether there are too many values; commas and brackets in strings do not count.

    After removing escapes, each quote begins or ends a string. The functions are those
    that are quick with megabytes, because none of them lets another thread run.
    """
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    count = within = 0
    for start in range(0, len(bare), limits.SMALL_BYTES):
        parts = bare[start : start + limits.SMALL_BYTES].split(b'"')
        count += _value_count(b"".join(parts[within::2])) - 1
        within ^= (len(parts) - 1) & 1
    return count >= limits.MAX_VALUES
