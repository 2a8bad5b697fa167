# SPDX-License-Identifier: Apache-2.0
"""The API server for callers in its own process.

The same rights, rules and field managers as over HTTP, without TLS and sockets:
a request is a method, a target and bytes, and an answer is bytes.
`ApiServer.connect` makes the connections.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from aiohttp import web
from multidict import MultiMapping

from refloat.api import errors
from refloat.apiserver import negotiation, routes, uri
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.http_request import Exchange
from refloat.apiserver.identity import Identity, arguments
from refloat.apiserver.resources import ResourceHandlers

_T = TypeVar("_T")


class LocalConnection:
    """One user's connection; a `client.contract.LocalServer`."""

    def __init__(self, resources: ResourceHandlers, authorizer: Authorizer, user: Identity) -> None:
        self._resources = resources
        self._authorizer = authorizer
        self._user = user

    async def call(
        self, method: str, target: str, body: bytes = b"", content_type: str = negotiation.JSON
    ) -> bytes:
        """Serve one request, not a watch; raises `errors.StatusError`."""
        exchange = _Exchange(target, body, content_type, self._user.name)
        place = self._allowed(method, exchange.path, exchange.query)
        verb = routes.verb(method, place, watch=False)
        answer = await self._resources.serve(exchange, self._user, verb, place)
        if isinstance(answer, _Pieces):
            return b"".join(answer.pieces)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        return answer.body

    def watch(self, target: str) -> AsyncGenerator[bytes, None]:
        """The events of a watch, some encoded lines at a time; the caller closes the generator."""
        path, query = uri.parse(target)
        place = self._allowed("GET", path, query)
        return self._resources.watch(place, query, negotiation.PLAIN)

    def _allowed(self, method: str, path: str, query: MultiMapping[str]) -> routes.Target:
        self._authorizer.check_request(self._user, method, path, query)
        place = routes.parse(path)
        if place is None:
            raise errors.page_not_found()
        return place


class _Exchange(Exchange):
    """A request without a connection."""

    def __init__(self, target: str, body: bytes, content_type: str, user: str) -> None:
        self.path, self.query = uri.parse(target)
        self.form = negotiation.PLAIN
        self.warnings: list[str] = []
        self.user = user
        self.content_type = content_type
        self.user_agent = user.rpartition(":")[2]  # the field manager's name
        self._body = body
        self.size = len(body)

    def negotiate(self, *, streams: bool) -> None:
        """Plain JSON, always."""

    async def body(self) -> bytes:
        return self._body or b""

    async def reserve(self, size: int) -> None:
        """Reserve nothing: the caller is trusted."""

    async def offload(self, size: int, function: Callable[..., _T], /, *args: Any) -> _T:
        return function(*arguments(args))

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        await response.write(data)

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
        return web.Response(body=body, status=status)

    async def stream(self, media: str) -> web.StreamResponse:
        return _Pieces()

    def wants_pretty(self) -> bool:
        return False


class _Pieces(web.StreamResponse):
    """An answer in pieces, kept in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    async def write_eof(self, data: bytes = b"") -> None:
        self.pieces.append(data)
