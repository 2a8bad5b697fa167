# SPDX-License-Identifier: Apache-2.0
"""The addresses outside resources: health, version, discovery, OpenAPI, metrics."""

import hashlib
import platform
from collections.abc import Callable
from functools import partial

import msgspec
from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry

from refloat.api import errors
from refloat.api.meta import Object
from refloat.apiserver import discovery, negotiation, openapi
from refloat.apiserver.http_request import Exchange
from refloat.base import metrics
from refloat.base.gates import RETRIABLE_AND_NON_RETRIABLE_FAILURES, Gates

_TEXT = "text/plain; charset=utf-8"
_AGGREGATED = "g=apidiscovery.k8s.io"

_HEALTH = frozenset(
    f"/{name}{check}" for name in ("healthz", "livez", "readyz") for check in ("", "/ping")
) | {"/readyz/disk"}

# NonResourceHandlers that ignore `?pretty`.
_OWN_LAYOUT = ("/version", "/openapi/v3")

# kubectl checks the members of a `kind: List` against OpenAPI v2, which kubectl reads
# in protobuf only, and skips kinds that are not in the document. The server checks
# the members anyway, so a document without kinds is enough: swagger "2.0" (field 1),
# info (field 2) with title and version.
_OPENAPI_V2_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OPENAPI_V2 = b"\x0a\x032.0\x12\x12\x0a\x0aKubernetes\x12\x041.36"


class NonResourceHandlers:
    """Answers the requests to addresses outside resources."""

    def __init__(
        self, registry: CollectorRegistry, gates: Gates, shortage: Callable[[], str] = str
    ) -> None:
        """`shortage` returns why the disk is too full, or an empty text."""
        self.address = ""  # host and port, once the server listens
        self._shortage = shortage
        gated = gates.enabled(RETRIABLE_AND_NON_RETRIABLE_FAILURES)
        self._openapi_document = partial(openapi.document, gated=gated)
        self._openapi_digest = partial(openapi.digest, gated=gated)
        self._registry = registry
        machine = platform.machine()
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
        self._plain: dict[str, Callable[[], Object]] = {
            "/version": partial(discovery.version, f"{platform.system().lower()}/{machine}"),
            "/api": lambda: discovery.api_versions(self.address),
            "/apis": discovery.api_group_list,
            "/openapi/v3": partial(openapi.index, gated=gated),
        }
        for group in discovery.groups():
            self._plain[f"/apis/{group}"] = partial(discovery.api_group, group)
        lists = {
            f"/apis/{group}/{version}" if group else f"/api/{version}": (group, version)
            for group, version in discovery.group_versions()
        }
        for path, group_version in lists.items():
            self._plain[path] = partial(discovery.api_resource_list, *group_version)
        # In Kubernetes only these check the method; unknown paths are 404 for every method.
        self._only_read = {"/api", "/metrics", "/version", *lists}
        self._encoded: dict[str, bytes] = {}
        self.notes: dict[str, Callable[[], str]] = {}
        """Lines that the verbose `/readyz` adds, by the name of the check."""

    async def serve(self, exchange: Exchange) -> web.StreamResponse:
        path = _page(exchange.path)
        if path in _HEALTH:
            return self._health(exchange, path)
        if exchange.request.method != hdrs.METH_GET and path in self._only_read:
            raise errors.method_not_supported()
        if path in ("/api", "/apis") and _wants_aggregated(exchange):
            return self._aggregated(exchange, path)
        if path.startswith("/openapi/v3/"):
            return self._openapi(exchange, path)
        if path == "/openapi/v2" and _OPENAPI_V2_ASKED in _accept(exchange):
            return exchange.answer(_OPENAPI_V2, media=_OPENAPI_V2_TYPE)
        if path == "/metrics":
            accept = exchange.request.headers.get(hdrs.ACCEPT, "")
            body, media = metrics.exposition(self._registry, accept)
            return exchange.answer(body, media=media)
        if path == "/":
            paths = sorted({*self._plain, "/healthz", "/livez", "/readyz", "/metrics"})
            body = msgspec.json.format(msgspec.json.encode({"paths": paths}))
            return exchange.answer(body, as_is=True)
        if path in self._plain:
            body = self._document(path, self._plain[path])
            return exchange.answer(body, as_is=path in _OWN_LAYOUT)
        if path.startswith(("/api/", "/version/")) or "/".join(path.split("/")[:3]) in self._plain:
            raise errors.page_not_found()
        return exchange.answer(b"404 page not found\n", status=404, media=_TEXT)

    def _health(self, exchange: Exchange, path: str) -> web.Response:
        """A health check; only readyz fails on a full disk, because a restart frees nothing."""
        name, _, check = path.removeprefix("/").partition("/")
        shortage = self._shortage() if name == "readyz" and check != "ping" else ""
        if shortage and check:
            text = f"internal server error: {shortage}\n"
            return exchange.answer(text.encode(), status=500, media=_TEXT)
        if shortage:
            text = f"[+]ping ok\n[-]disk failed: {shortage}\n{name} check failed\n"
            return exchange.answer(text.encode(), status=500, media=_TEXT)
        if "verbose" in exchange.query and not check:
            lines = ["[+]ping ok\n"]
            if name == "readyz":
                lines.append("[+]disk ok\n")
                lines += [f"[+]{each} ok: {note()}\n" for each, note in self.notes.items()]
            text = f"{''.join(lines)}{name} check passed\n"
            return exchange.answer(text.encode(), media=_TEXT)
        return exchange.answer(b"ok", media=_TEXT)

    def _document(self, name: str, make: Callable[[], Object]) -> bytes:
        """A document, which the server makes once."""
        if name not in self._encoded:
            encoded = msgspec.json.encode(make())
            indented = name == "/version"
            self._encoded[name] = msgspec.json.format(encoded) if indented else encoded
        return self._encoded[name]

    def _aggregated(self, exchange: Exchange, path: str) -> web.Response:
        make = discovery.aggregated_core if path == "/api" else discovery.aggregated_groups
        body = self._document(f"{path} aggregated", make)
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        headers = {"Vary": "Accept", "ETag": etag, "Cache-Control": "public"}
        is_cached = exchange.request.headers.get(hdrs.IF_NONE_MATCH) == etag
        return exchange.answer(
            b"" if is_cached else body,
            status=304 if is_cached else 200,
            media=discovery.AGGREGATED_TYPE,  # a 304's headers replace those of the cached answer
            headers=headers,
        )

    def _openapi(self, exchange: Exchange, path: str) -> web.Response:
        """An OpenAPI document; with a hash in the query it never changes."""
        name = path.removeprefix("/openapi/v3/")
        document = self._openapi_document(name)
        if document is None:
            return exchange.answer(b"", status=404, media=_TEXT)
        digest = self._openapi_digest(name)
        headers = {"ETag": f'"{digest}"', "Vary": "Accept"}
        client_digest = exchange.query.get("hash")
        if client_digest is not None and client_digest != digest:
            return exchange.answer(b"", status=301, headers={"Location": f"{path}?hash={digest}"})
        if client_digest is not None:
            headers["Cache-Control"] = "public, immutable"
        is_cached = exchange.request.headers.get(hdrs.IF_NONE_MATCH) == headers["ETag"]
        return exchange.answer(
            b"" if is_cached else document,
            status=304 if is_cached else 200,
            headers=headers,
            as_is=True,
        )


def _page(path: str) -> str:
    """The path; only discovery accepts a slash at the end."""
    return path.rstrip("/") if path.startswith(("/api/", "/apis/", "/version/")) else path


def _accept(exchange: Exchange) -> list[str]:
    return exchange.request.headers.get(hdrs.ACCEPT, "").split(",")


def _wants_aggregated(exchange: Exchange) -> bool:
    """Whether the client prefers the aggregated form to plain JSON."""
    for part in _accept(exchange):
        if _AGGREGATED in part and "v=v2;" in part.replace(" ", "") + ";":
            return negotiation.JSON in part
        if part.strip() in (negotiation.JSON, "*/*"):
            return False
    return False
