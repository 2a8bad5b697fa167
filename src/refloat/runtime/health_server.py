# SPDX-License-Identifier: Apache-2.0
"""`/healthz`, `/readyz` and `/metrics` of a process, over plain HTTP.

The only module of this package that opens a socket, so everything else runs
in virtual time. The pages have no secrets, and yet the default is to listen on
this machine only. The manager registers the checks.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from refloat.base import metrics
from refloat.base.clock import Clock
from refloat.base.errors import UsageError
from refloat.runtime import mini_http
from refloat.runtime.mini_http import Page, PageServer, Request

LOOPBACK = "127.0.0.1"

Check = Callable[[], str | None]
"""Returns why a part is not healthy; None if it is."""

Note = Callable[[], str]
"""Returns the state of a healthy part, for people."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on; port 0 takes a free one."""

    host: str = LOOPBACK
    port: int = 0


def parse_address(text: str, flag: str) -> Address | None:
    """`host:port`, `[v6]:port` or `:port`, which is all interfaces; `0` is nowhere."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise UsageError(f"{flag} {text!r}: expected host:port, :port, or 0 for none")
    return Address(host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port))  # noqa: S104


Route = Callable[[Request], Page]


class Endpoints:
    """The endpoints of one process, on one or two addresses."""

    def __init__(
        self,
        *,
        health: Address | None = None,
        metrics_at: Address | None = None,
        registry: CollectorRegistry,
        clock: Clock,
        documents: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        """`documents` are answered as JSON, beside the metrics."""
        self._health = health
        self._metrics_at = metrics_at
        self._registry = registry
        self._clock = clock
        self._checks: dict[str, tuple[Check, Note | None]] = {}
        self._documents = dict(documents or {})
        self._servers: list[PageServer] = []
        self.addresses: dict[str, tuple[str, int]] = {}  # "health", "metrics" -> where

    def ready_when(self, name: str, check: Check, note: Note | None = None) -> None:
        """The long answer has the `note` beside the check, while the check passes."""
        self._checks[name] = (check, note)

    async def start(self) -> None:
        """Listen; raises `UsageError` if that fails."""
        probes: dict[str, Route] = {
            "/healthz": partial(_verdict, "healthz", {}),
            "/livez": partial(_verdict, "healthz", {}),
            "/readyz": partial(_verdict, "readyz", self._checks),
        }
        scrapes: dict[str, Route] = {
            "/metrics": self._metrics,
            **{path: partial(_document, build) for path, build in self._documents.items()},
        }
        if self._health is not None and self._health == self._metrics_at:
            at = await self._listen(self._health, probes | scrapes)
            self.addresses.update(health=at, metrics=at)
            return
        if self._health is not None:
            self.addresses["health"] = await self._listen(self._health, probes)
        if self._metrics_at is not None:
            self.addresses["metrics"] = await self._listen(self._metrics_at, scrapes)

    async def close(self) -> None:
        for server in self._servers:
            await server.close()
        self._servers.clear()

    async def _listen(self, address: Address, routes: Mapping[str, Route]) -> tuple[str, int]:
        async def answer(request: Request) -> Page:
            route = routes.get(request.path)
            return mini_http.NOT_FOUND if route is None else route(request)

        server = PageServer(answer, clock=self._clock)
        self._servers.append(server)
        try:
            return await server.start(address.host, address.port)
        except OSError as error:
            await self.close()
            raise UsageError(
                f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
            ) from error

    def _metrics(self, request: Request) -> Page:
        body, media = metrics.exposition(self._registry, request.headers.get("accept", ""))
        return Page(body, media=media)


def _document(build: Callable[[], object], _: Request) -> Page:
    return Page(json.dumps(build()).encode(), media="application/json; charset=utf-8")


def _verdict(name: str, checks: Mapping[str, tuple[Check, Note | None]], request: Request) -> Page:
    """`ok`, or a line for each check, in Kubernetes' words."""
    failures = {"ping": None, **{each: check() for each, (check, _) in checks.items()}}
    is_healthy = not any(failures.values())
    if is_healthy and "verbose" not in request.query:
        return Page(b"ok")
    lines = []
    for each, why in failures.items():
        note = checks[each][1] if each in checks else None
        passed = f"[+]{each} ok: {note()}" if note is not None else f"[+]{each} ok"
        lines.append(f"[-]{each} failed: {why}" if why else passed)
    lines.append(f"{name} check {'passed' if is_healthy else 'failed'}")
    return Page(("\n".join(lines) + "\n").encode(), 200 if is_healthy else 500)
