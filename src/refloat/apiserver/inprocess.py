# SPDX-License-Identifier: Apache-2.0
"""The API server for callers in its own process.

The same rights, rules and field managers as over the wire, without TLS, HTTP
and sockets: a request goes in as method, target and bytes, and its answer
comes out as bytes. It implements `client.contract.Registry`, which `app`
hands to the in-process client; nothing that it returns is the server's own
to change.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any, TypeVar

from aiohttp import web
from multidict import MultiMapping

from refloat.api import errors
from refloat.apiserver import forms, targets, uri
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.exchange import Exchange
from refloat.apiserver.identity import Identity, arguments
from refloat.apiserver.resources import Resources

_T = TypeVar("_T")


class InProcess:
    """One user's way to the server."""

    def __init__(self, resources: Resources, authorizer: Authorizer, user: Identity) -> None:
        self._resources = resources
        self._authorizer = authorizer
        self._user = user

    async def call(
        self, method: str, target: str, body: bytes = b"", content_type: str = forms.JSON
    ) -> bytes:
        """One request that is not a watch; raises `errors.StatusError`."""
        exchange = _Exchange(target, body, content_type, self._user.name)
        place = self._allowed(method, exchange.path, exchange.query)
        verb = targets.verb(method, place, watch=False)
        answer = await self._resources.serve(exchange, self._user, verb, place)
        if isinstance(answer, _Pieces):
            return b"".join(answer.pieces)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        return answer.body

    def watch(self, target: str) -> AsyncGenerator[bytes, None]:
        """The events of a watch, some encoded lines at a time; close it explicitly."""
        path, query = uri.parse(target)
        place = self._allowed("GET", path, query)
        return self._resources.watch(place, query, forms.PLAIN)

    def _allowed(self, method: str, path: str, query: MultiMapping[str]) -> targets.Target:
        self._authorizer.check_request(self._user, method, path, query)
        place = targets.parse(path)
        if place is None:
            raise errors.page_not_found()
        return place


class _Exchange(Exchange):
    """A request that never was on a wire."""

    def __init__(self, target: str, body: bytes, content_type: str, user: str) -> None:
        self.path, self.query = uri.parse(target)
        self.form = forms.PLAIN
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
        """The caller is this process itself, and takes what it asks for."""

    async def aside(self, size: int, function: Callable[..., _T], /, *args: Any) -> _T:
        return function(*arguments(args))

    async def write(self, response: web.StreamResponse, data: bytes) -> None:
        await response.write(data)

    def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        media: str = forms.JSON,
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
    """An answer in pieces that stays here."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    async def write_eof(self, data: bytes = b"") -> None:
        self.pieces.append(data)
