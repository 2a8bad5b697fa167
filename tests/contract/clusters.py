# SPDX-License-Identifier: Apache-2.0
"""Every client and the cluster behind it, and what their suites ask with.

`http` is the client over the wire to a `refloat up` of its own, `local` the
one in process, to the same server below HTTP on a store in memory. With
REFLOAT_TEST_KUBECONFIG the same claims are asked of the cluster that it
names, as `kubernetes`. Another implementation joins by a function in
`OPENED`; where a cluster is not Refloat's, a field of `Cluster` says so.
"""

import dataclasses
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refloat.api import kinds
from refloat.apiserver import bootstrap, identity, watching
from refloat.apiserver.authorization import Authorizer
from refloat.apiserver.eviction import Evictions
from refloat.apiserver.inprocess import InProcess
from refloat.apiserver.registry import Registry
from refloat.apiserver.resources import Resources
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import access, errors, kubeconfig
from refloat.client.contract import Client, Kind, Selector, Watch, WatchEvent
from refloat.client.http import HttpClient
from refloat.client.local import LocalClient
from refloat.client.settings import Settings
from refloat.store.memory import MemoryStore
from tests.e2e import cluster as processes

ELSEWHERE = "REFLOAT_TEST_KUBECONFIG"

Object = dict[str, Any]

_numbers = itertools.count(1)


class Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    finalizers: list[str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Thing(msgspec.Struct):
    """An object of any kind, as little of it as the suites look at."""

    metadata: Meta
    data: dict[str, str] | None = None
    spec: Object | None = None
    status: Object | None = None


CONFIG_MAPS = Kind(kinds.of("configmaps"), Thing)
PODS = Kind(kinds.of("pods"), Thing)
NODES = Kind(kinds.of("nodes"), Thing)
NAMESPACES = Kind(kinds.of("namespaces"), Thing)
BUDGETS = Kind(kinds.of("poddisruptionbudgets", "policy"), Thing)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A client, and what the suite needs to know of what is behind it."""

    client: Client
    reader: Client
    """A client that may not write; else it knows as much."""
    strangers: tuple[Client, ...]
    """A client whose token nobody knows, where there are tokens."""
    keeps_reasons: bool
    """Does a delete's reason end up in a pod's status?"""
    forget: Callable[[], Awaitable[str]]
    """Make the server forget; a resourceVersion that is too old now."""
    namespace: str = ""

    async def config_map(self, name: str, **fields: Any) -> Thing:
        metadata = {"name": name, "labels": fields.pop("labels", {})}
        body = {"metadata": metadata, **fields}
        return await self.client.create(CONFIG_MAPS, body, namespace=self.namespace)

    async def pod(self, name: str, *, running: bool = False, **spec: Any) -> Thing:
        """A pod that nothing runs, though it may be said to be running."""
        container = {"name": "main", "image": "registry.example/busybox:1"}
        body = {
            "metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {"containers": [container], **spec},
        }
        made = await self.client.create(PODS, body, namespace=self.namespace)
        if not running:
            return made
        return await self.client.patch(
            PODS,
            name,
            {"status": {"phase": "Running"}},
            namespace=self.namespace,
            subresource="status",
        )

    async def get(self, kind: Kind[Thing], name: str) -> Thing:
        return await self.client.get(kind, name, namespace=self.namespace)

    def watch(self, resource_version: str = "", **how: Any) -> Watch[Thing]:
        return self.client.watch(
            CONFIG_MAPS, namespace=self.namespace, resource_version=resource_version, **how
        )


def _http(where: access.Access) -> HttpClient:
    settings = Settings(component="contract", qps=0)
    return HttpClient(where, clock=RealClock(), rand=Rand(), settings=settings)


def _as(where: access.Access, **user: Any) -> access.Access:
    return dataclasses.replace(where, user=dataclasses.replace(where.user, **user))


@asynccontextmanager
async def _connected(
    where: access.Access, reader: access.Access, **about: Any
) -> AsyncIterator[Cluster]:
    stranger = access.Access(where.cluster, access.User(token="nobody-knows-this"))
    clients = [_http(each) for each in (where, reader, stranger)]
    try:
        yield Cluster(clients[0], clients[1], (clients[2],), **about)
    finally:
        for client in clients:
            await client.close()


@asynccontextmanager
async def _refloat(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    server: processes.Server = request.getfixturevalue("refloat_up")
    where = kubeconfig.load([server.kubeconfig])
    reader = _as(where, token=(server.data_dir / "readonly.token").read_text().strip())
    forget = _Forgetful(_http(where))
    try:
        async with _connected(where, reader, keeps_reasons=True, forget=forget) as found:
            yield found
    finally:
        await forget.client.close()


@asynccontextmanager
async def _kubernetes(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    where = kubeconfig.load([Path(os.environ[ELSEWHERE])])
    reader = _as(where, impersonate=access.Impersonation("nobody"))
    async with _connected(where, reader, keeps_reasons=False, forget=_long_ago) as found:
        yield found


async def _long_ago() -> str:
    """Any cluster that has been up for a while has forgotten its beginning."""
    return "1"


@dataclasses.dataclass
class _Forgetful:
    """Writes so much that Refloat, which keeps 32 MiB of the past, forgets the beginning."""

    client: HttpClient

    async def __call__(self) -> str:
        name = f"large-{os.getpid()}-{next(_numbers)}"
        made = await self.client.create(
            CONFIG_MAPS, {"metadata": {"name": name}}, namespace="default"
        )
        for number in range(36):
            patch = {"data": {"x": chr(ord("a") + number % 2) * 1_000_000}}
            await self.client.patch(CONFIG_MAPS, name, patch, namespace="default")
        await self.client.delete(CONFIG_MAPS, name, namespace="default")
        while not await self._has_forgotten(made.metadata.resource_version):
            pass  # each question takes a second, and it looks every ten
        return made.metadata.resource_version

    async def _has_forgotten(self, version: str) -> bool:
        watch = self.client.watch(
            CONFIG_MAPS,
            resource_version=version,
            selector=Selector(fields="metadata.name=none"),
            timeout_seconds=1,
        )
        try:
            async for _ in watch:
                pass
        except errors.Expired:
            return True
        return False


@asynccontextmanager
async def _local(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """The embedded server in this process, on a store in memory."""
    clock, rand, gates, store = RealClock(), Rand(), Gates(), MemoryStore()
    registry = Registry(store, rand=rand, gates=gates)
    await bootstrap.ensure(registry, clock)
    dispatcher = watching.Dispatcher(store, clock)
    dispatcher.start()
    evictions = Evictions(registry, clock, gates)
    resources = Resources(registry, dispatcher, evictions, clock=clock, rand=rand)
    authorizer = Authorizer(store)

    def client(user: identity.Identity) -> LocalClient:
        return LocalClient(InProcess(resources, authorizer, user), field_manager="contract")

    async def forget() -> str:
        first = str(store.revision)
        made = await client(identity.ADMIN).create(
            CONFIG_MAPS, {"metadata": {"name": f"past-{next(_numbers)}"}}, namespace="default"
        )
        assert made.metadata.resource_version != first
        await store.compact(store.revision)
        return first

    try:
        yield Cluster(
            client(identity.ADMIN),
            client(identity.READ_ONLY),
            (),
            keeps_reasons=True,
            forget=forget,
        )
    finally:
        await dispatcher.close()
        await store.close()


OPENED = {"http": _refloat, "local": _local, "kubernetes": _kubernetes}


@pytest.fixture(scope="session")
def refloat_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Server]:
    """A server that all tests of this worker share."""
    folder = tmp_path_factory.mktemp("refloat") / "data"
    with processes.serving(folder, "--controllers", "none") as server:
        yield server
        assert server.end() == 0


@pytest.fixture(params=[name for name in OPENED if name != "kubernetes" or ELSEWHERE in os.environ])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A cluster, with a namespace of its own for each test."""
    async with OPENED[request.param](request) as opened:
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        await opened.client.create(NAMESPACES, {"metadata": {"name": name}})
        yield dataclasses.replace(opened, namespace=name)
        await opened.client.delete(NAMESPACES, name)


async def read(watch: Watch[Thing], count: int) -> list[WatchEvent[Thing]]:
    """So many events, without the bookmarks between them."""
    found: list[WatchEvent[Thing]] = []
    while len(found) < count:
        event = await anext(watch)
        if event.type != "BOOKMARK":
            found.append(event)
    return found


def told(events: list[WatchEvent[Thing]]) -> list[tuple[str, str]]:
    """Types and names."""
    return [(each.type, each.object.metadata.name if each.object else "") for each in events]
