# SPDX-License-Identifier: Apache-2.0
"""`/healthz`, `/readyz` and `/metrics` of a process, over plain HTTP.

The only module of this package that opens a socket, so everything else runs
in virtual time. Nothing secret is told, and yet the default is to listen on
this machine only. Which checks there are is the manager's business.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry

from refloat.base import metrics
from refloat.base.errors import UsageError

LOOPBACK = "127.0.0.1"

# A scrape that is under way when the process ends gets so long.
CLOSE_SECONDS = 1.0

Check = Callable[[], str | None]
"""Why something is not well; None when it is."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 is any that is free."""

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


class Endpoints:
    """The endpoints of one process, on one or two addresses."""

    def __init__(
        self,
        *,
        health: Address | None = None,
        metrics_at: Address | None = None,
        registry: CollectorRegistry,
        pages: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        """`pages` are answered as JSON, beside the metrics."""
        self._health = health
        self._metrics_at = metrics_at
        self._registry = registry
        self._checks: dict[str, Check] = {}
        self._pages = dict(pages or {})
        self._runners: list[web.AppRunner] = []
        self.addresses: dict[str, tuple[str, int]] = {}  # "health", "metrics" -> where

    def ready_when(self, name: str, check: Check) -> None:
        self._checks[name] = check

    async def start(self) -> None:
        """Listen; raises `UsageError` when an address cannot be had."""
        probes = [
            web.get("/healthz", self._healthz),
            web.get("/livez", self._healthz),
            web.get("/readyz", self._readyz),
        ]
        scrapes = [
            web.get("/metrics", self._metrics),
            *(web.get(path, self._page) for path in self._pages),
        ]
        if self._health is not None and self._health == self._metrics_at:
            at = await self._listen(self._health, [*probes, *scrapes])
            self.addresses.update(health=at, metrics=at)
            return
        if self._health is not None:
            self.addresses["health"] = await self._listen(self._health, probes)
        if self._metrics_at is not None:
            self.addresses["metrics"] = await self._listen(self._metrics_at, scrapes)

    async def close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    async def _listen(
        self, address: Address, routes: Sequence[web.AbstractRouteDef]
    ) -> tuple[str, int]:
        app = web.Application()
        app.add_routes(routes)
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=CLOSE_SECONDS
        )
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, address.host, address.port).start()
        except OSError as error:
            await self.close()
            raise UsageError(
                f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
            ) from error
        host, port = runner.addresses[0][:2]
        return host, port

    async def _healthz(self, request: web.Request) -> web.Response:
        return _verdict("healthz", {}, verbose="verbose" in request.query)

    async def _readyz(self, request: web.Request) -> web.Response:
        return _verdict("readyz", self._checks, verbose="verbose" in request.query)

    async def _page(self, request: web.Request) -> web.Response:
        return web.json_response(self._pages[request.path]())

    async def _metrics(self, request: web.Request) -> web.Response:
        body, media = metrics.exposition(self._registry, request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": media})


def _verdict(name: str, checks: Mapping[str, Check], *, verbose: bool) -> web.Response:
    """`ok`, or check by check what is not; in Kubernetes' words."""
    found = {"ping": None, **{each: check() for each, check in checks.items()}}
    well = not any(found.values())
    if well and not verbose:
        return web.Response(text="ok")
    lines = [f"[-]{each} failed: {why}" if why else f"[+]{each} ok" for each, why in found.items()]
    lines.append(f"{name} check {'passed' if well else 'failed'}")
    return web.Response(text="\n".join(lines) + "\n", status=200 if well else 500)
