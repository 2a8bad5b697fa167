# SPDX-License-Identifier: Apache-2.0
"""A server that misbehaves, a clock that is moved by hand, and a client between them."""

import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from refloat.api import kinds
from refloat.base.rand import Rand
from refloat.client import cluster_access
from refloat.client.contract import Kind
from refloat.client.http import HttpClient
from refloat.client.settings import ClientSettings
from tests.clocks import ManualClock
from tests.unit.client import certs, misbehaving


class Meta(msgspec.Struct, rename="camel"):
    name: str | None = None
    resource_version: str | None = None


class Pod(msgspec.Struct):
    metadata: Meta | None = None


PODS = Kind(kinds.of("pods"), Pod)

SETTINGS = ClientSettings(component="test", qps=0)

Tls = tuple[ssl.SSLContext, bytes]
Connect = Callable[..., HttpClient]


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    """A server's TLS context, and the authority that vouches for it."""
    return certs.server(tmp_path_factory.mktemp("pki"), certs.client("alice"), certs.client("bob"))


@pytest.fixture
async def server(tls: Tls) -> AsyncIterator[misbehaving.Misbehaving]:
    async with misbehaving.serving(tls[0]) as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(jumps=True)


@pytest.fixture
async def connect(
    server: misbehaving.Misbehaving, tls: Tls, clock: ManualClock
) -> AsyncIterator[Connect]:
    """Makes clients of the server; closes them at the end."""
    clients: list[HttpClient] = []

    def client(
        user: cluster_access.User | None = None,
        *,
        settings: ClientSettings = SETTINGS,
        **cluster: object,
    ) -> HttpClient:
        described = {
            "server": server.url,
            "authority": cluster_access.Source(data=tls[1]),
            **cluster,
        }
        where = cluster_access.Access(
            cluster_access.ClusterEndpoint(**described),  # type: ignore[arg-type]
            user or cluster_access.User(token="secret"),
        )
        clients.append(HttpClient(where, clock=clock, rand=Rand(1), settings=settings))
        return clients[-1]

    yield client
    for each in clients:
        await each.close()


@pytest.fixture
def client(connect: Connect) -> HttpClient:
    return connect()


def script(folder: Path, text: str, name: str = "plugin") -> str:
    """An executable shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)
