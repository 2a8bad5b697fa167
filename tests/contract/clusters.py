# SPDX-License-Identifier: Apache-2.0
"""Every client with a cluster, and the helpers of their suites.

`http` is the client over the wire to a `refloat up` of its own, `local` the
one in process, to the same server below HTTP on a store in memory. With
REFLOAT_TEST_KUBECONFIG the same claims are asked of the cluster that it
names, as `kubernetes`. Another implementation joins by a function in
`OPENED`; where a cluster is not Refloat's, a field of `ContractCluster` says so.
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
from refloat.apiserver import ApiServer, identity
from refloat.base.clock import RealClock
from refloat.base.gates import Gates
from refloat.base.rand import Rand
from refloat.client import cluster_access, errors, kubeconfig
from refloat.client.contract import Client, Kind, Selector, Watch, WatchEvent
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
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
    """An object of any kind, with the fields that the suites read."""

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
class ContractCluster:
    """A client, and the properties of the cluster that the suites need."""

    client: Client
    reader: Client
    """A client of the same cluster that may not write."""
    strangers: tuple[Client, ...]
    """A client with an unknown token, on clusters with tokens."""
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
        """A pod without a kubelet; its status may nevertheless be Running."""
        container = {"name": "main", "image": "registry.example/busybox:1"}
        body = {
            "metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {"containers": [container], **spec},
        }
        pod = await self.client.create(PODS, body, namespace=self.namespace)
        if not running:
            return pod
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


def _http(where: cluster_access.Access) -> HttpClient:
    settings = ClientSettings(component="contract", qps=0)
    return HttpClient(where, clock=RealClock(), rand=Rand(), settings=settings)


def _as(where: cluster_access.Access, **user: Any) -> cluster_access.Access:
    return dataclasses.replace(where, user=dataclasses.replace(where.user, **user))


@asynccontextmanager
async def _connected(
    where: cluster_access.Access, reader: cluster_access.Access, **about: Any
) -> AsyncIterator[ContractCluster]:
    stranger = cluster_access.Access(where.cluster, cluster_access.User(token="nobody-knows-this"))
    clients = [_http(each) for each in (where, reader, stranger)]
    try:
        yield ContractCluster(clients[0], clients[1], (clients[2],), **about)
    finally:
        for client in clients:
            await client.close()


@asynccontextmanager
async def _refloat(request: pytest.FixtureRequest) -> AsyncIterator[ContractCluster]:
    server: processes.ServerProcess = request.getfixturevalue("refloat_up")
    where = kubeconfig.load([server.kubeconfig])
    reader = _as(where, token=(server.data_dir / "readonly.token").read_text().strip())
    forget = _Forgetful(_http(where))
    try:
        async with _connected(where, reader, keeps_reasons=True, forget=forget) as cluster:
            yield cluster
    finally:
        await forget.client.close()


@asynccontextmanager
async def _kubernetes(request: pytest.FixtureRequest) -> AsyncIterator[ContractCluster]:
    where = kubeconfig.load([Path(os.environ[ELSEWHERE])])
    reader = _as(where, impersonate=cluster_access.Impersonation("nobody"))
    async with _connected(where, reader, keeps_reasons=False, forget=_long_ago) as cluster:
        yield cluster


async def _long_ago() -> str:
    """A cluster that has run for some time has compacted its first revisions."""
    return "1"


@dataclasses.dataclass
class _Forgetful:
    """Writes so much that Refloat, which keeps 32 MiB of the past, forgets the beginning."""

    client: HttpClient

    async def __call__(self) -> str:
        name = f"large-{os.getpid()}-{next(_numbers)}"
        config_map = await self.client.create(
            CONFIG_MAPS, {"metadata": {"name": name}}, namespace="default"
        )
        for number in range(36):
            patch = {"data": {"x": chr(ord("a") + number % 2) * 1_000_000}}
            await self.client.patch(CONFIG_MAPS, name, patch, namespace="default")
        await self.client.delete(CONFIG_MAPS, name, namespace="default")
        while not await self._has_forgotten(config_map.metadata.resource_version):
            pass  # each question takes a second, and it looks every ten
        return config_map.metadata.resource_version

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
async def _local(request: pytest.FixtureRequest) -> AsyncIterator[ContractCluster]:
    """The embedded server in this process, on a store in memory."""
    clock, rand, gates, store = RealClock(), Rand(), Gates(), MemoryStore()
    server = ApiServer(store, clock, rand, gates)
    await server.start()
    admin = server.client(identity.ADMIN, field_manager="contract")

    async def forget() -> str:
        first = str(store.revision)
        config_map = await admin.create(
            CONFIG_MAPS, {"metadata": {"name": f"past-{next(_numbers)}"}}, namespace="default"
        )
        assert config_map.metadata.resource_version != first
        await store.compact(store.revision)
        return first

    try:
        yield ContractCluster(
            admin,
            server.client(identity.READ_ONLY, field_manager="contract"),
            (),
            keeps_reasons=True,
            forget=forget,
        )
    finally:
        await server.close()
        await store.close()


OPENED = {"http": _refloat, "local": _local, "kubernetes": _kubernetes}


@pytest.fixture(scope="session")
def refloat_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.ServerProcess]:
    """A server that all tests of this worker share."""
    folder = tmp_path_factory.mktemp("refloat") / "data"
    with processes.serving(folder, "--controllers", "none") as server:
        yield server
        assert server.end() == 0


@pytest.fixture(params=[name for name in OPENED if name != "kubernetes" or ELSEWHERE in os.environ])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[ContractCluster]:
    """A cluster, with a namespace of its own for each test."""
    async with OPENED[request.param](request) as opened:
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        await opened.client.create(NAMESPACES, {"metadata": {"name": name}})
        yield dataclasses.replace(opened, namespace=name)
        await opened.client.delete(NAMESPACES, name)


async def read(watch: Watch[Thing], count: int) -> list[WatchEvent[Thing]]:
    """So many events, without the bookmarks between them."""
    events: list[WatchEvent[Thing]] = []
    while len(events) < count:
        event = await anext(watch)
        if event.type != "BOOKMARK":
            events.append(event)
    return events


def told(events: list[WatchEvent[Thing]]) -> list[tuple[str, str]]:
    """Types and names."""
    return [(each.type, each.object.metadata.name if each.object else "") for each in events]
