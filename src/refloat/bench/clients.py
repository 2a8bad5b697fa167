# SPDX-License-Identifier: Apache-2.0
"""Clients without a rate limit, temporary clusters, and waits for many objects."""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from refloat.api import structs
from refloat.base.clock import RealClock
from refloat.base.rand import Rand
from refloat.bench import processes
from refloat.client import kinds, kubeconfig
from refloat.client.connections import Stream
from refloat.client.contract import EVERYTHING, Client, Kind, Selector
from refloat.client.credentials import Identity
from refloat.client.http import HttpClient
from refloat.client.request_sender import RequestSender
from refloat.client.requests import JSON, Request
from refloat.client.settings import ClientSettings

T = TypeVar("T")
V = TypeVar("V")

# As many as a client has connections.
WRITERS = 32


@dataclass(frozen=True, slots=True)
class UpCluster:
    """A running `refloat up` in a temporary directory."""

    data_dir: Path
    server: processes.ServerProcess
    client: HttpClient

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"


@asynccontextmanager
async def up(*flags: str) -> AsyncIterator[UpCluster]:
    """`refloat up` with these flags until the block ends; without flags, the API server alone."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder:
        data_dir = Path(folder) / "data"
        async with (
            processes.server(data_dir, *flags) as server,
            connected(data_dir / "kubeconfig") as client,
        ):
            yield UpCluster(data_dir, server, client)


@asynccontextmanager
async def connected(config: Path) -> AsyncIterator[HttpClient]:
    """A client of the cluster in this kubeconfig, until the block ends."""
    access = kubeconfig.load([config])
    settings = ClientSettings(qps=0, connections=WRITERS)
    client = HttpClient(access, clock=RealClock(), rand=Rand(), settings=settings)
    try:
        yield client
    finally:
        await client.close()


class RawClient:
    """Sends requests to a server and does not decode the responses."""

    def __init__(self, server: processes.ServerProcess) -> None:
        tls = ssl.create_default_context(cafile=str(server.authority))
        self._identity = Identity((("Authorization", f"Bearer {server.token}"),))
        self._sender = RequestSender(
            server.url,
            tls=lambda _: tls,
            clock=RealClock(),
            user_agent="refloat-bench",
            connections=WRITERS,
        )

    async def call(
        self, method: str, path: str, body: bytes | None = None, media: str = JSON
    ) -> None:
        response = await self._sender.exchange(Request(method, path, body, media), self._identity)
        if response.status >= 400:
            text = bytes(response.body[:200])
            raise RuntimeError(f"{method} {path}: {response.status} {text!r}")

    async def stream(self, path: str) -> Stream:
        """A response that is read as it arrives, on a separate connection."""
        return await self._sender.stream(Request("GET", path), self._identity)

    async def close(self) -> None:
        await self._sender.close()


async def text(url: str) -> str:
    """The body of an HTTP URL without TLS."""
    parts = urlsplit(url)
    sender = RequestSender(
        f"http://{parts.netloc}",
        tls=lambda _: None,
        clock=RealClock(),
        user_agent="refloat-bench",
    )
    try:
        response = await sender.exchange(Request("GET", parts.path, accept="*/*"), Identity())
        return response.body.decode()
    finally:
        await sender.close()


async def objects(
    client: Client, kind: Kind[T], *, namespace: str = "", selector: Selector = EVERYTHING
) -> AsyncIterator[T]:
    """The objects of a list, without its pages."""
    async for page in client.list(kind, namespace=namespace, selector=selector):
        for each in page.items:
            yield each


async def for_each(
    items: Iterable[T], act: Callable[[T], Awaitable[Any]], *, at_once: int = WRITERS
) -> None:
    """Call `act` with each item, several at the same time."""
    todo = iter(items)

    async def work() -> None:
        for item in todo:
            await act(item)

    await asyncio.gather(*(work() for _ in range(at_once)))


async def watch_until(
    client: Client,
    kind: Kind[T],
    count: int,
    value: Callable[[Any], V | None],
    *,
    namespace: str = "",
    selector: Selector = EVERYTHING,
) -> dict[str, V]:
    """Watch until `count` objects have a value; the first value of each object, by name."""
    values: dict[str, V] = {}
    watch = client.watch(kind, namespace=namespace, selector=selector, initial_events=True)
    async for event in watch:
        item: Any = event.object
        if item is not None and event.type != "DELETED" and item.metadata.name not in values:
            first = value(item)
            if first is not None:
                values[item.metadata.name] = first
        if len(values) == count:
            break
    await watch.aclose()
    return values


async def nodes_ready(client: Client, count: int) -> None:
    """Wait until so many nodes are Ready."""
    await watch_until(
        client,
        kinds.NODES,
        count,
        lambda node: structs.is_true(node.status.conditions, "Ready") or None,
    )
