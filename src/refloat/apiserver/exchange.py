# SPDX-License-Identifier: Apache-2.0
"""One request and the answer to it, with what all handlers need of both."""

from collections.abc import Iterable, Mapping

import msgspec
from aiohttp import hdrs, web

from refloat.api import codec, errors
from refloat.apiserver import forms

MAX_BODY_BYTES = 3 * 1024 * 1024

_READ_BY_PEOPLE = ("curl", "Wget", "Mozilla/5.0")


class Exchange:
    """A request on its way."""

    def __init__(self, request: web.BaseRequest, *, request_id: str) -> None:
        self.request = request
        self.id = request_id
        self.path: str = request.rel_url.path
        self.query: Mapping[str, str] = request.rel_url.query
        self.form = forms.PLAIN
        self.warnings: list[str] = []  # told with the answer, also with a refusal

    def negotiate(self, *, streams: bool) -> None:
        """Settle on a form that the client accepts; raises 406."""
        accept = ",".join(self.request.headers.getall(hdrs.ACCEPT, ()))
        include = self.query.get("includeObject", "")
        self.form = forms.accepted(accept, include, streams=streams)

    @property
    def user_agent(self) -> str:
        return self.request.headers.get(hdrs.USER_AGENT, "")

    async def body(self) -> bytes:
        """The whole body; raises 413 when it is larger than a server should read."""
        length = self.request.content_length
        if length is not None and length > MAX_BODY_BYTES:
            raise errors.too_large(MAX_BODY_BYTES)
        parts: list[bytes] = []
        size = 0
        async for part in self.request.content.iter_any():
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise errors.too_large(MAX_BODY_BYTES)
            parts.append(part)
        return b"".join(parts)

    @property
    def media(self) -> codec.Media:
        """What the body is written in; raises 415."""
        content_type = self.request.headers.get(hdrs.CONTENT_TYPE, "")
        media = content_type.partition(";")[0].strip().lower()
        if media in ("", "*/*", forms.JSON):
            return "json"
        if media == forms.YAML:
            return "yaml"
        if media == forms.PROTOBUF:
            return "protobuf"
        raise errors.unsupported_media_type(forms.SERVED)

    def answer(
        self,
        body: bytes,
        *,
        status: int = 200,
        media: str = forms.JSON,
        headers: Mapping[str, str] | None = None,
        warnings: Iterable[str] = (),
    ) -> web.Response:
        if media == forms.JSON and self._wants_pretty():
            body = msgspec.json.format(body, indent=2)
        response = web.Response(body=body, status=status)
        self.head(response, media, warnings)
        if headers:
            response.headers.update(headers)
        return response

    def head(self, response: web.StreamResponse, media: str, warnings: Iterable[str] = ()) -> None:
        """Set the headers that every answer has."""
        found = response.headers
        found[hdrs.CONTENT_TYPE] = media
        found["Audit-Id"] = self.id
        found[hdrs.CACHE_CONTROL] = "no-cache, private"
        for text in warnings:
            found.add(hdrs.WARNING, f"299 - {_quoted(text)}")

    def _wants_pretty(self) -> bool:
        asked = self.query.get("pretty")
        if asked is not None:
            return asked in ("1", "t", "true", "True")
        return self.user_agent.startswith(_READ_BY_PEOPLE)


def _quoted(text: str) -> str:
    """A warning as a quoted string of a header: one line, quotes escaped."""
    flat = " ".join(text.split("\n")).replace("\r", " ")
    escaped = flat.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
